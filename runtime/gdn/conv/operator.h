// What the library knows of the convolution.
#pragma once

#include <string_view>
#include <vector>

#include "cubinery/gdn_conv.h"
#include "gdn_conv/key.h"
#include "runtime/gdn/conv/parts.h"
#include "runtime/gdn/conv/tables.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// One configuration of the operator, loaded.  Immutable.
class ConvRunner {
 public:
  virtual ~ConvRunner() = default;
  virtual const Kernel& kernel() const = 0;
  // Launches the sequences of the parameters, at least one; fills what depends on the grid.
  virtual Status launch(Stream stream, GdnConvParams params, std::int64_t max_seqlen,
                        bool enable_pdl) const = 0;
};

using ConvPath = Path<ConvProblem, ConvRunner>;

// (sequences, tokens of one, channels): packed sequences count as long as their average, rounded
// up.
Point point_of(const ConvProblem& problem, const ConvSize& size);

}  // namespace gdn

template <>
struct OperatorOf<gdn::ConvProblem> {
  using Runner = gdn::ConvRunner;
  static const std::vector<const gdn::ConvPath*>& paths();
  // Along the sequences, their tokens and the channels.
  static Sizes sizes(const gdn::ConvProblem& problem);
};

// Beside the operator.
extern template class Planner<gdn::ConvProblem>;

}  // namespace cubinery
