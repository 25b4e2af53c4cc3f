// The paths of verify.
#pragma once

#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "runtime/gdn/verify/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {
namespace gdn {

// Decode's pass over the state, which stays in registers over all tokens; every architecture.
using VerifyPortablePath = KeyedPath<VerifyProblem, VerifyRunner, GdnVerifyKey>;
const VerifyPortablePath& verify_portable();
// All tokens of a request at once: the WY form, on the tensor cores (mma.sync, sm_80 and newer).
using VerifyWyPath = KeyedPath<VerifyProblem, VerifyRunner, GdnVerifyWyKey>;
const VerifyWyPath& verify_wy();

}  // namespace gdn

// Beside the path.
extern template class KeyedPath<gdn::VerifyProblem, gdn::VerifyRunner, GdnVerifyKey>;
extern template class KeyedPath<gdn::VerifyProblem, gdn::VerifyRunner, GdnVerifyWyKey>;

}  // namespace cubinery
