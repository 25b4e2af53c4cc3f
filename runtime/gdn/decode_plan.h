// Which kernel a decode launch runs, for every number of states, and why.  Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/gdn_decode.h"
#include "cubinery/tuning.h"
#include "gdn_decode/key.h"
#include "tuner/choose/choose.h"
#include "tuner/choose/model.h"

namespace cubinery::gdn {

// What there is to choose from for a problem; `problem.check()` is required here and below.
// Without `problem`'s head counts: they are in the features.
TuningSpace decode_space(const DecodeProblem& problem);
// {"states", batch x heads}: what a choice depends on.
Shape decode_features(const DecodeProblem& problem, std::int64_t batch);

// The tuned values of a key of the problem, as configurations have them, and back.  nullopt: the
// values are not those of a valid key.
std::vector<TunedValue> decode_values(const GdnDecodeKey& key);
std::optional<GdnDecodeKey> decode_key(const DecodeProblem& problem,
                                       const std::vector<TunedValue>& values);

// Who asks for results for this problem on this GPU.
Question decode_question(const DecodeProblem& problem, const GpuIdentity& gpu,
                         const Toolchain& toolchain);

// Immutable.  One cell for each power of two of states; its neighbours share it up to half way (in
// the logarithm).  All keys sum in the same order, so that a request gets the same bits from all.
struct DecodePlan {
  struct Cell {
    std::size_t key = 0;  // of `keys`
    Chosen chosen{};
  };
  static constexpr std::size_t kCells = 32;

  std::vector<GdnDecodeKey> keys;  // those that some cell has
  std::array<Cell, kCells> cells{};
  bool uses_results = false;  // some cell was measured

  static std::size_t index(std::int64_t states);  // of the cell; the nearest where there is none
  const Cell& cell(std::int64_t states) const { return cells[index(states)]; }
  const GdnDecodeKey& key(std::int64_t states) const { return keys[cell(states).key]; }
};

// Measured answers first, then the cost model among the default keys.  Where answers disagree with
// the default keys in bits, the model chooses among the answers.  `answers` may be null: no
// results, for the reason `why_not`.
DecodePlan decode_plan(const DecodeProblem& problem, const GpuRates& gpu, const Answers* answers,
                       std::string_view why_not = "");
// One key for all cells.
DecodePlan decode_plan(const GdnDecodeKey& key);

// Every kernel that a plan of the problem can have on any GPU of the architecture: the default
// keys, and what results for these templates, compiled by any NVRTC, can choose.
std::vector<GdnDecodeKey> decode_plan_keys(const DecodeProblem& problem, std::string_view arch,
                                           const std::vector<TuningResult>& results,
                                           const std::string& templates);

}  // namespace cubinery::gdn
