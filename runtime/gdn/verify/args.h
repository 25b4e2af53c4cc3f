// From the arguments of one verification to the parameters of its kernel.
#pragma once

#include <cstdint>

#include "common/verify_params.h"
#include "cubinery/gdn_verify.h"

namespace cubinery::gdn {

struct VerifyExtent {
  std::int64_t requests = 0;
  std::int64_t tokens = 0;  // dense: of each request; packed: of all

  VerifySize size(bool varlen) const {
    return {.requests = requests, .tokens = varlen ? tokens : requests * tokens};
  }
};

// By the shapes of q and cu_seqlens, before anything else is checked.
Status verify_extent(const VerifyProblem& problem, const VerifyArgs& args, VerifyExtent* extent);

// Checks every tensor of such a launch and fills all parameters.
Status bind_verify(const VerifyProblem& problem, const VerifyArgs& args, const VerifyExtent& extent,
                   GdnVerifyParams* params);

}  // namespace cubinery::gdn
