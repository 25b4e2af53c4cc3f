// Arguments with a decay for each channel of k, and with a lower bound, as they are bound.
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/decode/args.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/operators.h"
#include "runtime/gdn/prefill/args.h"
#include "runtime/gdn/verify/args.h"
#include "runtime/gdn/verify/commit_args.h"
#include "runtime/gdn/verify/operator.h"
#include "tests/catch.h"

namespace cubinery::gdn {
namespace {

constexpr std::int64_t kB = 2, kT = 3;
constexpr int kKey = 64, kValue = 32, kHeads = 4;

alignas(256) char memory[1 << 20];

// Contiguous, 2 sequences of 3 tokens; what the problem has and the table does not call optional.
template <class Args>
Args args_of(const typename Tensors<Args>::Problem& problem, bool has_tokens = true) {
  Args args;
  std::size_t next = 0;
  for (const auto& row : kTensorRows<Args>) {
    if (!row.why_absent(problem).empty() || row.optional == Optional::kEverywhere) continue;
    Tensor& x = row.in(args);
    x = {.data = memory + 256 * ++next, .dtype = row.type(problem)};
    for (const Axis axis : row.axes) {
      if (!has_axis(problem, axis) || (axis == Axis::kTokens && !has_tokens)) continue;
      const bool is_outer = axis == Axis::kSequences || axis == Axis::kSlots;
      x.shape[static_cast<std::size_t>(x.rank++)] =
          is_outer                      ? kB
          : axis == Axis::kTokens       ? kT
          : axis == Axis::kStateRows    ? kValue
          : axis == Axis::kStateColumns ? kKey
          : axis == Axis::kChannels     ? 2 * 2 * kKey + kHeads * kValue
          : axis == Axis::kWidth        ? 4
          : axis == Axis::kColumns      ? 3
                                        : dim_of(problem, axis).extent;
    }
    std::int64_t stride = 1;
    for (auto d = static_cast<std::size_t>(x.rank); d-- > 0;) {
      x.strides[d] = stride;
      stride *= x.shape[d];
    }
  }
  return args;
}

template <class Problem>
Problem problem_of(GateMode mode) {
  Problem problem;
  problem.heads = {.q = 2, .k = 2, .v = kHeads};
  problem.key_dim = kKey;
  problem.value_dim = kValue;
  problem.inputs.decay = Decay::kChannel;
  problem.inputs.gate_mode = mode;
  if constexpr (std::is_same_v<Problem, ConvProblem>) {
    problem.split_qkv = true;
    problem.inputs.beta_mode = BetaMode::kLogit;
  }
  return problem;
}

// "" or what binding refuses.
std::string refusal(const DecodeProblem& problem, const DecodeArgs& args, GdnDecodeParams* p) {
  return std::string(bind_decode(problem, args, kB, p).message());
}
std::string refusal(const PrefillProblem& problem, const PrefillArgs& args, PrefillParams* p) {
  PrefillExtent extent;
  const Status found = prefill_extent(problem, args, prefill_limits(problem, 64), &extent);
  if (!found.ok()) return std::string(found.message());
  return std::string(bind_prefill(problem, args, extent, p).message());
}
std::string refusal(const VerifyProblem& problem, const VerifyArgs& args, GdnVerifyParams* p) {
  LaunchExtent extent;
  const Status found = verify_extent(problem, args, &extent);
  if (!found.ok()) return std::string(found.message());
  return std::string(bind_verify(problem, args, extent, p).message());
}
std::string refusal(const CommitProblem& problem, const CommitArgs& args, GdnCommitParams* p) {
  return std::string(bind_commit(problem, args, p).message());
}

std::string refusal(const ConvProblem& problem, const ConvArgs& args, GdnConvParams* p) {
  ConvExtent extent;
  const Status found = conv_extent(problem, args, &extent);
  if (!found.ok()) return std::string(found.message());
  return std::string(bind_conv(problem, args, extent, p).message());
}

template <class P, class A, class Bound>
struct Kind {
  using Problem = P;
  using Args = A;
  using Params = Bound;
  static constexpr bool kHasTokens = !std::is_same_v<P, DecodeProblem>;
};
using DecodeKind = Kind<DecodeProblem, DecodeArgs, GdnDecodeParams>;
using PrefillKind = Kind<PrefillProblem, PrefillArgs, PrefillParams>;
using VerifyKind = Kind<VerifyProblem, VerifyArgs, GdnVerifyParams>;
using CommitKind = Kind<CommitProblem, CommitArgs, GdnCommitParams>;
using ConvKind = Kind<ConvProblem, ConvArgs, GdnConvParams>;

auto& of_args(auto& args) {
  if constexpr (requires { args.layer; }) {
    return args.layer;
  } else {
    return args;
  }
}
const auto& gates_of(const GdnDecodeParams& p) { return p.gates; }
const auto& gates_of(const PrefillParams& p) { return p.chunks.gates; }
const auto& gates_of(const GdnVerifyParams& p) { return p.gates; }
const auto& gates_of(const GdnCommitParams& p) { return p.layer.gates; }
const auto& gates_of(const GdnConvParams& p) { return p.gates; }

// What a convolution makes g of is a.
auto& decay_of(auto& args) {
  if constexpr (requires { args.a; }) {
    return args.a;
  } else {
    return args.g;
  }
}

TEMPLATE_TEST_CASE("ADecayOfChannelsIsARow", "[cpu]", DecodeKind, PrefillKind, VerifyKind,
                   CommitKind, ConvKind) {
  using Problem = typename TestType::Problem;
  const Problem problem = problem_of<Problem>(GateMode::kComputed);
  const std::string op = std::string(Fields<Problem>::kName) + ": ";
  const auto args = args_of<typename TestType::Args>(problem, TestType::kHasTokens);
  typename TestType::Params params{};
  REQUIRE(refusal(problem, args, &params) == "");
  const auto& gates = gates_of(params);
  CHECK(gates.g.data == decay_of(of_args(args)).data);
  CHECK(gates.g.stride.head == kKey);
  CHECK((gates.A_log.stride == 1 && gates.dt_bias.stride == kKey));
  CHECK(gates.beta.stride.head == 1);

  const auto refused = [&](const auto& change) {
    auto changed = args;
    change(of_args(changed));
    return refusal(problem, changed, &params);
  };
  const std::size_t row = TestType::kHasTokens ? 3 : 2;
  const std::string g = op + (std::is_same_v<Problem, ConvProblem> ? "a" : "g");
  CHECK(refused([&](auto& a) { decay_of(a).strides[row] = 2; }) ==
        g + " has innermost stride 2; accepted: 1");
  CHECK(refused([](auto& a) { a.dt_bias.strides[1] = 4; }) ==
        op + "dt_bias has innermost stride 4; accepted: 1");
  CHECK(refused([](auto& a) { a.dt_bias.shape[1] = 32; }) ==
        op + "dt_bias has shape [4, 32]; accepted: [heads = 4, key_dim = 64]");
  CHECK(refused([](auto& a) { a.dt_bias.rank = 1; }) ==
        op + "dt_bias has shape [4]; accepted: [heads = 4, key_dim = 64]");
  CHECK(refused([](auto& a) { a.A_log.shape[0] = 5; }) ==
        op + "A_log has shape [5]; accepted: [heads = 4]");
  const std::string outer = TestType::kHasTokens ? "2, 3, 4" : "2, 4";
  const std::string dims = TestType::kHasTokens ? "B = 2, T = 3, heads = 4, key_dim = 64]"
                                                : "B = 2, heads = 4, key_dim = 64], or with one "
                                                  "token behind the first dimension";
  CHECK(refused([&](auto& a) { decay_of(a).shape[row] = kValue; }) ==
        g + " has shape [" + outer + ", 32]; accepted: [" + dims);
  CHECK(refused([](auto& a) { --decay_of(a).rank; }) ==
        g + " has shape [" + outer + "]; accepted: [" + dims);
}

TEMPLATE_TEST_CASE("ParametersOfADecayMayBeFlatOrAbsent", "[cpu]", DecodeKind, PrefillKind,
                   VerifyKind, CommitKind, ConvKind) {
  using Problem = typename TestType::Problem;
  const std::string op = std::string(Fields<Problem>::kName) + ": ";
  typename TestType::Params params{};
  const auto with = [&](Decay decay, GateMode mode, const auto& change) {
    Problem problem = problem_of<Problem>(mode);
    problem.inputs.decay = decay;
    auto args = args_of<typename TestType::Args>(problem, TestType::kHasTokens);
    if (mode == GateMode::kLowerBound) args.lower_bound = -5.0f;
    change(of_args(args));
    params = {};
    return refusal(problem, args, &params);
  };
  const auto no_A_log = [](auto& args) { args.A_log = {}; };
  const auto no_dt_bias = [](auto& args) { args.dt_bias = {}; };
  const auto flat = [](auto& args) {
    args.dt_bias = Tensor::contiguous(memory, DType::kF32, {kHeads * kKey});
  };
  for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
    CHECK(with(Decay::kChannel, mode, flat) == "");
    CHECK(gates_of(params).dt_bias.data == memory);
    CHECK(gates_of(params).dt_bias.stride == kKey);
    CHECK(with(Decay::kChannel, mode, no_dt_bias) == "");
    CHECK(gates_of(params).dt_bias.data == nullptr);
    CHECK(with(Decay::kHead, mode, no_dt_bias).starts_with(op + "dt_bias is missing"));
    CHECK(with(Decay::kHead, mode, flat) == op + "dt_bias has shape [256]; accepted: [heads = 4]");
  }
  CHECK(with(Decay::kChannel, GateMode::kLowerBound, no_A_log) == "");
  CHECK(gates_of(params).A_log.data == nullptr);
  CHECK(with(Decay::kChannel, GateMode::kComputed, no_A_log).starts_with(op + "A_log is missing"));
}

TEMPLATE_TEST_CASE("ALowerBoundIsANumberBelowZero", "[cpu]", DecodeKind, PrefillKind, VerifyKind,
                   CommitKind, ConvKind) {
  using Problem = typename TestType::Problem;
  const Problem problem = problem_of<Problem>(GateMode::kLowerBound);
  const std::string op = std::string(Fields<Problem>::kName) + ": lower_bound ";
  auto args = args_of<typename TestType::Args>(problem, TestType::kHasTokens);
  typename TestType::Params params{};
  const auto with = [&](std::optional<float> bound) {
    args.lower_bound = bound;
    return refusal(problem, args, &params);
  };
  CHECK(with(-5.0f) == "");
  CHECK(with({}) == op + "is missing; accepted: -5 to below 0");
  CHECK(with(-5.01f) == op + "is -5.01; accepted: -5 to below 0");
  CHECK(with(0.0f) == op + "is 0; accepted: -5 to below 0");
  CHECK(with(-std::numeric_limits<float>::infinity()) == op + "is -inf; accepted: -5 to below 0");
  CHECK(with(std::numeric_limits<float>::quiet_NaN()) == op + "is nan; accepted: -5 to below 0");
  const Problem other = problem_of<Problem>(GateMode::kComputed);
  args.lower_bound = -5.0f;
  CHECK(refusal(other, args, &params) ==
        op + "is -5; accepted: none, gate_mode is not lower_bound");
}

TEST_CASE("AConvMakesADecayOfChannels", "[cpu]") {
  const ConvProblem problem = problem_of<ConvProblem>(GateMode::kComputed);
  const ConvArgs args = args_of<ConvArgs>(problem);
  GdnConvParams params{};
  REQUIRE(refusal(problem, args, &params) == "");
  CHECK(params.gates.g.stride == TokenStrides{kT * kHeads * kKey, kHeads * kKey, kKey});
  CHECK((params.g.data == args.g.data && params.g.stride == params.gates.g.stride));
  ConvArgs changed = args;
  --changed.g.rank;
  CHECK(refusal(problem, changed, &params) ==
        "gdn_conv: g has shape [2, 3, 4]; accepted: [B = 2, T = 3, heads = 4, key_dim = 64]");
  changed = args;
  changed.g.strides[3] = 2;
  CHECK(refusal(problem, changed, &params) == "gdn_conv: g has innermost stride 2; accepted: 1");
}

// Rows of decays take registers besides those of k and q.
TEMPLATE_TEST_CASE("StatesOfEverySizeHaveKernelsForChannels", "[cpu]", DecodeProblem,
                   VerifyProblem) {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int dim = 16; dim <= 256; dim += 16) {
        auto problem = problem_of<TestType>(GateMode::kLowerBound);
        problem.key_dim = problem.value_dim = dim;
        problem.states.layout = layout;
        problem.states.dtype = dtype;
        CAPTURE(dim, layout, dtype);
        const auto found = kernels_for(problem, "sm_90a", {});
        REQUIRE(found);
        CHECK_FALSE(found->empty());
      }
    }
  }
}

}  // namespace
}  // namespace cubinery::gdn
