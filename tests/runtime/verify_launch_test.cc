// Launches of the verify operator on a fake libcuda: what reaches the kernel, and what is refused.
#include <string>

#include "cubinery/gdn.h"
#include "gdn_verify/fields.h"
#include "tests/catch.h"
#include "tests/function_ref.h"
#include "tests/runtime/fake_operator.h"

namespace cubinery::gdn::verify_launch_test {
namespace {

using test::address;

constexpr std::int64_t kRequests = 2, kTokens = 3, kSteps = 5, kSlots = 9;

// An operator on the fake driver, and good arguments for it: two requests of three tokens.
class VerifyBench {
 public:
  explicit VerifyBench(const VerifyProblem& problem)
      : problem_(problem), verify_(test::fake_operator(fake, dir_, problem)) {}

  const Verify& verify() const { return verify_; }

  VerifyArgs args() const {
    const VerifyProblem& p = problem_;
    const std::int64_t heads = p.heads.count();
    const auto rows = [&](int at, DType dtype, std::int64_t own, std::int64_t dim) {
      return p.varlen ? Tensor::contiguous(address(at), dtype, {kRequests * kTokens, own, dim})
                      : Tensor::contiguous(address(at), dtype, {kRequests, kTokens, own, dim});
    };
    const auto numbers = [&](int at, DType dtype) {
      return p.varlen ? Tensor::contiguous(address(at), dtype, {kRequests * kTokens, heads})
                      : Tensor::contiguous(address(at), dtype, {kRequests, kTokens, heads});
    };
    VerifyArgs args{.q = rows(1, p.dtype, p.heads.q, p.key_dim),
                    .k = rows(2, p.dtype, p.heads.k, p.key_dim),
                    .v = rows(3, p.dtype, p.heads.v, p.value_dim),
                    .g = numbers(5, p.inputs.gate_dtype),
                    .beta = numbers(6, p.inputs.beta_dtype),
                    .o = rows(4, p.output_dtype, heads, p.value_dim)};
    const bool every = p.states.store && p.stored_states == StoredStates::kEvery;
    const auto states = [&](int at, bool steps) {
      const bool pool = p.states.location == StateLocation::kPool;
      if (pool) return matrices(at, {kSlots});
      return steps ? matrices(at, {kRequests, kSteps}) : matrices(at, {kRequests});
    };
    const auto indices = [&](int at, bool steps) {
      return steps ? Tensor::contiguous(address(at), p.states.index_dtype, {kRequests, kSteps})
                   : Tensor::contiguous(address(at), p.states.index_dtype, {kRequests});
    };
    args.state = states(7, p.from_accepted);
    if (p.states.location == StateLocation::kPool) {
      args.state_indices = indices(8, p.from_accepted);
      if (every) args.state_out_indices = indices(9, true);
    } else if (every) {
      args.state_out = states(10, true);
    }
    if (p.from_accepted) args.accepted = Tensor::contiguous(address(11), p.accepted_dtype, {2});
    if (p.varlen) args.cu_seqlens = Tensor::contiguous(address(12), p.cu_seqlens_dtype, {3});
    if (p.output_norm != OutputNorm::kNone) {
      args.z = rows(14, p.dtype, heads, p.value_dim);
      args.norm_weight = Tensor::contiguous(address(15), p.norm_weight_dtype, {p.value_dim});
    }
    if (p.tree) {
      args.parents = p.varlen
                         ? Tensor::contiguous(address(13), p.parents_dtype, {kRequests * kTokens})
                         : Tensor::contiguous(address(13), p.parents_dtype, {kRequests, kTokens});
    }
    return args;
  }

  GdnVerifyParams launched(const VerifyArgs& args) const {
    const Status status = verify_.launch(nullptr, args);
    INFO(status.message());
    REQUIRE(status.ok());
    return test::params_of<GdnVerifyParams>(fake->launches.back());
  }

  // The message with which `spoil` makes good arguments bad.
  std::string refusal(FunctionRef<void(VerifyArgs&)> spoil) const {
    VerifyArgs spoilt = args();
    spoil(spoilt);
    return test::refused(fake, [&] { return verify_.launch(nullptr, spoilt); });
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};

 private:
  Tensor matrices(int at, std::vector<std::int64_t> outer) const {
    const std::int64_t heads = problem_.heads.count(), dim = problem_.key_dim;
    if (outer.size() == 1) {
      return Tensor::contiguous(address(at), problem_.states.dtype, {outer[0], heads, dim, dim});
    }
    return Tensor::contiguous(address(at), problem_.states.dtype,
                              {outer[0], outer[1], heads, dim, dim});
  }

