// The paths of decode.
#pragma once

#include "gdn_decode/fields.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {
namespace gdn {

// Over the state once, which stays in registers; every architecture, with states in fp8 from sm_89
// on.
using DecodeKeyPath = KeyedPath<DecodeProblem, DecodeRunner, GdnDecodeKey>;
const DecodeKeyPath& decode_portable();

// Blocks that read the same inputs of the convolution: those of heads that share q, k or v.
int conv_cluster(const DecodeProblem& problem, const GdnDecodeKey& key);

}  // namespace gdn

// Beside the path.
extern template class KeyedPath<gdn::DecodeProblem, gdn::DecodeRunner, GdnDecodeKey>;

}  // namespace cubinery
