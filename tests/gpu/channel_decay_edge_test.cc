// A decay for each channel of k where it has gone wrong elsewhere: one formula of the gate in the
// place of the other, gates of rows that nobody wrote, no tokens, parameters as models store them,
// slots, and decays from none to all.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/far_pool.h"
#include "tests/gpu/numbers.h"
#include "tests/gpu/pool_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::channel_decay_edge_test {
namespace {

using gdn::CommitProblem;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::PrefillProblem;
using gdn::VerifyProblem;

constexpr std::int64_t kRequests = 3;

// Calls check(problem) with that of each operator.
template <class Check>
void for_each_operator(GateMode mode, const Check& check) {
  check(with_channels(small_problem(), mode));
  check(with_channels(small_verify(), mode));
  check(with_channels(small_commit(), mode));
  check(with_channels(small_prefill(), mode));
}

DecodeCase case_of(const DecodeProblem& problem, const CaseOptions& options = {.seed = seed()}) {
  return {problem, kRequests, options};
}
VerifyCase case_of(const VerifyProblem& problem, const CaseOptions& options = {.seed = seed()}) {
  return {problem, uniform(kRequests, 5), options};
}
PrefillCase case_of(const PrefillProblem& problem, const CaseOptions& options = {.seed = seed()}) {
  return {problem, uniform(kRequests, 75), options};
}
CommitCase case_of(const CommitProblem& problem, const CaseOptions& options = {.seed = seed()}) {
  return {problem, uniform(kRequests, 5), options};
}

std::vector<gdn::Decode> operators_of(const DecodeProblem& problem) {
  return {prepare(problem, {kRequests})};
}
template <class Problem>
auto operators_of(const Problem& problem) {
  return on_every_path(problem);
}

// Numbers of a tensor in f32, as gates and their parameters are here.
std::vector<float> numbers_at(const GdnCase& one, const GdnCase::Place& place, int count) {
  std::vector<float> numbers(idx(count));
  std::memcpy(numbers.data(), one.memory()[place.piece].data() + place.byte,
              numbers.size() * sizeof(float));
  return numbers;
}
void put(GdnCase* one, const GdnCase::Place& place, const std::vector<float>& numbers) {
  std::memcpy(one->at(place), numbers.data(), numbers.size() * sizeof(float));
}

// Calls of(n, t, h) for the tokens of all heads.
template <class Function>
void for_each_token(const GdnCase& one, const Function& of) {
  for (std::int64_t n = 0; n < one.sequences(); ++n) {
    for (std::int64_t t = 0; t < one.length(n); ++t) {
      for (std::int64_t h = 0; h < one.problem().heads.count(); ++h) of(n, t, h);
    }
  }
}
// Gates become of(n, t, h).
template <class Function>
void put_gates(GdnCase* one, const Function& of) {
  for_each_token(*one, [&](std::int64_t n, std::int64_t t, std::int64_t h) {
    put(one, one->row_at(TensorId::kG, n, t, h), of(n, t, h));
  });
}
// Those of a token and its write strength become memory that nobody wrote.
void poison_gates(GdnCase* one, std::int64_t n, std::int64_t t) {
  for (std::int64_t h = 0; h < one->problem().heads.count(); ++h) {
    for (const auto& [tensor, count] :
         {std::pair{TensorId::kG, one->problem().key_dim}, std::pair{TensorId::kBeta, 1}}) {
      std::fill_n(one->at(one->row_at(tensor, n, t, h)), idx(count) * sizeof(float), kPoison);
    }
  }
}

// The largest difference of new states, relative to the largest element.
double state_difference(const GdnCase& one, const GdnMemory& after,
                        std::span<const GdnReference> expected) {
  double difference = 0, largest = 0;
  for (std::int64_t n = 0; n < one.sequences(); ++n) {
    for (std::int64_t h = 0; h < one.problem().heads.count(); ++h) {
      const auto state = one.matrix_values<double>(after, one.target(), one.row(n).write, h);
      const auto& of = expected[idx(n * one.problem().heads.count() + h)].state;
      for (std::size_t i = 0; i < state.size(); ++i) {
        const double error = std::abs(state[i] - of[i]);
        difference = std::isnan(error) ? INFINITY : std::max(difference, error);
        largest = std::max(largest, std::abs(of[i]));
      }
    }
  }
  return difference / largest;
}

// Of a + dt_bias about -2 to 2 and exp(A_log) about 1 both formulas have decays that tell, and
// others.
TEST_CASE("ChannelDecay.ALowerBoundIsNoClampedSoftplus", "[gpu]") {
  for_each_operator(GateMode::kLowerBound, [](auto problem) {
    // Prefill rounds products of decays to its operands' type.
    if constexpr (requires { problem.segments; }) problem.dtype = DType::kF32;
    const CaseOptions options{.seed = seed(), .gates = GateDistribution::kInit};
    auto bounded = case_of(problem, options);
    const int dim = problem.key_dim;
    for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
      put(&bounded, bounded.vector_at(TensorId::kALog, h), {0.25f * static_cast<float>(h) - 0.5f});
      std::vector<float> dt_bias(idx(dim));
      for (int d = 0; d < dim; ++d) dt_bias[idx(d)] = 0.5f - static_cast<float>(d) / 64;
      put(&bounded, bounded.vector_at(TensorId::kDtBias, h), dt_bias);
    }
    // States by gates that are given as formula(exp(A_log), a + dt_bias).
    const auto by = [&](const auto& formula) {
      auto given = case_of(with_channels(problem, GateMode::kLog), options);
      put_gates(&given, [&](std::int64_t n, std::int64_t t, std::int64_t h) {
        auto gates = numbers_at(bounded, bounded.row_at(TensorId::kG, n, t, h), dim);
        const auto dt_bias = numbers_at(bounded, bounded.vector_at(TensorId::kDtBias, h), dim);
        const double rate =
            std::exp(numbers_at(bounded, bounded.vector_at(TensorId::kALog, h), 1)[0]);
        for (std::size_t d = 0; d < gates.size(); ++d) {
          gates[d] = static_cast<float>(formula(rate, double{gates[d]} + dt_bias[d]));
        }
        return gates;
      });
      return given.references();
    };
    const auto sigmoid = by([](double rate, double x) { return -5 / (1 + std::exp(-rate * x)); });
    const auto softplus =
        by([](double rate, double x) { return std::max(-rate * std::log1p(std::exp(x)), -5.0); });
    for (const auto& launched : operators_of(problem)) {
      const GdnMemory after = run(bounded, launched);
      INFO("problem " << problem.to_json());
      CHECK(state_difference(bounded, after, sigmoid) < 1e-4);
      CHECK(state_difference(bounded, after, softplus) > 1e-2);
    }
  });
}

