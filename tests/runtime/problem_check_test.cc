// The rules that the problems of all operators have in common.
#include "runtime/gdn/shared/problem_check.h"

#include <string>
#include <utility>

#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/gdn/verify/operator.h"
#include "tests/function_ref.h"
#include "tests/runtime/problem_refusal.h"

namespace cubinery::gdn::problem_check_test {
namespace {

template <class Problem>
std::string refusal(FunctionRef<void(Problem&)> change) {
  return test::refusal<Problem>(change);
}

template <class Problem>
std::string op() {
  return std::string(Fields<Problem>::kName) + ": ";
}

TEMPLATE_TEST_CASE("HeadCountsMustDivideTheLargest", "[cpu]", DecodeProblem, PrefillProblem,
                   VerifyProblem, CommitProblem) {
  using P = TestType;
  const std::string divisor =
      "; accepted: a divisor of 32, the largest of q_heads, k_heads and v_heads";
  CHECK(refusal<P>([](P& p) { p.heads.q = 0; }) == op<P>() + "q_heads = 0" + divisor);
  CHECK(refusal<P>([](P& p) { p.heads.q = -16; }) == op<P>() + "q_heads = -16" + divisor);
  CHECK(refusal<P>([](P& p) { p.heads.q = 5; }) == op<P>() + "q_heads = 5" + divisor);
  CHECK(refusal<P>([](P& p) { p.heads.k = 0; }) == op<P>() + "k_heads = 0" + divisor);
  CHECK(refusal<P>([](P& p) {
          p.heads.q = 32;
          p.heads.v = 3;
        }) == op<P>() + "v_heads = 3" + divisor);
  CHECK(refusal<P>([](P& p) { p.heads.q = p.heads.k = p.heads.v = 0; }) ==
        op<P>() +
            "q_heads = 0; accepted: a divisor of 0, the largest of q_heads, k_heads and v_heads");
}

TEMPLATE_TEST_CASE("HeadCountsHaveALimit", "[cpu]", DecodeProblem, PrefillProblem, VerifyProblem,
                   CommitProblem) {
  using P = TestType;
  CHECK(P{.heads = {.q = kMaxHeads, .k = kMaxHeads, .v = kMaxHeads}}.check().ok());
  for (const int heads : {kMaxHeads + 1, 2147483647}) {
    const std::string refused = " = " + std::to_string(heads) + "; accepted: 1 to 65536";
    CHECK(refusal<P>([&](P& p) { p.heads.q = heads; }) == op<P>() + "q_heads" + refused);
    CHECK(refusal<P>([&](P& p) { p.heads.k = heads; }) == op<P>() + "k_heads" + refused);
    CHECK(refusal<P>([&](P& p) { p.heads.v = heads; }) == op<P>() + "v_heads" + refused);
  }
}

TEMPLATE_TEST_CASE("AnUnevenSplitOfValueHeadsIsExplained", "[cpu]", DecodeProblem, PrefillProblem,
                   VerifyProblem, CommitProblem) {
  CHECK(refusal<TestType>([](auto& p) { p.heads.v = 24; }) ==
        op<TestType>() + "v_heads = 24; accepted: a multiple of k_heads = 16");
}

TEMPLATE_TEST_CASE("HeadSizesAreMultiplesOfSixteen", "[cpu]", DecodeProblem, PrefillProblem,
                   VerifyProblem, CommitProblem) {
  using P = TestType;
  const std::string accepted = "; accepted: multiples of 16 from 16 to 256";
  for (const int dim : {-16, 0, 1, 8, 100, 272, 512}) {
    const std::string value = std::to_string(dim) + accepted;
    CHECK(refusal<P>([&](P& p) { p.key_dim = dim; }) == op<P>() + "key_dim = " + value);
    CHECK(refusal<P>([&](P& p) { p.value_dim = dim; }) == op<P>() + "value_dim = " + value);
  }
}

template <class P>
const char* const kOperandDtypes = "f32, bf16, f16";
template <>
const char* const kOperandDtypes<CommitProblem> = "bf16, f16";

template <class P>
const char* const kStateDtypes = "f32, bf16, f16";
template <>
const char* const kStateDtypes<DecodeProblem> = "f32, bf16, f16, f8e4m3, f8e5m2";

TEMPLATE_TEST_CASE("TensorsAreFloatsAndIndicesIntegers", "[cpu]", DecodeProblem, PrefillProblem,
                   VerifyProblem, CommitProblem) {
  using P = TestType;
  const auto refuses = [](const char* name, FunctionRef<void(P&)> change) {
    CHECK(refusal<P>(change) == op<P>() + name + " = i32; accepted: f32, bf16, f16");
  };
  CHECK(refusal<P>([](P& p) { p.dtype = DType::kI32; }) ==
        op<P>() + "dtype = i32; accepted: " + kOperandDtypes<P>);
  if constexpr (requires(P p) { p.output_dtype; }) {
    refuses("output_dtype", [](P& p) { p.output_dtype = DType::kI32; });
  }
  refuses("gate_dtype", [](P& p) { p.inputs.gate_dtype = DType::kI32; });
  refuses("beta_dtype", [](P& p) { p.inputs.beta_dtype = DType::kI32; });
  refuses("a_log_dtype", [](P& p) { p.inputs.a_log_dtype = DType::kI32; });
  refuses("dt_bias_dtype", [](P& p) { p.inputs.dt_bias_dtype = DType::kI32; });
  CHECK(refusal<P>([](P& p) { p.states.dtype = DType::kI32; }) ==
        op<P>() + "state_dtype = i32; accepted: " + kStateDtypes<P>);
  const Status fp8 = P{.states = {.dtype = DType::kF8E4M3}}.check();
  CHECK(fp8.ok() == std::is_same_v<P, DecodeProblem>);
  if (!fp8.ok()) {
    CHECK(fp8.message() == op<P>() + "state_dtype = f8e4m3; accepted: " + kStateDtypes<P>);
  }
  CHECK(refusal<P>([](P& p) { p.states.index_dtype = DType::kBF16; }) ==
        op<P>() + "index_dtype = bf16; accepted: i32, i64");
  CHECK(refusal<P>([](P& p) { p.states.index_dtype = static_cast<DType>(9); }) ==
        op<P>() + "index_dtype = ?9; accepted: i32, i64");
}

TEST_CASE("EveryGateOfAPrefillHasKernels", "[cpu]") {
  for (const Decay decay : {Decay::kHead, Decay::kChannel}) {
    for (const GateMode mode : {GateMode::kNone, GateMode::kLog, GateMode::kAlpha,
                                GateMode::kComputed, GateMode::kLowerBound}) {
      PrefillProblem problem;
      problem.inputs.decay = decay;
      problem.inputs.gate_mode = mode;
      for (const char* arch : {"sm_80", "sm_90a", "sm_120a"}) CHECK(problem.kernels(arch));
    }
  }
}

TEMPLATE_TEST_CASE("AnUnknownArchitectureHasNoKernels", "[cpu]", DecodeProblem, PrefillProblem,
                   VerifyProblem, CommitProblem) {
  const Result<std::vector<KernelSpec>> kernels = TestType{}.kernels("sm_90");
  REQUIRE_FALSE(kernels);
  CHECK(kernels.error().code() == Code::kInvalidArgument);
  CHECK(kernels.error().message().starts_with(op<TestType>() +
                                              "arch = sm_90; accepted: sm_80, sm_86, "));
}

TEMPLATE_TEST_CASE("OtherJsonIsRefusedAsAnArgument", "[cpu]", DecodeProblem, PrefillProblem,
                   VerifyProblem, CommitProblem) {
  const std::string dtypes = kOperandDtypes<TestType>;
  for (const auto& [json, message] :
       {std::pair<std::string, std::string>{"[]", "not a JSON object: []"},
        {R"({"state_layout":"vkv"})", "field state_layout = vkv; accepted: kv, vk"},
        {R"({"dtype":"f64"})", "field dtype = f64; accepted: " + dtypes}}) {
    const Result<TestType> problem = TestType::from_json(json);
    REQUIRE_FALSE(problem);
    CHECK(problem.error().code() == Code::kInvalidArgument);
    CHECK(problem.error().message() == op<TestType>() + message);
  }
  const Result<TestType> padded = TestType::from_json(R"({"padding":"skip"})");
  REQUIRE_FALSE(padded);
  CHECK(padded.error().message().find(" has no field \"padding\"; accepted: q_heads, ") !=
        std::string_view::npos);
  const Result<TestType> misspelt = TestType::from_json(R"({"k_head":16})");
  REQUIRE_FALSE(misspelt);
  const std::string message(misspelt.error().message());
  CHECK(message.find(" has no field \"k_head\"; accepted: q_heads, k_heads, ") != message.npos);
  CHECK(message.ends_with("; did you mean k_heads?"));
}

}  // namespace
}  // namespace cubinery::gdn::problem_check_test
