// From the arguments of one verification to the parameters of its kernel.
#pragma once

#include "common/verify_params.h"
#include "cubinery/gdn_verify.h"
#include "runtime/gdn/shared/extent.h"

namespace cubinery::gdn {

// By the shapes of q and cu_seqlens, before anything else is checked.
Status verify_extent(const VerifyProblem& problem, const VerifyArgs& args, LaunchExtent* extent);

// Checks every tensor of such a launch and fills all parameters.
Status bind_verify(const VerifyProblem& problem, const VerifyArgs& args, const LaunchExtent& extent,
                   GdnVerifyParams* params);

}  // namespace cubinery::gdn
