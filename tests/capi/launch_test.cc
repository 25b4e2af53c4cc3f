// Launches through the C ABI on a fake libcuda: what reaches the kernels is what the C++ API sends.
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capi/operators.h"
#include "tests/capi/allocations.h"
#include "tests/capi/dl_views.h"
#include "tests/capi/handles.h"
#include "tests/data/fake_nccl.h"
#include "tests/function_ref.h"
#include "tests/runtime/fake_prefill.h"

namespace cubinery {
namespace {

using test::address;
using test::DlViews;
using test::FakeLaunch;
using test::FakePrefill;

// Kernels of a decode problem with every optional tensor, on the fake driver.
struct FakeDecode {
  gdn::DecodeArgs args(std::int64_t batch) const {
    const auto tensor = [](int at, DType dtype, std::initializer_list<std::int64_t> shape) {
      return Tensor::contiguous(address(at), dtype, shape);
    };
    gdn::DecodeArgs args{.q = tensor(1, DType::kBF16, {batch, 16, 128}),
                         .k = tensor(2, DType::kBF16, {batch, 16, 128}),
                         .v = tensor(3, DType::kBF16, {batch, 32, 128}),
                         .g = tensor(4, DType::kF32, {batch, 32}),
                         .beta = tensor(5, DType::kF32, {batch, 32}),
                         .A_log = tensor(6, DType::kF32, {32}),
                         .dt_bias = tensor(7, DType::kF32, {32}),
                         .o = tensor(8, DType::kBF16, {batch, 32, 128}),
                         .state = tensor(9, DType::kF32, {9, 32, 128, 128}),
                         .state_out = tensor(10, DType::kF32, {8, 32, 128, 128}),
                         .state_indices = tensor(11, DType::kI32, {batch}),
                         .state_out_indices = tensor(12, DType::kI32, {batch})};
    args.q.strides = {10000, 200, 1};
    args.pad_slot_id = 0;
    args.scratch_slot = 7;
    args.z = tensor(13, DType::kBF16, {batch, 32, 128});
    args.norm_weight = tensor(14, DType::kBF16, {128});
    args.scale = 0.25f;
    args.norm_eps = 0.125f;
    args.enable_pdl = true;
    return args;
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};
  test::TempDir dir;
  CubineryDecode decode{
      test::fake_operator(fake, dir,
                          gdn::DecodeProblem{.inputs = {.gate_mode = gdn::GateMode::kComputed},
                                             .states = {.location = gdn::StateLocation::kPool},
                                             .output_norm = gdn::OutputNorm::kGatedRms,
                                             .norm_weight_dtype = DType::kBF16}),
      /*device=*/0};
};

// The same with a convolution in front.
struct FakeConvolvedDecode {
  gdn::DecodeArgs args() const {
    const auto tensor = [](int at, DType dtype, std::initializer_list<std::int64_t> shape) {
      return Tensor::contiguous(address(at), dtype, shape);
    };
    return {.g = tensor(4, DType::kF32, {3, 32}),
            .beta = tensor(5, DType::kF32, {3, 32}),
            .o = tensor(8, DType::kBF16, {3, 32, 128}),
            .state = tensor(9, DType::kF32, {3, 32, 128, 128}),
            .state_out = tensor(10, DType::kF32, {3, 32, 128, 128}),
            .x = tensor(1, DType::kBF16, {3, 8192}),
            .conv_weight = tensor(2, DType::kBF16, {8192, 4}),
            .conv_bias = tensor(3, DType::kBF16, {8192}),
            .conv_state = tensor(11, DType::kBF16, {3, 8192, 3}),
            .conv_state_out = tensor(12, DType::kBF16, {3, 8192, 3})};
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};
  test::TempDir dir;
  CubineryDecode decode{
      test::fake_operator(fake, dir, gdn::DecodeProblem{.conv = {.width = 4, .has_bias = true}}),
      /*device=*/0};
};

// Kernels of a verify problem with every tensor that a step of decode has not, on the fake driver.
struct FakeVerify {
  // `batch` requests of three tokens.
  gdn::VerifyArgs args(std::int64_t batch) const {
    const auto tensor = [](int at, DType dtype, std::initializer_list<std::int64_t> shape) {
      return Tensor::contiguous(address(at), dtype, shape);
    };
    const std::int64_t total = 3 * batch;
    gdn::VerifyArgs args{.q = tensor(1, DType::kBF16, {total, 16, 128}),
                         .k = tensor(2, DType::kBF16, {total, 16, 128}),
                         .v = tensor(3, DType::kBF16, {total, 32, 128}),
                         .g = tensor(4, DType::kF32, {total, 32}),
                         .beta = tensor(5, DType::kF32, {total, 32}),
                         .A_log = tensor(6, DType::kF32, {32}),
                         .dt_bias = tensor(7, DType::kF32, {32}),
                         .o = tensor(8, DType::kBF16, {total, 32, 128}),
                         .cu_seqlens = tensor(9, DType::kI32, {batch + 1}),
                         .accepted = tensor(10, DType::kI64, {batch}),
                         .parents = tensor(15, DType::kI64, {total}),
                         .state = tensor(11, DType::kF32, {9, 32, 128, 128}),
                         .state_out = tensor(12, DType::kF32, {8, 32, 128, 128}),
                         .state_indices = tensor(13, DType::kI32, {batch, 5}),
                         .state_out_indices = tensor(14, DType::kI32, {batch, 4})};
    args.pad_slot_id = 0;
    args.scratch_slot = 7;
    args.z = tensor(16, DType::kBF16, {total, 32, 128});
    args.norm_weight = tensor(17, DType::kF16, {128});
    args.scale = 0.25f;
    args.norm_eps = 0.125f;
    args.enable_pdl = true;
    return args;
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};
  test::TempDir dir;
  CubineryVerify verify{
      test::fake_operator(fake, dir,
                          gdn::VerifyProblem{.inputs = {.gate_mode = gdn::GateMode::kComputed},
                                             .states = {.location = gdn::StateLocation::kPool},
                                             .varlen = true,
                                             .stored_states = gdn::StoredStates::kEvery,
                                             .from_accepted = true,
                                             .accepted_dtype = DType::kI64,
                                             .tree = true,
                                             .parents_dtype = DType::kI64,
                                             .output_norm = gdn::OutputNorm::kSigmoidGatedRms,
                                             .norm_weight_dtype = DType::kF16}),
      /*device=*/0};
};

// Kernels of a commit problem with every tensor, on the fake driver.
struct FakeCommit {
  // Of layer `number`, with other addresses than all others.
  static gdn::CommitLayer layer(int number) {
    const auto tensor = [&](int at, DType dtype, std::initializer_list<std::int64_t> shape) {
      return Tensor::contiguous(address(100 * number + at), dtype, shape);
    };
    return {.k = tensor(1, DType::kBF16, {6, 16, 128}),
            .v = tensor(2, DType::kBF16, {6, 32, 128}),
            .g = tensor(3, DType::kF32, {6, 32}),
            .beta = tensor(4, DType::kF32, {6, 32}),
            .A_log = tensor(5, DType::kF32, {32}),
            .dt_bias = tensor(6, DType::kF32, {32}),
            .state = tensor(7, DType::kF32, {9, 32, 128, 128}),
            .state_out = tensor(8, DType::kF32, {8, 32, 128, 128})};
  }
  // What comes beside layers.
  static gdn::CommitArgs args() {
    return {.accepted = Tensor::contiguous(address(10), DType::kI64, {2}),
            .cu_seqlens = Tensor::contiguous(address(11), DType::kI32, {3}),
            .state_indices = Tensor::contiguous(address(12), DType::kI32, {2}),
            .state_out_indices = Tensor::contiguous(address(13), DType::kI32, {2}),
            .pad_slot_id = 0,
            .scratch_slot = 7,
            .enable_pdl = true};
  }
  gdn::CommitArgs of_layer() const {
    gdn::CommitArgs args = FakeCommit::args();
    args.layer = layer(1);
    return args;
  }
  gdn::CommitArgs of_table() const {
    gdn::CommitArgs args = FakeCommit::args();
    args.layers = Tensor::contiguous(address(14), DType::kI64, {5, 32});
    return args;
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};
  test::TempDir dir;
  CubineryCommit commit{
      test::fake_operator(fake, dir,
                          gdn::CommitProblem{.inputs = {.gate_mode = gdn::GateMode::kComputed},
                                             .states = {.location = gdn::StateLocation::kPool},
                                             .varlen = true,
                                             .accepted_dtype = DType::kI64}),
      /*device=*/0};
};

// Kernels of a convolution problem, on the fake driver; its arguments are those of launches of two
// sequences of 20 tokens in all.
struct FakeConv {
  explicit FakeConv(const gdn::ConvProblem& problem)
      : conv{test::fake_operator(fake, dir, problem), /*device=*/0} {}

