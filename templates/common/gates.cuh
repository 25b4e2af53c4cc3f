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

// lower_bound sigmoid(exp(A_log) (a + dt_bias)), of any finite numbers.  Where a factor leaves fp32
// (0 times infinity is not a number) the product is exp(A_log + log |x|), 0 for x = 0.
__device__ inline float bounded_log_decay(float a, float A_log, float dt_bias, float lower_bound) {
  constexpr float kMost = 0x1.fffffep127f;
  const float x = a + dt_bias;
  if (A_log < 80.0f && fabsf(x) <= kMost) return lower_bound * sigmoid(expf(A_log) * x);
  const float size = fabsf(x) > kMost ? kMost : fabsf(x);
  return lower_bound * sigmoid(copysignf(expf(A_log + logf(size)), x));
}

// What is given of a token's gates, and nothing computed from it yet.
struct GivenGates {
  float g = 0.0f;     // g, alpha or a
  float beta = 0.0f;  // beta or its logit
};

template <auto kKey, class Strides>
__device__ float load_beta(const GateParams<Strides>& p, typename Strides::At at) {
  if constexpr (kKey.inputs.beta_mode == gdn::BetaMode::kOne) return 0.0f;
  return load<kKey.inputs.beta_dtype>(p.beta, at);
}

template <auto kKey, class Strides>
__device__ GivenGates load_gates(const GateParams<Strides>& p, typename Strides::At at) {
  GivenGates given;
  if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kNone) {
    given.g = load<kKey.inputs.gate_dtype>(p.g, at);
  }
  given.beta = load_beta<kKey>(p, at);
  return given;
}

// What a head's tokens have in common (gdn::is_computed()).
struct GatesOfTokens {
  float A_log = 0.0f;
  float dt_bias = 0.0f;
  float lower_bound = 0.0f;
};

template <auto kKey, class Strides>
__device__ float A_log_of(const GateParams<Strides>& p, int head) {
  if constexpr (!gdn::is_computed(kKey.inputs.gate_mode)) return 0.0f;
  if (kKey.inputs.gate_mode == gdn::GateMode::kLowerBound && p.A_log.data == nullptr) return 0.0f;
  return load<kKey.inputs.a_log_dtype>(p.A_log, head);
}

template <auto kKey, class Strides>
__device__ GatesOfTokens gates_of_tokens(const GateParams<Strides>& p, int head,
                                         float lower_bound = 0.0f) {
  if constexpr (!gdn::is_computed(kKey.inputs.gate_mode)) return {};
  return {.A_log = A_log_of<kKey>(p, head),
          .dt_bias = load<kKey.inputs.dt_bias_dtype>(p.dt_bias, head),
          .lower_bound = lower_bound};
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
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kLowerBound) {
    g = bounded_log_decay(g, all.A_log, all.dt_bias, all.lower_bound);
  }
  return g < kLeastLogDecay ? kLeastLogDecay : g;  // NOTE: fmaxf would drop a NaN
}

// The decay.  e^-128 is 0, which is where the logarithm is cut off.
template <auto kKey>
__device__ float decay_of(const GatesOfTokens& all, const GivenGates& given) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kAlpha) return given.g;
  return expf(log_decay_of<kKey>(all, given));
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