TEST_CASE("ChannelDecay.ADecayThatChannelsShareIsThatOfAHead", "[gpu]") {
  for (const GateMode mode :
       {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed, GateMode::kLowerBound}) {
    for_each_operator(mode, [](auto problem) {
      if constexpr (requires { problem.output_dtype; }) problem.output_dtype = DType::kF32;
      auto one = case_of(problem);
      problem.inputs.decay = gdn::Decay::kHead;
      const auto of_heads = case_of(problem);
      const auto shared = [&](const GdnCase::Place& place) {
        return std::vector<float>(idx(problem.key_dim), numbers_at(of_heads, place, 1)[0]);
      };
      put_gates(&one, [&](std::int64_t n, std::int64_t t, std::int64_t h) {
        return shared(of_heads.row_at(TensorId::kG, n, t, h));
      });
      if (gdn::is_computed(problem.inputs.gate_mode)) {
        for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
          put(&one, one.vector_at(TensorId::kDtBias, h),
              shared(of_heads.vector_at(TensorId::kDtBias, h)));
        }
      }
      const std::vector<GdnReference> expected = of_heads.references();
      for (const auto& launched : operators_of(one.problem())) {
        const GdnVerdict verdict = one.check(run(one, launched), expected);
        INFO("problem " << one.problem().to_json() << "\n"
                        << text(verdict.errors.o, "o") << "\n"
                        << text(verdict.errors.state, "state") << "\n"
                        << verdict.fault);
        CHECK(verdict.ok());
      }
    });
  }
}