  static Tensor tensor(int at, DType dtype, std::initializer_list<std::int64_t> shape) {
    return Tensor::contiguous(address(at), dtype, shape);
  }
  static gdn::ConvArgs shared(std::int64_t channels) {
    gdn::ConvArgs args{.x = tensor(1, DType::kBF16, {20, channels}),
                       .weight = tensor(2, DType::kBF16, {channels, 4}),
                       .bias = tensor(3, DType::kBF16, {channels}),
                       .cu_seqlens = tensor(4, DType::kI64, {3}),
                       .state = tensor(5, DType::kBF16, {9, channels, 3}),
                       .state_out = tensor(6, DType::kBF16, {8, channels, 3}),
                       .state_indices = tensor(7, DType::kI32, {2}),
                       .state_out_indices = tensor(8, DType::kI32, {2}),
                       .pad_slot_id = 0,
                       .scratch_slot = 7,
                       .enable_pdl = true};
    args.x.strides[0] = channels + 16;
    return args;
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};
  test::TempDir dir;
  CubineryConv conv;
};

constexpr gdn::ConvProblem kPackedConv{.has_bias = true,
                                       .states = {.location = gdn::StateLocation::kPool},
                                       .varlen = true,
                                       .cu_seqlens_dtype = DType::kI64};

// y, with a flag for each sequence.
struct FakeFlaggedConv : FakeConv {
  FakeFlaggedConv() : FakeConv(kPackedConv) {}
  static gdn::ConvArgs args() {
    gdn::ConvArgs args = shared(64);
    args.y = tensor(9, DType::kBF16, {20, 64});
    args.has_initial_state = tensor(10, DType::kBool, {2});
    return args;
  }
};

// Checkpoints, of sequences that are known to be short.
struct FakeCheckpointConv : FakeConv {
  FakeCheckpointConv() : FakeConv(problem()) {}
  static gdn::ConvProblem problem() {
    gdn::ConvProblem problem = kPackedConv;
    problem.checkpoints = gdn::Checkpoints::kAfter;
    problem.checkpoint_every = 3;
    return problem;
  }
  static gdn::ConvArgs args() {
    gdn::ConvArgs args = FakeFlaggedConv::args();
    args.checkpoints = tensor(19, DType::kBF16, {6, 64, 3});
    args.checkpoint_cu_starts = tensor(20, DType::kI64, {3});
    args.checkpoint_every = 6;
    args.max_seqlen = 12;
    return args;
  }
};

// Checkpoints at offsets.
struct FakeOffsetsConv : FakeConv {
  FakeOffsetsConv() : FakeConv(problem()) {}
  static gdn::ConvProblem problem() {
    gdn::ConvProblem problem = kPackedConv;
    problem.checkpoints = gdn::Checkpoints::kAt;
    return problem;
  }
  static gdn::ConvArgs args() {
    gdn::ConvArgs args = FakeFlaggedConv::args();
    args.checkpoints = args.state;
    args.checkpoint_offsets = tensor(19, DType::kI32, {2, 4});
    args.checkpoint_slots = tensor(20, problem().states.index_dtype, {2, 4});
    return args;
  }
};

// q, k, v, g and beta, with the number of accepted tokens of each request.
struct FakeSplitConv : FakeConv {
  FakeSplitConv() : FakeConv(problem()) {}
  static gdn::ConvProblem problem() {
    gdn::ConvProblem problem = kPackedConv;
    problem.heads = {.q = 2, .k = 2, .v = 4};
    problem.key_dim = 16;
    problem.value_dim = 32;
    problem.split_qkv = true;
    problem.inputs.gate_mode = gdn::GateMode::kComputed;
    problem.inputs.beta_mode = gdn::BetaMode::kLogit;
    problem.inputs.use_qk_l2norm = true;
    problem.from_accepted = true;
    return problem;
  }
  static gdn::ConvArgs args() {
    gdn::ConvArgs args = shared(2 * 16 + 2 * 16 + 4 * 32);
    args.q = tensor(9, DType::kBF16, {20, 2, 16});
    args.k = tensor(10, DType::kBF16, {20, 2, 16});
    args.v = tensor(11, DType::kBF16, {20, 4, 32});
    args.a = tensor(12, DType::kF32, {20, 4});
    args.b = tensor(13, DType::kF32, {20, 4});
    args.A_log = tensor(14, DType::kF32, {4});
    args.dt_bias = tensor(15, DType::kF32, {4});
    args.g = tensor(16, DType::kF32, {20, 4});
    args.beta = tensor(17, DType::kF32, {20, 4});
    args.accepted = tensor(18, DType::kI32, {2});
    args.scale = 0.25f;
    return args;
  }
};

// Of a call, in this thread.
std::size_t allocations_of(FunctionRef<void()> call) {
  const std::size_t before = test::allocations();
  call();
  return test::allocations() - before;
}

bool same(const test::FakeLaunch& a, const test::FakeLaunch& b) {
  return a.kernel == b.kernel && a.arguments == b.arguments &&
         a.attributes.size() == b.attributes.size() && a.config.gridDimX == b.config.gridDimX &&
         a.config.hStream == b.config.hStream;
}

TEST_CASE("AConvolutionInFrontOfADecodeIsThatOfTheCppApi", "[cpu]") {
  const FakeConvolvedDecode bench;
  const gdn::DecodeArgs args = bench.args();
  REQUIRE(bench.decode.value.launch(nullptr, args).ok());
  DlViews views;
  CubineryDecodeArgs given = views.of(args);
  REQUIRE(cubinery_decode_launch(&bench.decode, nullptr, &given) == CUBINERY_OK);
  REQUIRE(bench.fake->launches.size() == 2);
  CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));
  // A caller that does not know it.
  given.struct_size = offsetof(CubineryDecodeArgs, x);
  CHECK(cubinery_decode_launch(&bench.decode, nullptr, &given) == CUBINERY_INVALID_ARGUMENT);
  CHECK(std::string(cubinery_last_error()) == "gdn_decode: x is missing; accepted: a tensor");
}

