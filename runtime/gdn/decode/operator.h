// What the library knows of the decode operator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "cubinery/gdn_decode.h"
#include "runtime/gdn/decode/problem.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// Kernels count requests in an int.
inline constexpr std::int64_t kMaxBatch = std::numeric_limits<int>::max();

// One configuration of the operator, loaded.  Immutable.
class DecodeRunner {
 public:
  virtual ~DecodeRunner() = default;
  virtual const Kernel& kernel() const = 0;
  // Checks the arguments of `batch` requests, at least one, and launches.
  virtual Status launch(Stream stream, const DecodeArgs& args, std::int64_t batch) const = 0;
};

using DecodePath = Path<DecodeProblem, DecodeRunner>;

// A launch of so many requests; counts below 1 are taken as 1.
inline Point point_of(const DecodeProblem& problem, std::int64_t batch) {
  return {std::clamp<std::int64_t>(batch, 1, kMaxBatch) * problem.heads.count(), 1, 1};
}

}  // namespace gdn

template <>
struct OperatorOf<gdn::DecodeProblem> {
  using Runner = gdn::DecodeRunner;
  static const std::vector<const gdn::DecodePath*>& paths();
  static constexpr std::string_view kOutline[] = {"key_dim",      "value_dim",   "dtype",
                                                  "output_dtype", "state_dtype", "state_layout",
                                                  "output_norm"};
  static constexpr std::string_view kNotForSpeed[] = {"q_heads", "k_heads", "v_heads",
                                                      "batch_invariant"};
  // Along the states, batch x heads, on which choices depend.
  static Sizes sizes(const gdn::DecodeProblem& problem);
};

}  // namespace cubinery
