// Random operands of Gated DeltaNet: rows of q, k and v, and gates, in the distributions that speed
// and error depend on.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cubinery/gdn_types.h"
#include "harness/random.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery {

// Distributions of the decay: strong (-U(0,1)), Qwen (slow, none for a quarter of the heads),
// undecayed (0), init (a freshly initialised model), extreme (-31 to -69: exp underflows).
// kUnbalanced: exp(A_log) or softplus(a + dt_bias) leaves fp32, their product seldom does.
enum class GateDistribution { kStrong, kQwen, kUndecayed, kInit, kExtreme, kUnbalanced };
inline constexpr GateDistribution kGateDistributions[] = {
    GateDistribution::kStrong, GateDistribution::kQwen,    GateDistribution::kUndecayed,
    GateDistribution::kInit,   GateDistribution::kExtreme, GateDistribution::kUnbalanced};

struct DataOptions {
  std::uint64_t seed = 1;
  GateDistribution gates = GateDistribution::kQwen;
  double key_correlation = 0;  // of keys of one head, over tokens, sequences and seeds
};

// One stream of random numbers per operand, so that a change to one leaves the others alone.
enum class DataStream : std::uint64_t {
  kQ = 1,
  kK,
  kV,
  kGate,
  kBeta,
  kALog,
  kDtBias,
  kState,
  kIndices,
  kCommonKey,
  kParents,
  kZ,
  kNormWeight,
  kX,
  kConvWeight,
  kConvBias,
  kConvState,
  kCheckpoints,
};

// The numbers of one operand of one sequence and head, whatever is around it.
inline Random random_of(std::uint64_t seed, DataStream stream, std::int64_t n, std::int64_t h) {
  const auto unit = static_cast<std::uint64_t>((n + 1) * 1024 + h);
  return Random(seed, static_cast<std::uint64_t>(stream) + 1000 * unit);
}

// Random rows of one sequence and head, or of a state.  They have length one, or about
// 0.1 sqrt(dim) (strong), or about sqrt(dim) when `raw`.
class RowSource {
 public:
  RowSource(const DataOptions& options, DataStream stream, std::int64_t n, std::int64_t h,
            std::int64_t dim, bool raw)
      : random_(random_of(options.seed, stream, n, h)),
        rho_(static_cast<float>(stream == DataStream::kK ? options.key_correlation : 0)),
        factor_(raw                                          ? 1.0f
                : options.gates == GateDistribution::kStrong ? 0.1f
                                                             : 0.0f),
        common_(static_cast<std::size_t>(dim)),
        row_(common_.size()) {
    Random common(static_cast<std::uint64_t>(h),
                  static_cast<std::uint64_t>(DataStream::kCommonKey));
    // The same for every seed.
    for (float& x : common_) x = rho_ == 0 ? 0 : common.normal();
  }

  // Valid until the next call.
  const std::vector<float>& next() {
    float sum = 0;
    for (std::size_t d = 0; d < row_.size(); ++d) {
      row_[d] = rho_ * common_[d] + std::sqrt(1 - rho_ * rho_) * random_.normal();
      sum += row_[d] * row_[d];
    }
    const float factor = factor_ != 0 ? factor_ : 1 / std::sqrt(sum);
    for (float& x : row_) x *= factor;
    return row_;
  }

 private:
  Random random_;
  float rho_;
  float factor_;  // 0: to length one
  std::vector<float> common_, row_;
};

// Random gates of one sequence and head, as the modes take them.
class GateSource {
 public:
  GateSource(gdn::GateMode gate_mode, gdn::BetaMode beta_mode, const DataOptions& options,
             std::int64_t n, std::int64_t h)
      : gate_mode_(gate_mode),
        beta_mode_(beta_mode),
        gates_(options.gates),
        head_(h),
        gate_(random_of(options.seed, DataStream::kGate, n, h)),
        beta_(random_of(options.seed, DataStream::kBeta, n, h)),
        dt_bias_(random_of(options.seed, DataStream::kDtBias, 0, h)) {
    still_ = gates_ == GateDistribution::kUndecayed ||
             (gates_ == GateDistribution::kQwen && gate_.uniform() < 0.25);
    const bool extreme = gates_ == GateDistribution::kExtreme;
    // Extreme: either a large A, or a large a that takes softplus(x) = x.
    const double a = extreme ? (h % 2 == 0 ? 16 : 1)
                             : random_of(options.seed, DataStream::kALog, 0, h).uniform(1, 16);
    a_log_ = gates_ == GateDistribution::kUnbalanced ? kUnbalancedHeads[h % 4].a_log
                                                     : static_cast<float>(std::log(a));
    Random same = dt_bias_;
    dt_bias_of_head_ = dt_bias(same);
  }

  float a_log() const { return a_log_; }              // of the head, whatever the sequence
  float next_dt_bias() { return dt_bias(dt_bias_); }  // likewise, of a channel

  float next_gate() {
    if (!gdn::is_computed(gate_mode_)) {
      const double g = log_decay();
      return static_cast<float>(gate_mode_ == gdn::GateMode::kAlpha ? std::exp(g) : g);
    }
    if (still_) return -200;
    if (gates_ == GateDistribution::kUnbalanced)
      return kUnbalancedHeads[head_ % 4].a + static_cast<float>(gate_.normal());
    if (gates_ != GateDistribution::kExtreme) return gate_.normal();
    return static_cast<float>(head_ % 2 == 0 ? -log_decay() / 16 : -log_decay());
  }

  float next_beta() {
    const double logit = beta_.normal();
    if (beta_mode_ != gdn::BetaMode::kGiven) return static_cast<float>(logit);
    return static_cast<float>(gates_ == GateDistribution::kStrong ? beta_.uniform(0, 0.5)
                                                                  : 1 / (1 + std::exp(-logit)));
  }

 private:
  float dt_bias(Random& random) const {
    const double dt = std::exp(random.uniform(std::log(1e-3), std::log(0.1)));
    const bool extreme = gates_ == GateDistribution::kExtreme;
    return static_cast<float>(extreme ? 0.25 : std::log(std::expm1(dt)));
  }

  static double softplus(double x) { return std::log1p(std::exp(x)); }

  double log_decay() {
    if (still_) return 0;
    const double normal = gate_.normal();
    switch (gates_) {
      case GateDistribution::kStrong:
      case GateDistribution::kUnbalanced:  // of gates that are computed alone
        return -gate_.uniform();
      case GateDistribution::kQwen:
        return -softplus(-normal) / 16;
      case GateDistribution::kInit:
        return -std::exp(a_log_) * softplus(normal + dt_bias_of_head_);
      case GateDistribution::kExtreme:
        return -gate_.uniform(31, 69);
      case GateDistribution::kUndecayed:
        break;
    }
    return 0;
  }

  // By turns: a product near 1, near 0 twice (one factor infinite, the other 0 in fp32; a rate of
  // 0) and one that decays to 0.
  struct UnbalancedHead {
    float a_log, a;
  };
  static constexpr UnbalancedHead kUnbalancedHeads[] = {
      {100, -101}, {100, -250}, {-200, 3}, {95, -10}};

  gdn::GateMode gate_mode_;
  gdn::BetaMode beta_mode_;
  GateDistribution gates_;
  std::int64_t head_;
  bool still_;  // never decays
  float a_log_, dt_bias_of_head_;
  Random gate_, beta_, dt_bias_;
};

}  // namespace cubinery
