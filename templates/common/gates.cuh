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

// Of a channel, of which a thread has several: the same, short, and as far as models go without a
// branch.  Off by a few units in the last place.
__device__ inline float short_log_decay(float a, float A_log, float dt_bias) {
  const float x = a + dt_bias, y = short_softplus(x);
  if (A_log < 80.0f && x > -80.0f && x < 1e38f) return -exp2(A_log * kLog2E) * y;
  const float log2_y = x < -20.0f ? x * kLog2E : log2(y);
  return -exp2(fmaf(A_log, kLog2E, log2_y > 130.0f ? 130.0f : log2_y));
}

// exp(A_log), between e^-85 and e^85, where the sigmoid of bounded_log_decay() no longer tells of
// any a that a model has.
__device__ inline float bounded_factor(float A_log) {
  float log_factor = A_log > 85.0f ? 85.0f : A_log;  // NOTE: fminf would drop a NaN
  if (log_factor < -85.0f) log_factor = -85.0f;
  return exp2(log_factor * kLog2E);
}

// lower_bound sigmoid(exp(A_log) (a + dt_bias)), of any finite numbers.  As short.
__device__ inline float bounded_log_decay(float a, float A_log, float dt_bias, float lower_bound) {
  const float x = bounded_factor(A_log) * (a + dt_bias);
  return lower_bound * reciprocal(1.0f + exp2(-x * kLog2E));
}

// What is given of a token's gates, and nothing computed from it yet.
struct GivenGates {
  float g = 0.0f;     // g, alpha or a
  float beta = 0.0f;  // beta or its logit
};

// Else each channel of k has a decay: common/decays.cuh and common/tokens/channels.cuh load those.
template <auto kKey>
inline constexpr bool kIsOfHeads = kKey.inputs.decay == gdn::Decay::kHead;

template <auto kKey, class Strides>
__device__ float load_beta(const GateParams<Strides>& p, typename Strides::At at) {
  if constexpr (kKey.inputs.beta_mode == gdn::BetaMode::kOne) return 0.0f;
  return load<kKey.inputs.beta_dtype>(p.beta, at);
}

template <auto kKey, class Strides>
__device__ GivenGates load_gates(const GateParams<Strides>& p, typename Strides::At at) {
  GivenGates given;
  if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kNone && kIsOfHeads<kKey>) {
    given.g = load<kKey.inputs.gate_dtype>(p.g, at);
  }
  given.beta = load_beta<kKey>(p, at);
  return given;
}

// What a head's tokens have in common (gdn::is_computed()).  Where each channel of k has a decay,
// dt_bias is what dt_bias_of() one of them is.
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
                                         float lower_bound) {
  if constexpr (!gdn::is_computed(kKey.inputs.gate_mode)) return {};
  GatesOfTokens all{.A_log = A_log_of<kKey>(p, head), .lower_bound = lower_bound};
  if constexpr (kIsOfHeads<kKey>) all.dt_bias = load<kKey.inputs.dt_bias_dtype>(p.dt_bias, head);
  return all;
}

// As it lies in memory.
template <auto kKey, class Strides>
__device__ Storage<kKey.inputs.dt_bias_dtype> dt_bias_of(const GateParams<Strides>& p, int head,
                                                         int channel) {
  if constexpr (!gdn::is_computed(kKey.inputs.gate_mode)) return 0;
  if (p.dt_bias.data == nullptr) return 0;
  return as<kKey.inputs.dt_bias_dtype>(p.dt_bias.data)[head * p.dt_bias.stride + channel];
}

// Of keys that have no lower bound.
template <auto kKey, class Strides>
__device__ GatesOfTokens gates_of_tokens(const GateParams<Strides>& p, int head) {
  static_assert(kKey.inputs.gate_mode != gdn::GateMode::kLowerBound);
  return gates_of_tokens<kKey>(p, head, 0.0f);
}

// The logarithm of the decay, which may be any number.
template <auto kKey>
__device__ float whole_log_decay_of(const GatesOfTokens& all, const GivenGates& given) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kNone) return 0.0f;
  float g = given.g;
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kAlpha) g = logf(g);
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kComputed) {
    g = kIsOfHeads<kKey> ? computed_log_decay(g, all.A_log, all.dt_bias)
                         : short_log_decay(g, all.A_log, all.dt_bias);
  }
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kLowerBound) {
    g = bounded_log_decay(g, all.A_log, all.dt_bias, all.lower_bound);
  }
  return g;
}

// The same, to be summed: kLeastLogDecay or more.
template <auto kKey>
__device__ float log_decay_of(const GatesOfTokens& all, const GivenGates& given) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kNone) return 0.0f;
  const float g = whole_log_decay_of<kKey>(all, given);
  return g < kLeastLogDecay ? kLeastLogDecay : g;  // NOTE: fmaxf would drop a NaN
}

// Whether exp(A_log) is between e^-60 and e^60, as in all models: then nothing leaves fp32 that
// matters.
template <auto kKey>
__device__ bool is_tame(const GatesOfTokens& all) {
  return kKey.inputs.gate_mode != gdn::GateMode::kComputed || fabsf(all.A_log) < 60.0f;
}

// The same of a channel for base 2, for sums of many tokens; kIsTame: is_tame().
template <auto kKey, bool kIsTame>
class SummedLogDecay {
 public:
  __device__ explicit SummedLogDecay(const GatesOfTokens& all) : all_(all) {
    all_.lower_bound *= kLog2E;
    if constexpr (kIsBounded) factor_ = -bounded_factor(all.A_log) * kLog2E;
    if constexpr (kIsComputed) factor_ = -exp2(all.A_log * kLog2E) * kLog2E;
  }

  // sum + g.  A bound is far above where logarithms are cut off.
  __device__ float add_to(float sum, float given) const {
    const float x = given + all_.dt_bias;
    if constexpr (kIsBounded) {
      return fmaf(all_.lower_bound, reciprocal(1.0f + exp2(x * factor_)), sum);
    } else if constexpr (kIsComputed && kIsTame) {
      const float g = factor_ * short_softplus(x);
      constexpr float kLeast = kLeastLogDecay * kLog2E;
      return sum + (g < kLeast ? kLeast : g);  // NOTE: fmaxf would drop a NaN
    } else {
      return fmaf(log_decay_of<kKey>(all_, {.g = given}), kLog2E, sum);
    }
  }

 private:
  static constexpr bool kIsBounded = kKey.inputs.gate_mode == gdn::GateMode::kLowerBound;
  static constexpr bool kIsComputed = kKey.inputs.gate_mode == gdn::GateMode::kComputed;
  GatesOfTokens all_;
  float factor_ = 0.0f;
};

// That of a head's tokens; 0 where each channel has one.
template <auto kKey>
__device__ float log_decay_of_head(const GatesOfTokens& all, const GivenGates& given) {
  if constexpr (!kIsOfHeads<kKey>) return 0.0f;
  return log_decay_of<kKey>(all, given);
}

// The decay.  e^-128 is 0, which is where the logarithm is cut off.
template <auto kKey>
__device__ float decay_of(const GatesOfTokens& all, const GivenGates& given) {
  if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kAlpha) return given.g;
  const float g = log_decay_of<kKey>(all, given);
  return kIsOfHeads<kKey> ? expf(g) : exp2(g * kLog2E);
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
