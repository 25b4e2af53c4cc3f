// What the library knows of the decode operator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_decode.h"
#include "runtime/gdn/decode/tables.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// The problem with the fields that the others leave without meaning at their defaults.
DecodeProblem normalised(DecodeProblem problem);

// The convolution in front, as gdn::Conv would compute it.  Requires: there is one.
ConvProblem conv_in_front(const DecodeProblem& problem);

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

// Lanes along key_dim of default keys with KV states of `dtype`, of verify's too: both sum alike.
int kv_lanes(int key_dim, DType dtype, Decay decay);
// For values of a decode step, or a verification's: with rows along value_dim a vector holds
// columns, each of which is summed by itself.
void correct_step_bits(StateLayout layout, std::vector<TunedValue>* values);

}  // namespace gdn

template <>
struct OperatorOf<gdn::DecodeProblem> {
  using Runner = gdn::DecodeRunner;
  static const std::vector<const gdn::DecodePath*>& paths();
  // Along the states, batch x heads, on which choices depend.
  static Sizes sizes(const gdn::DecodeProblem& problem);
};

// Beside the operator.
extern template class Planner<gdn::DecodeProblem>;

}  // namespace cubinery
