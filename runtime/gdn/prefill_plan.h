// Which kernels a prefill launch runs, for every size, and why.  Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/gdn_prefill.h"
#include "cubinery/tuning.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "tuner/choose/choose.h"
#include "tuner/choose/model.h"

namespace cubinery::gdn {

// The keys of one launch; both have one chunk_size.
struct PrefillPair {
  GdnPrefillChunksKey chunks;
  GdnPrefillScanKey scan;
};

// What there is to choose from for a problem in blocks of at most `shared_limit` bytes of shared
// memory: max_shared_bytes() of the architecture.  `problem.check()` is required here and below.
TuningSpace prefill_space(const PrefillProblem& problem, int shared_limit);
// {"states", sequences x heads}, {"length", tokens of a sequence on average, rounded up}, {"skew",
// the longest over that, rounded up}, {"group", heads per key head}: what a choice depends on.
Shape prefill_features(const PrefillProblem& problem, const PrefillSize& size);

// The tuned values of the keys, as configurations have them: chunk_size, chunks.warps, scan.warps,
// scan.stages; and back.  nullopt: the values are not those of valid keys within the limit, or
// checkpoints do not lie at multiples of the chunk size.
std::vector<TunedValue> prefill_values(const PrefillPair& pair);
std::optional<PrefillPair> prefill_pair(const PrefillProblem& problem,
                                        const std::vector<TunedValue>& values, int shared_limit);

// Who asks for results for this problem on this GPU.
Question prefill_question(const PrefillProblem& problem, const GpuIdentity& gpu,
                          const Toolchain& toolchain, int shared_limit);

// Heads that share k and q heads, in a group that divides them all: the most that may share a block
// of the first kernel.
int shared_heads(const PrefillProblem& problem);

// Immutable.  Cells lie at powers of two of the sequences, of their average length and of the skew;
// sizes in between belong to the nearest (in the logarithm), sizes beyond the last cell to that.
// All keys have one chunk_size, so that a sequence gets the same bits from all.
struct PrefillPlan {
  struct Cell {
    std::uint8_t chunks = 0;   // of `chunks`
    std::uint8_t scan = 0;     // of `scans`
    std::uint16_t chosen = 0;  // of `choices`
  };

  std::vector<GdnPrefillChunksKey> chunks;  // those that some cell has
  std::vector<GdnPrefillScanKey> scans;     // likewise
  std::vector<Chosen> choices;
  std::vector<Cell> cells;
  bool uses_results = false;  // some cell was measured

  // Of `cells`.  Sizes need not agree with each other: what is below its least (negative, or a
  // longest sequence that is shorter than the average) is taken as that.
  static std::size_t index(const PrefillSize& size);
  const Cell& cell(const PrefillSize& size) const;
  int chunk_size() const { return chunks.front().chunk_size; }
  PrefillPair pair(const PrefillSize& size) const;
};

// As decode_plan().
PrefillPlan prefill_plan(const PrefillProblem& problem, int shared_limit, const GpuRates& gpu,
                         const Answers* answers, std::string_view why_not = "");
// The same keys for all sizes.
PrefillPlan prefill_plan(const PrefillPair& pair);

// As decode_plan_keys(), for blocks of at most `shared_limit` bytes.
struct PrefillPlanKeys {
  std::vector<GdnPrefillChunksKey> chunks;
  std::vector<GdnPrefillScanKey> scans;
};
PrefillPlanKeys prefill_plan_keys(const PrefillProblem& problem, std::string_view arch,
                                  int shared_limit, const std::vector<TuningResult>& results,
                                  const std::string& templates);

}  // namespace cubinery::gdn
