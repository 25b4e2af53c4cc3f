// The double-precision reference of decode against another implementation's outputs and by hand.
#include "templates/gdn_decode/gdn_decode_ref.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "harness/data.h"
#include "harness/rounding.h"
#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"
#include "tests/catch.h"
#include "tests/golden.h"

namespace {

using cubinery::DataOptions;
using cubinery::DataStream;
using cubinery::DType;
using cubinery::GateDistribution;
using cubinery::gdn::BetaMode;
using cubinery::gdn::DecodeRefHead;
using cubinery::gdn::GateMode;
using cubinery::gdn::OutputNorm;
using cubinery::gdn::PrefillRefHead;

TEST_CASE("GdnDecodeRef.ReproducesFlaGoldens", "[cpu]") {
  const auto step_by_step = [](const PrefillRefHead<double>& head, double* state, double* o) {
    DecodeRefHead<double> token;
    for (int t = 0; t < head.tokens(); ++t) {
      set_token_ref(head, t, &token);
      gdn_decode_ref(token, state, o + t * head.value_dim);
    }
  };
  cubinery::test::check_gdn_goldens(step_by_step);
  cubinery::test::check_kda_goldens(step_by_step);
}

// A state that is zero and a key of unit length: what one step does can be read off the formulas.
TEST_CASE("GdnDecodeRef.OneStepByHand", "[cpu]") {
  const DecodeRefHead<double> head{.key_dim = 2,
                                   .value_dim = 1,
                                   .inputs = {.gate_mode = GateMode::kAlpha},
                                   .scale = 2,
                                   .q = {3, 5},
                                   .k = {0, 1},
                                   .v = {10},
                                   .gate = {0.5},
                                   .beta = 0.25};
  double state[2] = {8, 4};  // decays to 4, 2; recalls 2; u = 0.25 * (10 - 2) = 2
  double o = -1;
  gdn_decode_ref(head, state, &o);
  CHECK(state[0] == 4);
  CHECK(state[1] == 4);
  CHECK(o == 2 * (3 * 4 + 5 * 4));
}

// exp(A_log) and softplus(a + dt_bias), or exp(A_log) and a + dt_bias, may leave the range of
// numbers where their product does not.
TEST_CASE("GdnDecodeRef.GatesOfFactorsThatOverflow", "[cpu]") {
  const auto log_decay = [](GateMode mode, double A_log, double a, double dt_bias) {
    return log_decay_ref(DecodeRefHead<double>{.inputs = {.gate_mode = mode},
                                               .gate = {a},
                                               .a_log = A_log,
                                               .dt_bias = {dt_bias},
                                               .lower_bound = -5});
  };
  CHECK(log_decay(GateMode::kComputed, 100, -250, 50) == Approx(-std::exp(-100)).margin(0));
  CHECK(log_decay(GateMode::kComputed, 1000, -1001, 0) == Approx(-std::exp(-1)));
  CHECK(log_decay(GateMode::kComputed, 1000, -1e300, 0) == 0);
  CHECK(log_decay(GateMode::kComputed, -1e300, 1e300, 0) == 0);
  CHECK(log_decay(GateMode::kComputed, -690, 1e300, 0) == Approx(-std::exp(-690) * 1e300));
  CHECK(log_decay(GateMode::kLowerBound, 1000, 2, -2) == -2.5);
  CHECK(log_decay(GateMode::kLowerBound, 1000, 1e-300, 0) == -5);
  CHECK(log_decay(GateMode::kLowerBound, 710, -std::exp(-709), 0) ==
        Approx(-5 / (1 + std::exp(std::exp(1)))));
}

// Each channel of k decays by itself, before it recalls.
TEST_CASE("GdnDecodeRef.OneStepWithADecayForEachChannelByHand", "[cpu]") {
  const DecodeRefHead<double> head{
      .key_dim = 2,
      .value_dim = 1,
      .inputs = {.decay = cubinery::gdn::Decay::kChannel, .gate_mode = GateMode::kAlpha},
      .scale = 2,
      .q = {3, 5},
      .k = {0, 1},
      .v = {10},
      .gate = {0.25, 0.5},
      .beta = 0.25};
  double state[2] = {8, 4};  // decays to 2, 2; recalls 2; u = 0.25 * (10 - 2) = 2
  double o = -1;
  gdn_decode_ref(head, state, &o);
  CHECK(state[0] == 2);
  CHECK(state[1] == 4);
  CHECK(o == 2 * (3 * 2 + 5 * 4));
}

// Gates that are the same in all channels are one gate.
TEST_CASE("GdnDecodeRef.ADecayForEachChannelMayBeTheSame", "[cpu]") {
  for (const GateMode mode :
       {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed, GateMode::kLowerBound}) {
    DecodeRefHead<double> one{.key_dim = 3,
                              .value_dim = 2,
                              .inputs = {.gate_mode = mode, .use_qk_l2norm = true},
                              .q = {1, -2, 3},
                              .k = {2, 1, -1},
                              .v = {4, -5},
                              .gate = {mode == GateMode::kAlpha ? 0.75 : -0.75},
                              .beta = 0.5,
                              .a_log = 0.25,
                              .dt_bias = {0.5},
                              .lower_bound = -5};
    DecodeRefHead<double> each = one;
    each.inputs.decay = cubinery::gdn::Decay::kChannel;
    each.gate.assign(3, one.gate[0]);
    each.dt_bias.assign(3, one.dt_bias[0]);
    std::array<double, 6> state{1, 2, 3, 4, 5, 6}, other = state;
    std::array<double, 2> o{}, other_o{};
    gdn_decode_ref(one, state.data(), o.data());
    gdn_decode_ref(each, other.data(), other_o.data());
    CHECK(state == other);
    CHECK(o == other_o);
  }
}

// The error of o where the state is rounded after every step, as a share of the largest element:
// the mean of 16 steps, up to step 64 and up to the last one.
struct Loss {
  double early = 0, late = 0;
};

constexpr int kKeyDim = 128;
constexpr int kColumns = 16;  // of 128, each of which has its own error: few take little time
constexpr std::array kRounded{DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};
using Losses = std::array<Loss, kRounded.size()>;

// Of one head; values are normal numbers times `v_scale`.
Losses losses(GateDistribution gates, int steps, double v_scale = 1) {
  const DataOptions options{.seed = 6, .gates = gates};
  const auto rows = [&](DataStream stream, int dim) {
    return cubinery::RowSource(options, stream, 0, 0, dim, /*raw=*/true);
  };
  cubinery::RowSource q = rows(DataStream::kQ, kKeyDim), k = rows(DataStream::kK, kKeyDim),
                      v = rows(DataStream::kV, kColumns);
  cubinery::GateSource gate(GateMode::kLog, BetaMode::kGiven, options, 0, 0);
  const auto next = [](cubinery::RowSource& from) {
    const std::vector<float>& row = from.next();
    return std::vector<double>(row.begin(), row.end());
  };
  std::vector<double> exact(std::size_t{kKeyDim} * kColumns);
  std::array<std::vector<double>, kRounded.size()> states;
  states.fill(exact);
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    DecodeRefHead<double> head{.key_dim = kKeyDim,
                               .value_dim = kColumns,
                               .inputs = {.use_qk_l2norm = true},
                               .scale = 1 / std::sqrt(static_cast<double>(kKeyDim)),
                               .q = next(q),
                               .k = next(k),
                               .v = next(v),
                               .gate = {gate.next_gate()},
                               .beta = gate.next_beta()};
    for (double& x : head.v) x *= v_scale;
    std::vector<double> o(kColumns), rounded_o(kColumns);
    gdn_decode_ref(head, exact.data(), o.data());
    for (std::size_t i = 0; i < kRounded.size(); ++i) {
      gdn_decode_ref(head, states[i].data(), rounded_o.data());
      for (double& x : states[i]) x = cubinery::rounded(kRounded[i], static_cast<float>(x));
      double largest = 0, error = 0;
      for (std::size_t j = 0; j < kColumns; ++j) {
        largest = std::max(largest, std::abs(o[j]));
        error = std::max(error, std::abs(rounded_o[j] - o[j]));
      }
      if (step >= 48 && step < 64) losses[i].early += error / largest / 16;
      if (step >= steps - 16) losses[i].late += error / largest / 16;
    }
  }
  return losses;
}

