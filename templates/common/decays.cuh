// The decay of a step (common/step.cuh) as its arithmetic takes it: of the head, or of each channel
// of k that a thread has.
//
//   head:     d = beta (v - e^g s);   o = scale (e^g r + (q.k) d);   s and r sums over S
//   channel:  d = beta (v - s);       o = scale (r + (q.k) d);       s and r sums over e^g S
//   both:     S <- e^g S + k d^T
//
// So before_sums(x, e) is what sums take of an element x of the state, of_sums() the factor behind
// them, and of(e) the factor of the update.
#pragma once

#include "common/gates.cuh"
#include "common/step.cuh"

namespace cubinery::dev {

template <auto kKey, bool = kKey.inputs.decay == gdn::Decay::kChannel>
class Decays {
 public:
  // Of a head's tokens.
  class OfTokens {
   public:
    __device__ OfTokens(const auto& gates, int head, float lower_bound, typename Step<kKey>::Lane)
        : all_(gates_of_tokens<kKey>(gates, head, lower_bound)) {}

   private:
    friend Decays;
    GatesOfTokens all_;
  };
  // Of a token, in flight until it is used.
  class Given {
   public:
    Given() = default;
    template <class Strides>
    __device__ Given(const GateParams<Strides>& gates, typename Strides::At at,
                     typename Step<kKey>::Lane)
        : given_(load_gates<kKey>(gates, at)) {}
    __device__ float beta() const { return beta_of<kKey>(given_); }

   private:
    friend Decays;
    GivenGates given_;
  };

  // For whole warps.
  __device__ Decays(const OfTokens& all, const Given& given, typename Step<kKey>::Lane)
      : decay_(decay_of<kKey>(all.all_, given.given_)) {}

  __device__ float before_sums(float x, int) const { return x; }
  __device__ float of_sums() const { return decay_; }
  __device__ float of(int) const { return decay_; }

 private:
  float decay_;
};

// The lanes of a column make each a part of the channels that they have in common, and hand them to
// each other.
template <auto kKey>
class Decays<kKey, true> {
  using S = Step<kKey>;
  using Lane = typename S::Lane;
  static constexpr int kOwn = (S::kKPart + S::kVLanes - 1) / S::kVLanes;  // of a lane

  // Lane's own channel i, behind the first of the head; the last one may be one too many.
  static __device__ int channel(Lane lane, int i) {
    const int e = i * S::kVLanes + lane.v;
    return lane.k * S::kKRun + S::k_offset(e < S::kKPart ? e : 0);
  }

 public:
  class OfTokens {
   public:
    template <class Strides>
    __device__ OfTokens(const GateParams<Strides>& gates, int head, float lower_bound, Lane lane) {
      const GatesOfTokens all = gates_of_tokens<kKey>(gates, head, lower_bound);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        own_[i] = all;
        own_[i].dt_bias =
            to_float<kKey.inputs.dt_bias_dtype>(dt_bias_of<kKey>(gates, head, channel(lane, i)));
      }
    }

   private:
    friend Decays;
    GatesOfTokens own_[kOwn];
  };
  class Given {
   public:
    Given() = default;
    template <class Strides>
    __device__ Given(const GateParams<Strides>& gates, typename Strides::At at, Lane lane)
        : beta_(load_beta<kKey>(gates, at)) {
      if constexpr (kKey.inputs.gate_mode == gdn::GateMode::kNone) return;
      const long long row = offset_of(gates.g.stride, at);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        own_[i] = load<kKey.inputs.gate_dtype>(gates.g.data, row + channel(lane, i));
      }
    }
    __device__ float beta() const { return beta_of<kKey>({.beta = beta_}); }

   private:
    friend Decays;
    float own_[kOwn] = {};
    float beta_ = 0.0f;
  };

  __device__ Decays(const OfTokens& all, const Given& given, Lane lane) {
    float own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      own[i] = decay_of<kKey>(all.own_[i], GivenGates{.g = given.own_[i]});
    }
#pragma unroll
    for (int e = 0; e < S::kKPart; ++e) {
      const Lane from{.k = lane.k, .v = e % S::kVLanes};
      decays_[e] = __shfl_sync(0xffffffffu, own[e / S::kVLanes], from.number());
    }
  }

  // The product is rounded, here and in the update: the compiler keeps it, or makes it again.
  __device__ float before_sums(float x, int e) const { return __fmul_rn(decays_[e], x); }
  __device__ float of_sums() const { return 1.0f; }
  __device__ float of(int e) const { return decays_[e]; }

 private:
  float decays_[S::kKPart];
};

}  // namespace cubinery::dev