TEST_CASE("ADecodeLaunchIsThatOfTheCppApi", "[cpu]") {
  const FakeDecode bench;
  const gdn::DecodeArgs args = bench.args(3);
  const auto stream = reinterpret_cast<Stream>(std::uintptr_t{0x40});
  REQUIRE(bench.decode.value.launch(stream, args).ok());
  DlViews views;
  const CubineryDecodeArgs given = views.of(args);
  REQUIRE(cubinery_decode_launch(&bench.decode, stream, &given) == CUBINERY_OK);
  REQUIRE(bench.fake->launches.size() == 2);
  CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));
}

TEST_CASE("ALaunchAllocatesNothingOfItsOwn", "[cpu]") {
  const FakeDecode bench;
  const gdn::DecodeArgs args = bench.args(3);
  DlViews views;
  const CubineryDecodeArgs given = views.of(args);
  // The fake driver writes launches down, which allocates alike for both.
  bench.fake->launches.reserve(10);
  const auto launch = [&] { CHECK(bench.decode.value.launch(nullptr, args).ok()); };
  const auto launch_c = [&] {
    CHECK(cubinery_decode_launch(&bench.decode, nullptr, &given) == CUBINERY_OK);
  };
  launch();
  CHECK(allocations_of(launch) > 0);
  CHECK(allocations_of(launch_c) == allocations_of(launch));
}

