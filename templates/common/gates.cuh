// The decay and the write strength of a token and head, from what the caller gives: all gates are
// loaded before the first is used.  Templates over the kernels' keys, which name the modes and
// dtypes of gates alike.
#pragma once

#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/params.h"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

// A decay below e^-128 is 0 in fp32; clamping there keeps sums finite where alpha is 0.
inline constexpr float kLeastLogDecay = -128.0f;

// -exp(A_log) softplus(a + dt_bias), of any finite numbers.  Where a factor or the sum leaves fp32
// (0 times infinity is not a number) the product is exp(A_log + log softplus(x)): log softplus(x)
// is x far below 0 and log(x) far above, at most 90 for a sum of two floats.
__device__ inline float computed_log_decay(float a, float A_log, float dt_bias) {
  const float x = a + dt_bias;
  if (A_log < 80.0f && x > -80.0f && x < 1e38f) return -expf(A_log) * softplus(x);
  const float log_softplus = x < -20.0f ? x : logf(softplus(x));
  return -expf(A_log + (log_softplus > 90.0f ? 90.0f : log_softplus));
}

// What is given of a token's gates, and nothing computed from it yet.
struct GivenGates {
  float g = 0.0f;     // g, alpha or a
  float beta = 0.0f;  // beta or its logit
};

template <auto kKey, class Strides>
__device__ GivenGates load_gates(const GateParams<Strides>& p, typename Strides::At at) {
  GivenGates given;
  if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kNone) {
    given.g = load<kKey.inputs.gate_dtype>(p.g, at);
  }
  if constexpr (kKey.inputs.beta_mode != gdn::BetaMode::kOne) {
    given.beta = load<kKey.inputs.beta_dtype>(p.beta, at);
  }
  return given;
}

// What a head's tokens have in common (GateMode::kComputed).
struct GatesOfTokens {
  float A_log = 0.0f;
  float dt_bias = 0.0f;
};

template <auto kKey, class Strides>
__device__ GatesOfTokens gates_of_tokens(const GateParams<Strides>& p, int head) {
  if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kComputed) return {};
  return {.A_log = load<kKey.inputs.a_log_dtype>(p.A_log, head),
          .dt_bias = load<kKey.inputs.dt_bias_dtype>(p.dt_bias, head)};
}

// The logarithm of the decay, to be summed: kLeastLogDecay or more.
template <auto kKey>
__device__ float log_decay_of(const GatesOfTokens& all, const GivenGates& given) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kNone) return 0.0f;
  float g = given.g;
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kAlpha) g = logf(g);
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kComputed) {
    g = computed_log_decay(g, all.A_log, all.dt_bias);
  }
  return g < kLeastLogDecay ? kLeastLogDecay : g;  // NOTE: fmaxf would drop a NaN
}

// The write strength.
template <auto kKey>
__device__ float beta_of(const GivenGates& given) {
  if constexpr (kKey.inputs.beta_mode == gdn::BetaMode::kOne) return 1.0f;
  if constexpr (kKey.inputs.beta_mode == gdn::BetaMode::kGiven) return given.beta;
  return (kKey.inputs.beta_mode == gdn::BetaMode::kDoubledLogit ? 2.0f : 1.0f) *
         sigmoid(given.beta);
}

}  // namespace cubinery::dev
