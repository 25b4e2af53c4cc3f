// The path of the convolution.
#pragma once

#include "gdn_conv/fields.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {
namespace gdn {

// One pass over the tokens, on every architecture.
using ConvKeyPath = KeyedPath<ConvProblem, ConvRunner, GdnConvKey>;
const ConvKeyPath& conv_portable();

// The key of the kernel beside it, for tensors that do not lie in vectors.
GdnConvKey without_vectors(GdnConvKey key);

}  // namespace gdn

// Beside the path.
extern template class KeyedPath<gdn::ConvProblem, gdn::ConvRunner, GdnConvKey>;

}  // namespace cubinery