TEST_CASE("APrefillLaunchIsThatOfTheCppApi", "[cpu]") {
  const FakePrefill bench({.states = {.location = gdn::StateLocation::kPool},
                           .varlen = true,
                           .checkpoints = gdn::Checkpoints::kBefore});
  gdn::PrefillArgs args = bench.args(2, 100);
  args.scale = 2.0f;
  args.state_out = args.state;
  args.state_out.data = address(15);
  args.state_out_indices = args.state_indices;
  args.state_out_indices.data = address(16);
  const CubineryPrefill prefill{bench.prefill(), 0};
  std::size_t bytes = 0;
  REQUIRE(cubinery_prefill_workspace_bytes(&prefill, 100, 2, &bytes) == CUBINERY_OK);
  const gdn::Workspace workspace = bench.workspace(2, 100);
  CHECK(bytes == workspace.bytes);

  const FakePrefill::Launched cpp = bench.launched(args, workspace);
  bench.fake->launches.clear();
  DlViews views;
  const CubineryPrefillArgs given = views.of(args);
  REQUIRE(cubinery_prefill_launch(&prefill, nullptr, &given, workspace.data, bytes) == CUBINERY_OK);
  REQUIRE(bench.fake->launches.size() == 2);
  CHECK(same(bench.fake->launches[0], cpp.chunks.value()));
  CHECK(same(bench.fake->launches[1], cpp.scan));

  CHECK(test::refused(cubinery_prefill_launch(&prefill, nullptr, &given, workspace.data, bytes - 1))
            .starts_with("gdn_prefill: workspace has "));

  CubineryPrefillArgs hinted = given;
  hinted.max_seqlen = 101;
  CHECK(test::refused(cubinery_prefill_launch(&prefill, nullptr, &hinted, workspace.data, bytes))
            .starts_with("gdn_prefill: max_seqlen = 101; "));
  hinted.struct_size = offsetof(CubineryPrefillArgs, max_seqlen);  // a caller that does not know it
  CHECK(cubinery_prefill_launch(&prefill, nullptr, &hinted, workspace.data, bytes) == CUBINERY_OK);
}

// The steps and the exchange between them, which a fake NCCL writes down.
TEST_CASE("APrefillOnRanksHasThreeSteps", "[cpu]") {
  gdn::PrefillProblem problem{.varlen = true};
  problem.context_parallel = true;
  const FakePrefill bench(problem);
  const test::FakeNccl nccl(CUBINERY_FAKE_NCCL);
  nccl->rank = 1;
  nccl->count = 3;
  const CubineryContext context{bench.context()};
  const CubineryPrefill prefill{bench.prefill(), 0};
  CubineryRankPrefill* ranks = nullptr;
  REQUIRE(cubinery_rank_prefill_create(&context, &prefill, nccl.comm(), 100, &ranks) ==
          CUBINERY_OK);
  gdn::PrefillArgs args = bench.args(2, 100);
  args.state_out = args.state;
  args.state_out.data = address(15);
  const gdn::Workspace workspace = bench.workspace(2, 100);
  DlViews views;
  const CubineryPrefillArgs given = views.of(args);
  const auto launch = [&](int source, int target) {
    bench.fake->launches.clear();
    nccl->calls.clear();
    return cubinery_rank_prefill_launch(ranks, nullptr, &given, workspace.data, workspace.bytes,
                                        source, target);
  };
  const auto steps = [&] {
    std::vector<int> found;
    for (const FakeLaunch& launched : bench.fake->launches) {
      if (launched.kernel != "gdn_prefill_scan") continue;
      const StepParams step = test::params_of<GdnPrefillScanParams>(launched).segments.step;
      found.push_back(static_cast<int>(step.step) + (step.continues ? 10 : 0));
    }
    return found;
  };
  REQUIRE(launch(0, 2) == CUBINERY_OK);
  CHECK(steps() == std::vector<int>{11, 12, 13});
  const std::string bytes = std::to_string(32 * 128 * 128 * 4);
  CHECK(nccl->calls == std::vector<std::string>{"receive 0 " + bytes, "send 2 " + bytes});
  REQUIRE(launch(-1, -1) == CUBINERY_OK);
  // Sequences of one segment, whose states are known: there is nothing to run again.
  CHECK(steps() == std::vector<int>{1, 2});
  CHECK(nccl->calls.empty());
  CHECK(test::refused(launch(-2, 2)).starts_with("NCCL: source = -2; accepted: another rank of"));
  cubinery_rank_prefill_destroy(ranks);

  CHECK(test::refused(cubinery_rank_prefill_create(&context, &prefill, nccl.comm(), 0, &ranks)) ==
        "timeout_ms is 0; accepted: 1 or more");
  CHECK(ranks == nullptr);
  CHECK(test::refused(cubinery_rank_prefill_create(&context, &prefill, nullptr, 1, &ranks)) ==
        "nccl_comm is NULL; accepted: a pointer");
  nccl->numbers = 1;
  CHECK(test::refused(cubinery_rank_prefill_create(&context, &prefill, nccl.comm(), 1, &ranks))
            .starts_with("gdn_prefill: another rank has another problem than {"));
}

