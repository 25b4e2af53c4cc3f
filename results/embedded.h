// Results inside the library: of GPUs that we measured.
//
// The build writes each line of results/measured/*.results.jsonl as an initialiser of
// EmbeddedResult (scripts/embed_results.cmake), so that nothing is parsed when an operator is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "results/records.h"

namespace cubinery {

// A result's line: members in its order and with its names.  Lists end where a name is null.
struct EmbeddedResult {
  static constexpr std::size_t kMost = 8;
  struct Size {
    const char* name;
    std::int64_t value;
  };
  struct Value {
    const char* name;
    const char* value;
    bool is_text;
  };
  struct Gpu {
    const char *arch, *capability;
    int sm_count;
    std::int64_t l2_bytes, shared_bytes_per_sm;
    const char *mig, *name;
  };

  int result;  // the format
  const char *op, *problem;
  Size shape[kMost], features[kMost];
  const char* bucket;
  Gpu gpu;
  const char *nvrtc, *driver;
  std::int64_t bytes;
  Value configuration[kMost];
  const char* bits[kMost];
  Timing ms;
  const char* templates;
  Value agreed[kMost] = {};
  Timing agreed_ms{};
  const char* agreed_templates = "";
  Value otherwise[kMost];
  Timing otherwise_ms;
  Value runner_up[kMost];
  double margin = 0, uncertainty = 0;
  Clocks clocks;
  int candidates, measured, rejected;
  const char* time;
};

// Those that is_wanted(op, fixed), all by default.  Thread-safe.
std::vector<TuningResult> embedded_results(
    const std::function<bool(std::string_view, std::string_view)>& is_wanted = {});

namespace internal {
// The build's table; op is null in the last one.
extern const EmbeddedResult kEmbeddedResults[];
}  // namespace internal

}  // namespace cubinery