// Given as logarithms: each alone, then one beside the other.
TEST_CASE("ChannelDecay.GatesFromNoDecayToNothingLeft", "[gpu]") {
  constexpr std::array kGates{-0.0f, -1e-8f, -88.0f, -1e4f};
  const auto check = [&](const auto& problem) {
    for (std::size_t which = 0; which <= kGates.size(); ++which) {
      auto one = case_of(problem);
      put_gates(&one, [&](std::int64_t, std::int64_t t, std::int64_t h) {
        std::vector<float> gates(idx(problem.key_dim));
        for (std::size_t d = 0; d < gates.size(); ++d) {
          gates[d] = kGates[which < kGates.size() ? which : (d + idx(t + h)) % kGates.size()];
        }
        return gates;
      });
      for (const auto& launched : operators_of(problem)) {
        expect_good(one, run(one, launched),
                    "gates " + std::to_string(which) + ", problem " + problem.to_json());
      }
    }
  };
  for_each_operator(GateMode::kLog, check);
  VerifyProblem tree = with_channels(small_verify(), GateMode::kLog);
  tree.states.store = false;
  tree.tree = true;
  check(tree);
}

// Of packed requests, of which the second is padding.
TEST_CASE("ChannelDecay.GatesOfPaddingDoNotMatter", "[gpu][sanitize]") {
  const auto check = [](auto one, const auto& operators) {
    for (std::int64_t t = 0; t < one.length(1); ++t) poison_gates(&one, 1, t);
    for (const auto& launched : operators) {
      expect_good(one, run(one, launched), "problem " + one.problem().to_json());
    }
  };
  const CaseShape shape{.lengths = {3, 5, 2}, .lead = 2, .tail = 1};
  for (const Padding& padding : {Padding{.slot_id = 0}, Padding{.slot_id = -1, .zero = true}}) {
    const CaseOptions options{.seed = seed(), .padding = padding, .padded = 1};
    for (const GateMode mode : {GateMode::kLog, GateMode::kLowerBound}) {
      DecodeProblem decode = with_channels(small_problem(), mode);
      decode.states.location = gdn::StateLocation::kPool;
      check(case_of(decode, options), operators_of(decode));
      const VerifyProblem verify = as_packed_pool(with_channels(small_verify(), mode));
      check(VerifyCase(verify, shape, options), operators_of(verify));
      const CommitProblem commit = as_packed_pool(with_channels(small_commit(), mode));
      check(CommitCase(commit, shape, options), operators_of(commit));
      const PrefillProblem prefill = as_packed_pool(with_channels(small_prefill(), mode));
      check(PrefillCase(prefill, shape, options), operators_of(prefill));
    }
  }
}

TEST_CASE("ChannelDecay.GatesOfRejectedTokensDoNotMatter", "[gpu]") {
  const std::vector<std::int64_t> accepted = {2, 0, 5};
  const Numbers counts(DType::kI32, {kRequests}, accepted);
  const CommitProblem problem = with_channels(small_commit());
  const CommitCase whole = case_of(problem);
  CommitCase poisoned = case_of(problem);
  for_each_token(poisoned, [&](std::int64_t n, std::int64_t t, std::int64_t) {
    if (t >= accepted[idx(n)]) poison_gates(&poisoned, n, t);
  });
  for (const gdn::Commit& commit : operators_of(problem)) {
    const auto committed = [&](const CommitCase& one) {
      gdn::CommitArgs args = one.args();
      args.accepted = counts.tensor();
      return run(one, commit, args);
    };
    const GdnMemory expected = committed(whole), found = committed(poisoned);
    CHECK(same_bytes(poisoned.bytes(found, TensorId::kState),
                     whole.bytes(expected, TensorId::kState)));
    CHECK_FALSE(same_bytes(whole.bytes(expected, TensorId::kState),
                           whole.bytes(whole.memory(), TensorId::kState)));
  }
}