TEST_CASE("AVerifyLaunchIsThatOfTheCppApi", "[cpu]") {
  const FakeVerify bench;
  const gdn::VerifyArgs args = bench.args(2);
  const auto stream = reinterpret_cast<Stream>(std::uintptr_t{0x40});
  REQUIRE(bench.verify.value.launch(stream, args).ok());
  DlViews views;
  const CubineryVerifyArgs given = views.of(args);
  REQUIRE(cubinery_verify_launch(&bench.verify, stream, &given) == CUBINERY_OK);
  REQUIRE(bench.fake->launches.size() == 2);
  CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));

  const auto refusal = [&](FunctionRef<void(CubineryVerifyArgs&)> spoil) {
    CubineryVerifyArgs spoilt = given;
    spoil(spoilt);
    return test::refused(cubinery_verify_launch(&bench.verify, nullptr, &spoilt));
  };
  CHECK(refusal([](auto& a) { a.cu_seqlens = nullptr; }) ==
        "gdn_verify: cu_seqlens is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.accepted = nullptr; }) ==
        "gdn_verify: accepted is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.parents = nullptr; }) ==
        "gdn_verify: parents is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.z = nullptr; }) == "gdn_verify: z is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.struct_size = offsetof(CubineryVerifyArgs, parents); }) ==
        "gdn_verify: parents is missing; accepted: a tensor");  // a caller that does not know it
  CHECK(refusal([&](auto& a) {
          DLTensor* const counts = views.of(args.accepted);
          counts->device = {kDLCUDA, 1};
          a.accepted = counts;
        }) == "gdn_verify: accepted is on device cuda:1; accepted: cuda:0");
  CHECK(refusal([](auto& a) { a.enable_pdl = 2; }) ==
        "gdn_verify: enable_pdl is 2; accepted: 0, 1");
  CHECK(refusal([](auto& a) { a.struct_size += 8; }) ==
        "args->struct_size is 208; accepted: multiples of 8 up to 200, its size in this library");
  CHECK(bench.fake->launches.size() == 2);
}

TEST_CASE("ACommitLaunchIsThatOfTheCppApi", "[cpu]") {
  const FakeCommit bench;
  const auto stream = reinterpret_cast<Stream>(std::uintptr_t{0x40});
  for (const gdn::CommitArgs& args : {bench.of_layer(), bench.of_table()}) {
    bench.fake->launches.clear();
    REQUIRE(bench.commit.value.launch(stream, args).ok());
    DlViews views;
    const CubineryCommitArgs given = views.of(args);
    REQUIRE(cubinery_commit_launch(&bench.commit, stream, &given) == CUBINERY_OK);
    REQUIRE(bench.fake->launches.size() == 2);
    CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));
  }

  DlViews views;
  const auto refusal = [&](FunctionRef<void(CubineryCommitArgs&)> spoil) {
    CubineryCommitArgs spoilt = views.of(bench.of_table());
    spoil(spoilt);
    return test::refused(cubinery_commit_launch(&bench.commit, nullptr, &spoilt));
  };
  CHECK(refusal([](auto& a) { a.layers = nullptr; }) ==
        "gdn_commit: k is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.cu_seqlens = nullptr; }) ==
        "gdn_commit: cu_seqlens is missing; accepted: a tensor");
  CHECK(refusal([&](auto& a) {
          DLTensor* const table = views.of(bench.of_table().layers);
          table->device = {kDLCPU, 0};
          a.layers = table;
        }).starts_with("gdn_commit: layers is on device cpu"));
  CHECK(refusal([](auto& a) { a.enable_pdl = 2; }) ==
        "gdn_commit: enable_pdl is 2; accepted: 0, 1");
  CHECK(refusal([](auto& a) { a.struct_size += 8; }) ==
        "args->struct_size is 152; accepted: multiples of 8 up to 144, its size in this library");
  CHECK(bench.fake->launches.size() == 2);
}

TEST_CASE("ATableIsThatOfTheCppApi", "[cpu]") {
  const FakeCommit bench;
  DlViews views;
  std::vector<CubineryCommitLayer> layers = {views.of(bench.layer(1)), views.of(bench.layer(2))};
  std::vector<std::int64_t> words(2 * CUBINERY_COMMIT_LAYER_WORDS, -1);
  REQUIRE(cubinery_commit_table(&bench.commit, layers.data(), 2, words.data()) == CUBINERY_OK);
  CHECK(words == bench.commit.value.table({bench.layer(1), bench.layer(2)}).value());

  const std::vector<std::int64_t> before(words.size(), -1);
  words = before;
  const auto refusal = [&](std::int64_t count) {
    return test::refused(cubinery_commit_table(&bench.commit, layers.data(), count, words.data()));
  };
  CHECK(refusal(0) == "gdn_commit: layers is empty; accepted: 1 or more");
  CHECK(refusal(-1) == "count is -1; accepted: 0 or more");
  layers[1].v = nullptr;
  CHECK(refusal(2) == "layer 1: gdn_commit: v is missing; accepted: a tensor");
  DLTensor* const elsewhere = views.of(bench.layer(2).v);
  elsewhere->device = {kDLCUDA, 1};
  layers[1].v = elsewhere;
  CHECK(refusal(2) == "layer 1: gdn_commit: v is on device cuda:1; accepted: cuda:0");
  CHECK(words == before);
}

