// The decay and the write strength of a token and head, from what the caller gives.
#pragma once

#include "common/math.cuh"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

// -exp(A_log) softplus(a + dt_bias).
__device__ inline float computed_log_decay(float a, float A_log, float dt_bias) {
  return -expf(A_log) * softplus(a + dt_bias);
}

// `b` is beta or its logit.
template <gdn::BetaMode kMode>
__device__ float write_strength(float b) {
  if constexpr (kMode == gdn::BetaMode::kGiven) return b;
  return (kMode == gdn::BetaMode::kDoubledLogit ? 2.0f : 1.0f) * sigmoid(b);
}

}  // namespace cubinery::dev
