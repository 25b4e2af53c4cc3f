// The decay and the write strength of a token and head, from what the caller gives.  Templates over
// the kernels' keys, which name the modes and dtypes of gates alike.
#pragma once

#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/params.h"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

// A decay below e^-128 is 0 in fp32; clamping there keeps sums finite where alpha is 0.
inline constexpr float kLeastLogDecay = -128.0f;

// -exp(A_log) softplus(a + dt_bias).
__device__ inline float computed_log_decay(float a, float A_log, float dt_bias) {
  return -expf(A_log) * softplus(a + dt_bias);
}

// The decay with GateMode::kAlpha, else its logarithm.  Requires: there is a gate.
template <auto kKey, class Strides>
__device__ float given_gate(const GateParams<Strides>& p, typename Strides::At at) {
  const float g = load<kKey.inputs.gate_dtype>(p.g, at);
  if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kComputed) return g;
  return computed_log_decay(g, load<kKey.inputs.a_log_dtype>(p.A_log, at.head),
                            load<kKey.inputs.dt_bias_dtype>(p.dt_bias, at.head));
}

// What the state is multiplied by.
template <auto kKey, class Strides>
__device__ float decay_of(const GateParams<Strides>& p, typename Strides::At at) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kNone) return 1.0f;
  const float g = given_gate<kKey>(p, at);
  return kKey.inputs.gate_mode == gdn::GateMode::kAlpha ? g : expf(g);
}

// Its logarithm, to be summed: kLeastLogDecay or more.
template <auto kKey, class Strides>
__device__ float log_decay_of(const GateParams<Strides>& p, typename Strides::At at) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kNone) return 0.0f;
  float g = given_gate<kKey>(p, at);
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kAlpha) g = logf(g);
  return g < kLeastLogDecay ? kLeastLogDecay : g;  // NOTE: fmaxf would drop a NaN
}

// The write strength.
template <auto kKey, class Strides>
__device__ float beta_of(const GateParams<Strides>& p, typename Strides::At at) {
  if constexpr (kKey.inputs.beta_mode == gdn::BetaMode::kOne) return 1.0f;
  const float b = load<kKey.inputs.beta_dtype>(p.beta, at);
  if constexpr (kKey.inputs.beta_mode == gdn::BetaMode::kGiven) return b;
  return (kKey.inputs.beta_mode == gdn::BetaMode::kDoubledLogit ? 2.0f : 1.0f) * sigmoid(b);
}

}  // namespace cubinery::dev