void check_about(double actual, double stated) {
  INFO(actual << ", not " << stated);
  CHECK(std::abs(actual - stated) <= 0.3 * stated);
}

// docs/problems.md states these numbers, measured with all columns.
TEST_CASE("GdnDecodeRef.WhatRoundedStatesLoseIsAsStated", "[cpu]") {
  const auto check_all = [](GateDistribution gates, const Losses& stated) {
    const Losses actual = losses(gates, 1024);
    for (std::size_t i = 0; i < stated.size(); ++i) {
      check_about(actual[i].early, stated[i].early);
      check_about(actual[i].late, stated[i].late);
    }
  };
  check_all(GateDistribution::kQwen, {{{0.006, 0.005}, {0.10, 0.10}, {0.22, 0.21}}});
  check_all(GateDistribution::kUndecayed, {{{0.009, 0.023}, {0.13, 0.33}, {0.25, 0.48}}});
  // Small elements: below 2^-6 e4m3 has fewer bits.
  const auto [strong_bf16, strong_e4m3, strong_e5m2] = losses(GateDistribution::kStrong, 64);
  const auto [small_bf16, small_e4m3, small_e5m2] = losses(GateDistribution::kStrong, 64, 0.1);
  check_about(strong_e4m3.early, 0.05);
  check_about(small_e4m3.early, 0.20);
}

// silu(0) = 0, and silu of a large number the number itself.
TEST_CASE("GdnDecodeRef.AGatedNormByHand", "[cpu]") {
  double o[4] = {3, -1, 1, -1};  // mean of the squares: 3
  gated_rms_ref<double>(OutputNorm::kGatedRms, {2, 2, 5, 0}, {0, 100, 200, 1}, 1.0, o);
  CHECK(o[0] == 0);
  CHECK(o[1] == -100);
  CHECK(o[2] == 500);
  CHECK(o[3] == 0);
}

// sigmoid(0) is a half, that of a large number 1.
TEST_CASE("GdnDecodeRef.ASigmoidGatedNormByHand", "[cpu]") {
  double o[4] = {3, -1, 1, -1};  // mean of the squares: 3
  gated_rms_ref<double>(OutputNorm::kSigmoidGatedRms, {2, 2, 5, 0}, {0, 100, -800, 1}, 1.0, o);
  CHECK(o[0] == 1.5);
  CHECK(o[1] == -1);
  CHECK(o[2] == 0);
  CHECK(o[3] == 0);
}

}  // namespace
