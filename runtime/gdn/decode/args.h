// From the arguments of one decode step to the parameters of its kernel.
#pragma once

#include <cstdint>

#include "cubinery/gdn_decode.h"
#include "gdn_decode/key.h"

namespace cubinery::gdn {

// Checks every tensor of a launch of `batch` requests and fills all parameters.
Status bind_decode(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch,
                   GdnDecodeParams* params);

// [B, channels] as [B, 1, channels], which a convolution takes; others as they are.
Tensor with_one_token(Tensor x);

}  // namespace cubinery::gdn