// The arguments of a launch that the C++ API has sent, sent again.
template <class Bench>
void check_conv_launch(const Bench& bench) {
  const gdn::ConvArgs args = bench.args();
  const auto stream = reinterpret_cast<Stream>(std::uintptr_t{0x40});
  REQUIRE(bench.conv.value.launch(stream, args).ok());
  DlViews views;
  const CubineryConvArgs given = views.of(args);
  REQUIRE(cubinery_conv_launch(&bench.conv, stream, &given) == CUBINERY_OK);
  REQUIRE(bench.fake->launches.size() == 2);
  CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));
}

TEST_CASE("AConvLaunchIsThatOfTheCppApi", "[cpu]") {
  check_conv_launch(FakeFlaggedConv());
  check_conv_launch(FakeSplitConv());
  check_conv_launch(FakeCheckpointConv());
  check_conv_launch(FakeOffsetsConv());
}

TEST_CASE("AShorterStructOfAConvHasNoMore", "[cpu]") {
  const FakeFlaggedConv bench;
  DlViews views;
  CubineryConvArgs given = views.of(bench.args());
  given.pad_slot_id = given.scratch_slot = nullptr;
  given.scale = nullptr;
  given.enable_pdl = 0;
  REQUIRE(cubinery_conv_launch(&bench.conv, nullptr, &given) == CUBINERY_OK);
  given.struct_size = offsetof(CubineryConvArgs, checkpoints);
  const std::int64_t slot = 1;
  given.scratch_slot = &slot;
  given.checkpoints = given.y;
  given.max_seqlen = 1;
  given.enable_pdl = 1;
  REQUIRE(cubinery_conv_launch(&bench.conv, nullptr, &given) == CUBINERY_OK);
  CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));
}

TEST_CASE("BadArgumentsOfAConvAreNamed", "[cpu]") {
  const FakeSplitConv bench;
  DlViews views;
  const auto refusal = [&](FunctionRef<void(CubineryConvArgs&)> spoil) {
    CubineryConvArgs spoilt = views.of(bench.args());
    spoil(spoilt);
    return test::refused(cubinery_conv_launch(&bench.conv, nullptr, &spoilt));
  };
  CHECK(refusal([](auto& a) { a.x = nullptr; }) == "gdn_conv: x is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.beta = nullptr; }) ==
        "gdn_conv: beta is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.accepted = nullptr; }) ==
        "gdn_conv: accepted is missing; accepted: a tensor");
  CHECK(refusal([](auto& a) { a.y = a.q; }).starts_with("gdn_conv: y is given; "));
  CHECK(refusal([&](auto& a) {
          a.has_initial_state = views.of(FakeConv::tensor(19, DType::kI32, {2}));
        }) == "gdn_conv: has_initial_state has dtype i32; accepted: bool");
  CHECK(refusal([&](auto& a) {
          DLTensor* const elsewhere = views.of(bench.args().weight);
          elsewhere->device = {kDLCUDA, 1};
          a.weight = elsewhere;
        }) == "gdn_conv: weight is on device cuda:1; accepted: cuda:0");
  CHECK(refusal([](auto& a) { a.enable_pdl = 2; }) == "gdn_conv: enable_pdl is 2; accepted: 0, 1");
  CHECK(refusal([](auto& a) { a.struct_size += 8; }) ==
        "args->struct_size is 280; accepted: multiples of 8 up to 272, its size in this library");
  const float bound = -5;
  CHECK(refusal([&](auto& a) { a.lower_bound = &bound; }) ==
        "gdn_conv: lower_bound is -5; accepted: none, gate_mode is not lower_bound");
  CHECK(bench.fake->launches.empty());
}

TEST_CASE("WithoutAScaleAConvTakesOne", "[cpu]") {
  const FakeFlaggedConv bench;
  gdn::ConvArgs args = bench.args();
  DlViews views;
  CubineryConvArgs given = views.of(args);
  given.scale = nullptr;
  REQUIRE(bench.conv.value.launch(nullptr, args).ok());
  REQUIRE(cubinery_conv_launch(&bench.conv, nullptr, &given) == CUBINERY_OK);
  CHECK(same(bench.fake->launches[0], bench.fake->launches[1]));
}