TEST_CASE("ChannelDecay.RequestsWithoutTokens", "[gpu]") {
  for (const int most : {4, 8, 16}) {  // of the kinds of kernels
    const std::vector<CaseShape> shapes{
        {.lengths = {0, 3, 0, most, 1, 0}, .lead = 3, .tail = 2},
        {.lengths = {0, 0}},
    };
    VerifyProblem verify = as_packed_pool(with_channels(small_verify()));
    CommitProblem commit = as_packed_pool(with_channels(small_commit()));
    verify.draft_tokens = commit.draft_tokens = most;
    run_cases(std::vector{verify}, shapes);
    run_cases(std::vector{commit}, shapes);
    verify.states.store = false;
    run_cases(std::vector{verify}, shapes);
  }
}

TEST_CASE("ChannelDecay.TakesTensorsAsTheyLie", "[gpu]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    const CaseOptions options{.placement = placement};
    run_case(with_channels(small_problem()), kRequests, options);
    run_case(with_channels(small_verify()), uniform(kRequests, 5), options);
    run_case(as_packed_pool(with_channels(small_verify())), uniform(kRequests, 5), options);
    run_case(with_channels(small_commit()), uniform(kRequests, 5), options);
    run_case(as_packed_pool(with_channels(small_commit())), uniform(kRequests, 5), options);
  }
}

auto& parameters_of(auto& args) {
  if constexpr (requires { args.layer; }) {
    return args.layer;
  } else {
    return args;
  }
}

// dt_bias is flat, and A_log a part of what all GPUs have together.
TEST_CASE("ChannelDecay.ParametersAsModelsStoreThem", "[gpu]") {
  for_each_operator(GateMode::kLowerBound, [](const auto& problem) {
    const auto one = case_of(problem);
    const std::int64_t heads = problem.heads.count();
    const std::size_t part = idx(heads) * sizeof(float);
    const DeviceBuffer A_log(gpu(), 3 * part);
    A_log.upload(one.bytes(one.memory(), TensorId::kALog), part);
    auto args = one.args();
    auto& parameters = parameters_of(args);
    parameters.A_log =
        Tensor::contiguous(static_cast<std::byte*>(A_log.data()) + part, DType::kF32, {heads});
    parameters.dt_bias =
        Tensor::contiguous(parameters.dt_bias.data, DType::kF32, {heads * problem.key_dim});
    for (const auto& launched : operators_of(problem)) {
      CHECK(first_difference(run(one, launched, args), run(one, launched)) == "");
    }
  });
}

CaseShape first(std::int64_t requests) { return cycle(requests, {5, 1, 0, 3}); }

TEST_CASE("ChannelDecay.EveryPaddingPolicy", "[gpu][sanitize][slow]") {
  DecodeProblem decode = with_channels(small_problem());
  decode.states.location = gdn::StateLocation::kPool;
  const auto requests = [](std::int64_t count) { return count; };
  run_padding_policies(decode, requests);
  run_padded_write_indices(decode, requests);
  const VerifyProblem verify = as_packed_pool(with_channels(small_verify()));
  run_padding_policies(verify, first);
  run_padded_write_indices(verify, first);
  const CommitProblem commit = as_packed_pool(with_channels(small_commit()));
  run_padding_policies(commit, first);
  run_padded_write_indices(commit, first);
}

TEST_CASE("ChannelDecay.SlotsBeyond32BitOffsets", "[gpu][big]") {
  constexpr DType kDtypes[] = {DType::kF32};
  expect_far_pools_work<DecodeProblem>(
      [](const DecodeProblem& problem) { return DecodeCase(problem, 4, near_options()); }, kDtypes,
      with_channels(DecodeProblem{}));
  expect_far_pools_work<VerifyProblem>(
      [](const VerifyProblem& problem) {
        return VerifyCase(problem, uniform(4, 2), near_options());
      },
      kDtypes, with_channels(VerifyProblem{}));
  expect_far_pools_work<CommitProblem>(
      [](const CommitProblem& problem) {
        return CommitCase(problem, uniform(4, 2), near_options());
      },
      kDtypes, with_channels(CommitProblem{}));
}

}  // namespace
}  // namespace cubinery::test::channel_decay_edge_test