  test::TempDir dir_;
  VerifyProblem problem_;
  Verify verify_;
};

constexpr long long kMatrix = 128 * 128, kSlot = 32 * kMatrix;

TEST_CASE("AVerificationPassesPointersAndStrides", "[cpu]") {
  const VerifyBench bench({});
  const GdnVerifyParams p = bench.launched(bench.args());
  CHECK((p.q.data == address(1) && p.k.data == address(2) && p.v.data == address(3) &&
         p.o.data == address(4) && p.gates.g.data == address(5)));
  CHECK((p.requests == 2 && p.tokens == 3 && p.heads == 32 && p.draft_tokens == 4));
  CHECK(p.q.stride == TokenStrides{3 * 16 * 128, 16 * 128, 128});
  CHECK((p.states.read.data == address(7) && p.states.written.data == address(7)));
  CHECK(p.states.read.stride == StateStrides{kSlot, kMatrix});
  CHECK((p.steps.read_state == 0 && p.steps.written_state == 0));
  CHECK((p.accepted.data == nullptr && p.cu_seqlens.data == nullptr));
}

TEST_CASE("PackedTokensHaveNoBatch", "[cpu]") {
  const VerifyBench bench({.varlen = true});
  VerifyArgs args = bench.args();
  const GdnVerifyParams p = bench.launched(args);
  CHECK((p.requests == 2 && p.tokens == 6 && p.cu_seqlens.data == address(12)));
  CHECK(p.q.stride == TokenStrides{0, 16 * 128, 128});
  args.q = Tensor::contiguous(address(1), DType::kBF16, {1, 6, 16, 128});
  CHECK(bench.launched(args).q.stride == p.q.stride);
}

TEST_CASE("StatesOfStepsHaveOneDimensionMore", "[cpu]") {
  {
    const VerifyBench bench({.stored_states = StoredStates::kEvery, .from_accepted = true});
    VerifyArgs args = bench.args();
    GdnVerifyParams p = bench.launched(args);
    CHECK((p.states.read.data == address(7) && p.states.written.data == address(10)));
    CHECK((p.steps.read_state == kSlot && p.steps.written_state == kSlot));
    CHECK((p.steps.readable == 5 && p.accepted.data == address(11)));
    CHECK(p.states.read.stride == StateStrides{5 * kSlot, kMatrix});
    args.state_out = {};
    p = bench.launched(args);
    CHECK((p.states.written.data == address(7) && p.steps.written_state == kSlot));
  }
  {
    const VerifyBench bench({.from_accepted = true});
    VerifyArgs args = bench.args();
    CHECK(bench.launched(args).steps.written_state == kSlot);  // where it was read
    args.state_out = Tensor::contiguous(address(10), DType::kF32, {2, 32, 128, 128});
    CHECK(bench.launched(args).steps.written_state == 0);
  }
  const VerifyBench bench({.states = {.location = StateLocation::kPool},
                           .stored_states = StoredStates::kEvery,
                           .from_accepted = true});
  VerifyArgs args = bench.args();
  args.state_indices.strides = {7, 2};
  GdnVerifyParams p = bench.launched(args);
  CHECK((p.states.read_indices.data == address(8) && p.states.write_indices.data == address(9)));
  CHECK((p.states.read_indices.stride == 7 && p.steps.read_index == 2));
  CHECK((p.steps.written_index == 1 && p.steps.readable == 5 && p.steps.read_state == 0));
  args.state_out_indices = {};
  p = bench.launched(args);
  CHECK((p.states.write_indices.data == address(8) && p.steps.written_index == 2));
}

TEST_CASE("ParentsAreANumberForEachToken", "[cpu]") {
  {
    const VerifyBench bench({.states = {.store = false}, .tree = true});
    VerifyArgs args = bench.args();
    args.parents.strides = {11, 2};
    const GdnVerifyParams p = bench.launched(args);
    CHECK(p.parents.data == address(13));
    CHECK(p.parents.stride == TokenStrides{11, 2, 0});
  }
  const VerifyBench bench(
      {.states = {.store = false}, .varlen = true, .tree = true, .parents_dtype = DType::kI64});
  VerifyArgs args = bench.args();
  CHECK(bench.launched(args).parents.stride == TokenStrides{0, 1, 0});
  args.parents = Tensor::contiguous(address(13), DType::kI64, {1, 6});
  CHECK(bench.launched(args).parents.stride == TokenStrides{0, 1, 0});
}

TEST_CASE("AnEmptyVerificationLaunchesNothing", "[cpu]") {
  const VerifyBench bench({});
  VerifyArgs args = bench.args();
  args.q.shape[0] = 0;
  CHECK(bench.verify().launch(nullptr, args).ok());
  CHECK(bench.fake->launches.empty());
}

TEST_CASE("VerificationsThatCannotBeAreRefused", "[cpu]") {
  const VerifyBench dense({});
  CHECK(dense.refusal([](VerifyArgs& args) { args.q.shape[1] = 5; }) ==
        "gdn_verify: q has T = 5; accepted: 0 to 4");
  CHECK(dense.refusal([](VerifyArgs& args) { args.q.rank = 3; }) ==
        "gdn_verify: q has 3 dimensions; accepted: 4");
  CHECK(dense.refusal([](VerifyArgs& args) { args.k.shape[1] = 2; }) ==
        "gdn_verify: k has shape [2, 2, 16, 128]; accepted: [B = 2, T = 3, k_heads = 16, key_dim = "
        "128]");
  CHECK(dense.refusal([](VerifyArgs& args) {
    args.accepted = Tensor::contiguous(address(11), DType::kI32, {2});
  }) == "gdn_verify: accepted is given; accepted: no tensor, from_accepted is false");
  CHECK(dense.refusal([](VerifyArgs& args) {
    args.cu_seqlens = Tensor::contiguous(address(12), DType::kI32, {3});
  }) == "gdn_verify: cu_seqlens is given; accepted: no tensor, varlen is false");

  const VerifyBench every({.stored_states = StoredStates::kEvery});
  CHECK(every.refusal([](VerifyArgs& args) { args.state_out = {}; }) ==
        "gdn_verify: state_out is missing; accepted: a tensor, stored_states is every and "
        "from_accepted is false");
  CHECK(every.refusal([](VerifyArgs& args) { args.state_out.shape[1] = 2; }) ==
        "gdn_verify: state_out has shape [2, 2, 32, 128, 128]; accepted: [B = 2, steps = 3, heads "
        "= 32, value_dim = 128, key_dim = 128]");
  CHECK(every.refusal([](VerifyArgs& args) { args.state_out.strides[1] = kSlot - 4; }) ==
        "gdn_verify: state_out is written and has overlapping elements, by stride 524284; "
        "accepted: no overlap");

  // A launch does not know how long its longest packed request is.
  const VerifyBench packed({.varlen = true, .stored_states = StoredStates::kEvery});
  CHECK(packed.refusal([](VerifyArgs& args) { args.state_out.shape[1] = 3; }) ==
        "gdn_verify: state_out has shape [2, 3, 32, 128, 128]; accepted: [N = 2, steps = 4, heads "
        "= 32, value_dim = 128, key_dim = 128]");
  CHECK(packed.refusal([](VerifyArgs& args) { args.cu_seqlens.rank = 2; }) ==
        "gdn_verify: cu_seqlens has 2 dimensions; accepted: 1");
}

TEST_CASE("ParentsThatCannotBeAreRefused", "[cpu]") {
  const VerifyBench chain({});
  CHECK(chain.refusal([](VerifyArgs& args) {
    args.parents = Tensor::contiguous(address(13), DType::kI32, {2, 3});
  }) == "gdn_verify: parents is given; accepted: no tensor, tree is false");
  const VerifyBench dense({.states = {.store = false}, .tree = true});
  CHECK(dense.refusal([](VerifyArgs& args) { args.parents = {}; }) ==
        "gdn_verify: parents is missing; accepted: a tensor");
  CHECK(dense.refusal([](VerifyArgs& args) { args.parents.dtype = DType::kI64; }) ==
        "gdn_verify: parents has dtype i64; accepted: i32");
  CHECK(dense.refusal([](VerifyArgs& args) { args.parents.shape[1] = 4; }) ==
        "gdn_verify: parents has shape [2, 4]; accepted: [B = 2, T = 3]");
  CHECK(dense.refusal([](VerifyArgs& args) { args.parents.rank = 1; }) ==
        "gdn_verify: parents has shape [2]; accepted: [B = 2, T = 3]");
  const VerifyBench packed({.states = {.store = false}, .varlen = true, .tree = true});
  CHECK(packed.refusal([](VerifyArgs& args) { args.parents.shape[0] = 5; }) ==
        "gdn_verify: parents has shape [5]; accepted: [total = 6], or with a dimension of 1 in "
        "front");
}

TEST_CASE("ANormOfAVerificationTakesItsGateAndWeightAsTheyLie", "[cpu]") {
  const VerifyBench bench(
      {.output_norm = OutputNorm::kSigmoidGatedRms, .norm_weight_dtype = DType::kBF16});
  VerifyArgs args = bench.args();
  args.z.strides = {90000, 9000, 200, 1};
  args.norm_weight.strides = {2};
  GdnVerifyParams p = bench.launched(args);
  CHECK((p.norm.z.data == address(14) && p.norm.weight.data == address(15)));
  CHECK((p.norm.z.stride == TokenStrides{90000, 9000, 200} && p.norm.z.group == 1));
  CHECK(p.norm.weight.stride == 2);
  CHECK(p.norm.eps == 1e-6f);
  args.norm_eps = 0.0f;
  CHECK(bench.launched(args).norm.eps == 0);
  const VerifyBench packed({.varlen = true, .output_norm = OutputNorm::kGatedRms});
  args = packed.args();
  CHECK(packed.launched(args).norm.z.stride == TokenStrides{0, 32 * 128, 128});
  args.z = Tensor::contiguous(args.z.data, args.z.dtype, {1, 6, 32, 128});
  CHECK(packed.launched(args).norm.z.stride == TokenStrides{0, 32 * 128, 128});
}

// All columns of a head lie in one block, on both paths.
TEST_CASE("ABlockOfANormedVerificationHasOneHead", "[cpu]") {
  for (const bool tree : {false, true}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      if (tree && dtype == DType::kF32) continue;
      const VerifyBench bench({.dtype = dtype,
                               .states = {.store = false},
                               .tree = tree,
                               .output_norm = OutputNorm::kGatedRms});
      bench.launched(bench.args());
      const CUlaunchConfig& config = bench.fake->launches.back().config;
      CHECK((config.gridDimX == 32 && config.gridDimY == 2));
    }
  }
}

TEST_CASE("ANormOfAVerificationIsRefusedWithNameAndReason", "[cpu]") {
  const VerifyBench bench({.output_norm = OutputNorm::kGatedRms});
  CHECK(bench.refusal([](auto& a) { a.z = {}; }) == "gdn_verify: z is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.z.dtype = DType::kF32; }) ==
        "gdn_verify: z has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.z.shape[2] = 16; }) ==
        "gdn_verify: z has shape [2, 3, 16, 128]; accepted: [B = 2, T = 3, heads = 32, value_dim = "
        "128]");
  CHECK(bench.refusal([](auto& a) { a.z.strides[3] = 2; }) ==
        "gdn_verify: z has innermost stride 2; accepted: 1");
  CHECK(bench.refusal([](auto& a) { a.norm_weight = {}; }) ==
        "gdn_verify: norm_weight is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.norm_weight.shape[0] = 64; }) ==
        "gdn_verify: norm_weight has shape [64]; accepted: [value_dim = 128]");
  CHECK(bench.refusal([](auto& a) { a.norm_eps = -1.0f; }) ==
        "gdn_verify: norm_eps is -1; accepted: finite numbers from 0 up");

  const VerifyBench plain({});
  CHECK(plain.refusal([](auto& a) { a.z = a.o; }) ==
        "gdn_verify: z is given; accepted: no tensor, output_norm is none");
  CHECK(plain.refusal([](auto& a) { a.norm_weight = a.g; }) ==
        "gdn_verify: norm_weight is given; accepted: no tensor, output_norm is none");
  CHECK(plain.refusal([](auto& a) { a.norm_eps = 1e-5f; }) ==
        "gdn_verify: norm_eps is 1e-05; accepted: none, output_norm is none");
}

TEST_CASE("SlotsOfStepsThatCannotBeAreRefused", "[cpu]") {
  const States pool{.location = StateLocation::kPool};
  const VerifyBench every({.states = pool, .stored_states = StoredStates::kEvery});
  CHECK(every.refusal([](VerifyArgs& args) { args.state_out_indices = {}; }) ==
        "gdn_verify: state_out_indices is missing; accepted: a tensor, stored_states is every and "
        "from_accepted is false");
  CHECK(every.refusal([](VerifyArgs& args) { args.state_out_indices.shape[1] = 2; }) ==
        "gdn_verify: state_out_indices has shape [2, 2]; accepted: [B = 2, steps = 3]");

  const VerifyBench accepted({.states = pool, .from_accepted = true});
  CHECK(accepted.refusal([](VerifyArgs& args) { args.accepted = {}; }) ==
        "gdn_verify: accepted is missing; accepted: a tensor");
  CHECK(accepted.refusal([](VerifyArgs& args) { args.accepted.dtype = DType::kI64; }) ==
        "gdn_verify: accepted has dtype i64; accepted: i32");
  CHECK(accepted.refusal([](VerifyArgs& args) { args.state_indices.rank = 1; }) ==
        "gdn_verify: state_indices has shape [2]; accepted: [B = 2, steps = 1]");
  // In place there must be room for all tokens.
  const VerifyBench both(
      {.states = pool, .stored_states = StoredStates::kEvery, .from_accepted = true});
  CHECK(both.refusal([](VerifyArgs& args) {
    args.state_out_indices = {};
    args.state_indices.shape[1] = 2;
  }) == "gdn_verify: state_indices has shape [2, 2]; accepted: [B = 2, steps = 3]");
}

}  // namespace
}  // namespace cubinery::gdn::verify_launch_test