TEST_CASE("ChoicesAreThoseOfTheCppApi", "[cpu]") {
  char* text = nullptr;
  const auto check = [&](int code, const Choice& chosen) {
    REQUIRE(code == CUBINERY_OK);
    const auto found = nlohmann::json::parse(text);
    cubinery_free_text(text);
    CHECK(found.at("path") == chosen.path);
    CHECK(found.at("configuration") == chosen.configuration);
    CHECK(found.at("rung") == to_string(chosen.rung));
    CHECK(found.at("why") == chosen.why);
    CHECK(found.size() == 4);
  };
  const FakeDecode decode;
  check(cubinery_decode_choice(&decode.decode, 8, &text), decode.decode.value.choice(8));
  CHECK(test::refused(cubinery_decode_choice(&decode.decode, -1, &text)) ==
        "batch is -1; accepted: 0 or more");
  CHECK(text == nullptr);
  CHECK(test::refused(cubinery_decode_choice(nullptr, 1, &text)).starts_with("decode is NULL"));

  const FakePrefill bench({.varlen = true});
  const CubineryPrefill prefill{bench.prefill(), 0};
  check(cubinery_prefill_choice(&prefill, 1000, 4, 900, &text),
        bench.prefill().choice({.tokens = 1000, .sequences = 4, .max_seqlen = 900}));
  CHECK(test::refused(cubinery_prefill_choice(&prefill, 1000, 4, -1, &text)) ==
        "max_seqlen is -1; accepted: 0 or more");

  const FakeVerify verify;
  check(cubinery_verify_choice(&verify.verify, 4, 13, &text),
        verify.verify.value.choice({.requests = 4, .tokens = 13}));
  CHECK(test::refused(cubinery_verify_choice(&verify.verify, -1, 1, &text)) ==
        "requests is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_verify_choice(&verify.verify, 1, -1, &text)) ==
        "tokens is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_verify_choice(nullptr, 1, 1, &text)).starts_with("verify is NULL"));

  const FakeCommit commit;
  check(cubinery_commit_choice(&commit.commit, 36, 4, &text),
        commit.commit.value.choice({.layers = 36, .requests = 4}));
  CHECK(test::refused(cubinery_commit_choice(&commit.commit, -1, 1, &text)) ==
        "layers is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_commit_choice(&commit.commit, 1, -1, &text)) ==
        "requests is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_commit_choice(nullptr, 1, 1, &text)).starts_with("commit is NULL"));

  const FakeFlaggedConv conv;
  check(cubinery_conv_choice(&conv.conv, 4, 100, 64, &text),
        conv.conv.value.choice({.sequences = 4, .tokens = 100, .channels = 64}));
  CHECK(test::refused(cubinery_conv_choice(&conv.conv, -1, 1, 1, &text)) ==
        "sequences is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_conv_choice(&conv.conv, 1, -1, 1, &text)) ==
        "tokens is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_conv_choice(&conv.conv, 1, 1, -1, &text)) ==
        "channels is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_conv_choice(nullptr, 1, 1, 1, &text)).starts_with("conv is NULL"));
}

TEST_CASE("BadArgumentsOfALaunchAreNamed", "[cpu]") {
  const FakeDecode bench;
  const auto refusal = [&](FunctionRef<void(CubineryDecodeArgs&, DlViews&)> spoil) {
    DlViews views;
    CubineryDecodeArgs given = views.of(bench.args(2));
    spoil(given, views);
    const std::string message =
        test::refused(cubinery_decode_launch(&bench.decode, nullptr, &given));
    CHECK(bench.fake->launches.empty());
    return message;
  };
  CHECK(refusal([](auto& a, auto&) { a.q = nullptr; }) ==
        "gdn_decode: q is missing; accepted: a tensor");
  CHECK(refusal([](auto& a, auto&) { a.dt_bias = nullptr; }) ==
        "gdn_decode: dt_bias is missing; accepted: a tensor");
  CHECK(refusal([](auto& a, auto&) { a.z = nullptr; }) ==
        "gdn_decode: z is missing; accepted: a tensor");
  CHECK(refusal([&](auto& a, auto& views) {
          DLTensor* const k = views.of(bench.args(2).k);
          k->device = {kDLCPU, 0};
          a.k = k;
        }) == "gdn_decode: k is on device cpu; accepted: cuda:0");
  CHECK(refusal([](auto& a, auto&) { a.enable_pdl = 2; }) ==
        "gdn_decode: enable_pdl is 2; accepted: 0, 1");
  const float bound = -5;
  CHECK(refusal([&](auto& a, auto&) { a.lower_bound = &bound; }) ==
        "gdn_decode: lower_bound is -5; accepted: none, gate_mode is not lower_bound");
  CHECK(refusal([](auto& a, auto&) { a.struct_size += 8; }) ==
        "args->struct_size is 224; accepted: multiples of 8 up to 216, its size in this library");
}

TEST_CASE("NullsAmongTheArgumentsOfOperatorsAreNamed", "[cpu]") {
  const FakeDecode decode_bench;
  const FakePrefill prefill_bench({});
  const CubineryPrefill prefill{prefill_bench.prefill(), 0};
  const FakeVerify verify_bench;
  const auto names = [](const std::string& name, int code) {
    CHECK(test::refused(code) == name + " is NULL; accepted: a pointer");
  };
  const CubineryDecodeArgs decode_args = CUBINERY_DECODE_ARGS_INIT;
  const CubineryPrefillArgs prefill_args = CUBINERY_PREFILL_ARGS_INIT;
  names("decode", cubinery_decode_launch(nullptr, nullptr, &decode_args));
  names("args", cubinery_decode_launch(&decode_bench.decode, nullptr, nullptr));
  names("prefill", cubinery_prefill_launch(nullptr, nullptr, &prefill_args, nullptr, 0));
  names("args", cubinery_prefill_launch(&prefill, nullptr, nullptr, nullptr, 0));
  names("rank_prefill",
        cubinery_rank_prefill_launch(nullptr, nullptr, &prefill_args, nullptr, 0, -1, -1));
  CubineryRankPrefill* ranks = nullptr;
  names("context", cubinery_rank_prefill_create(nullptr, &prefill, &ranks, 1, &ranks));
  names("rank_prefill", cubinery_rank_prefill_create(nullptr, &prefill, &ranks, 1, nullptr));
  const CubineryVerifyArgs verify_args = CUBINERY_VERIFY_ARGS_INIT;
  names("verify", cubinery_verify_launch(nullptr, nullptr, &verify_args));
  names("args", cubinery_verify_launch(&verify_bench.verify, nullptr, nullptr));
  names("choice", cubinery_verify_choice(&verify_bench.verify, 1, 1, nullptr));
  const FakeCommit commit_bench;
  const CubineryCommitArgs commit_args = CUBINERY_COMMIT_ARGS_INIT;
  const CubineryCommitLayer commit_layer = CUBINERY_COMMIT_LAYER_INIT;
  std::int64_t words[CUBINERY_COMMIT_LAYER_WORDS];
  names("commit", cubinery_commit_launch(nullptr, nullptr, &commit_args));
  names("args", cubinery_commit_launch(&commit_bench.commit, nullptr, nullptr));
  names("commit", cubinery_commit_table(nullptr, &commit_layer, 1, words));
  names("layers", cubinery_commit_table(&commit_bench.commit, nullptr, 1, words));
  names("words", cubinery_commit_table(&commit_bench.commit, &commit_layer, 1, nullptr));
  names("choice", cubinery_commit_choice(&commit_bench.commit, 1, 1, nullptr));
  const FakeFlaggedConv conv_bench;
  const CubineryConvArgs conv_args = CUBINERY_CONV_ARGS_INIT;
  names("conv", cubinery_conv_launch(nullptr, nullptr, &conv_args));
  names("args", cubinery_conv_launch(&conv_bench.conv, nullptr, nullptr));
  names("choice", cubinery_conv_choice(&conv_bench.conv, 1, 1, 1, nullptr));
  std::size_t bytes = 1;
  names("prefill", cubinery_prefill_workspace_bytes(nullptr, 1, 1, &bytes));
  CHECK(bytes == 0);
  names("bytes", cubinery_prefill_workspace_bytes(&prefill, 1, 1, nullptr));
  CHECK(test::refused(cubinery_prefill_workspace_bytes(&prefill, -1, 1, &bytes)) ==
        "tokens is -1; accepted: 0 or more");
  CHECK(test::refused(cubinery_prefill_workspace_bytes(&prefill, 1, -1, &bytes)) ==
        "sequences is -1; accepted: 0 or more");

  CubineryDecode* decode = nullptr;
  std::memset(&decode, 1, sizeof decode);
  names("context", cubinery_decode_create(nullptr, "{}", &decode));
  CHECK(decode == nullptr);
  names("decode", cubinery_decode_create(nullptr, "{}", nullptr));
  names("prefill", cubinery_prefill_create(nullptr, "{}", nullptr));
  names("verify", cubinery_verify_create(nullptr, "{}", nullptr));
  names("commit", cubinery_commit_create(nullptr, "{}", nullptr));
  names("conv", cubinery_conv_create(nullptr, "{}", nullptr));
}

// The whole way: options, context, operator, launch; and the order of destruction does not matter.
TEST_CASE("AnOperatorOutlivesItsContext", "[cpu]") {
  const test::FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const test::TempDir dir;
  test::fake_operator(fake, dir, gdn::DecodeProblem{});  // fills the cache
  const test::OptionsHandle options = test::new_options();
  test::set(options, "offline", "1");
  test::set(options, "driver_path", CUBINERY_FAKE_DRIVER);
  test::set(options, "cache_dir", dir.path());
  CubineryContext* context = nullptr;
  REQUIRE(cubinery_context_create(options.get(), &context) == CUBINERY_OK);
  CHECK(cubinery_context_device(context) == 0);
  CHECK(cubinery_context_sm_count(context) == 132);
  CubineryDecode* decode = nullptr;
  CHECK(test::refused(cubinery_decode_create(context, "{\"key_dim\":1}", &decode))
            .starts_with("gdn_decode: key_dim = 1;"));
  CHECK(test::refused(cubinery_decode_create(context, nullptr, &decode))
            .starts_with("problem is NULL"));
  CubineryPrefill* prefill = nullptr;
  CHECK(cubinery_prefill_create(context, "{}", &prefill) == CUBINERY_NOT_CACHED);
  CHECK(prefill == nullptr);
  CubineryVerify* verify = nullptr;
  CHECK(cubinery_verify_create(context, "{}", &verify) == CUBINERY_NOT_CACHED);
  CHECK(verify == nullptr);
  CubineryCommit* commit = nullptr;
  CHECK(cubinery_commit_create(context, "{}", &commit) == CUBINERY_NOT_CACHED);
  CHECK(commit == nullptr);
  CubineryConv* conv = nullptr;
  CHECK(cubinery_conv_create(context, "{}", &conv) == CUBINERY_NOT_CACHED);
  CHECK(conv == nullptr);
  CHECK(test::refused(cubinery_conv_create(context, "{\"width\":5}", &conv))
            .starts_with("gdn_conv: width = 5;"));
  REQUIRE(cubinery_decode_create(context, "{}", &decode) == CUBINERY_OK);
  cubinery_context_destroy(context);

  gdn::DecodeArgs args{.q = Tensor::contiguous(address(1), DType::kBF16, {0, 16, 128})};
  DlViews views;
  const CubineryDecodeArgs nothing = views.of(args);
  CHECK(cubinery_decode_launch(decode, nullptr, &nothing) == CUBINERY_OK);
  CHECK(fake->contexts == 1);
  cubinery_decode_destroy(decode);
  CHECK(fake->contexts == 0);
}

}  // namespace
}  // namespace cubinery
