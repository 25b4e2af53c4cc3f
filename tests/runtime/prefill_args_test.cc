// Arguments that the prefill operator refuses, with name and reason.
#include <cmath>
#include <string>

#include "tests/runtime/fake_prefill.h"

namespace cubinery::gdn {
namespace {

using test::address;
using test::FakePrefill;

TEST_CASE("AProblemIsCheckedBeforeItsKernelsAreMade", "[cpu]") {
  Options options;
  options.offline = true;
  options.device = kNoDevice;
  options.arch = "sm_90a";
  const Result<Prefill> prefill =
      Context::create(options).value().prepare(PrefillProblem{.key_dim = 100});
  REQUIRE_FALSE(prefill);
  CHECK(prefill.error().code() == Code::kInvalidArgument);
  CHECK(prefill.error().message().starts_with("gdn_prefill: key_dim = 100; accepted: "));
}

TEST_CASE("TokensAreRefusedWithNameAndReason", "[cpu]") {
  const FakePrefill bench({});
  CHECK(bench.refusal([](auto& a) { a.q = {}; }) ==
        "gdn_prefill: q is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.k.dtype = DType::kF16; }) ==
        "gdn_prefill: k has dtype f16; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.v.data = nullptr; }) ==
        "gdn_prefill: v is null; accepted: a device pointer");
  CHECK(bench.refusal([](auto& a) { a.q.rank = 3; }) ==
        "gdn_prefill: q has 3 dimensions; accepted: 4");
  CHECK(bench.refusal([](auto& a) { a.o.shape[2] = 16; }) ==
        "gdn_prefill: o has shape [2, 100, 16, 128]; accepted: [B = 2, T = 100, heads = 32, "
        "value_dim = 128]");
  CHECK(bench.refusal([](auto& a) { a.beta.shape[1] = 99; }) ==
        "gdn_prefill: beta has shape [2, 99, 32]; accepted: [B = 2, T = 100, heads = 32]");
  CHECK(bench.refusal([](auto& a) { a.g = {}; }) ==
        "gdn_prefill: g is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.v.strides[3] = 2; }) ==
        "gdn_prefill: v has innermost stride 2; accepted: 1");
  // Inputs may be broadcast.
  PrefillArgs args = bench.args(2, 100);
  args.q.strides[0] = args.k.strides[1] = args.g.strides[2] = 0;
  bench.launched(args, bench.workspace(2, 100));
}

TEST_CASE("TheOutputMustNotFoldOntoItself", "[cpu]") {
  const FakePrefill bench({});
  for (const std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    CHECK(bench.refusal([d](auto& a) { a.o.strides[d] = 0; }) ==
          "gdn_prefill: o is written and has overlapping elements, by stride 0; accepted: no "
          "overlap");
  }
  CHECK(bench.refusal([](auto& a) { a.o.strides[1] -= 1; }) ==
        "gdn_prefill: o is written and has overlapping elements, by stride 4095; accepted: no "
        "overlap");
}

TEST_CASE("PackedTokensAreRefusedWithNameAndReason", "[cpu]") {
  const FakePrefill bench({.varlen = true});
  CHECK(bench.refusal([](auto& a) { a.q.rank = 2; }) ==
        "gdn_prefill: q has 2 dimensions; accepted: 3, or 4 with B = 1");
  CHECK(bench.refusal([](auto& a) { a.k.shape[0] = 99; }) ==
        "gdn_prefill: k has shape [99, 16, 128]; accepted: [total = 100, k_heads = 16, key_dim = "
        "128], or with a dimension of 1 in front");
  const FakePrefill heads_first({.token_layout = TokenLayout::kBHTD, .varlen = true});
  CHECK(heads_first.refusal([](auto& a) { a.g.shape[0] = 16; }) ==
        "gdn_prefill: g has shape [16, 100]; accepted: [heads = 32, total = 100], or with a "
        "dimension of 1 in front");
  CHECK(heads_first.refusal([](auto& a) {
    a.q = Tensor::contiguous(a.q.data, a.q.dtype, {2, 16, 100, 128});
  }) == "gdn_prefill: q has shape [2, 16, 100, 128]; accepted: [q_heads = 16, total = 100, key_dim "
        "= 128], or with a dimension of 1 in front");
}

TEST_CASE("BoundsAreRefusedWithNameAndReason", "[cpu]") {
  const FakePrefill bench({.varlen = true});
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens = {}; }) ==
        "gdn_prefill: cu_seqlens is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens.dtype = DType::kI64; }) ==
        "gdn_prefill: cu_seqlens has dtype i64; accepted: i32");
  CHECK(bench.refusal([](auto& a) {
    a.cu_seqlens = Tensor::contiguous(a.cu_seqlens.data, DType::kI32, {1, 3});
  }) == "gdn_prefill: cu_seqlens has 2 dimensions; accepted: 1");
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens.shape[0] = 0; })
            .starts_with("gdn_prefill: cu_seqlens has N = -1; accepted: 0 to "));
  const FakePrefill dense({});
  CHECK(dense.refusal([](auto& a) {
    a.cu_seqlens = Tensor::contiguous(address(9), DType::kI32, {3});
  }) == "gdn_prefill: cu_seqlens is given; accepted: no tensor, varlen is false");
}

TEST_CASE("SizesThatNoGridCanHoldAreRefused", "[cpu]") {
  const FakePrefill dense({});
  // Half of a grid of 2^31 - 1 blocks: 33554431 chunks of 32 heads.
  const std::int64_t tokens = std::int64_t{33554431} * dense.chunk_size();
  const auto with_shape = [&](std::size_t d, std::int64_t extent) {
    return dense.refusal([=](auto& a) { a.q.shape[d] = extent; });
  };
  for (std::size_t d = 0; d < 4; ++d) {
    CHECK_FALSE(with_shape(d, INT64_MIN).empty());
    CHECK_FALSE(with_shape(d, INT64_MAX).empty());
  }
  CHECK(with_shape(0, -1) == "gdn_prefill: q has B = -1; accepted: 0 to 4194303");
  CHECK(with_shape(0, 4194304) == "gdn_prefill: q has B = 4194304; accepted: 0 to 4194303");
  CHECK(with_shape(1, -1) ==
        "gdn_prefill: q has T = -1; accepted: 0 to " + std::to_string(tokens / 2));
  CHECK(with_shape(1, std::int64_t{1} << 62)
            .starts_with("gdn_prefill: q has T = 4611686018427387904; accepted: 0 to "));
  const FakePrefill packed({.varlen = true});
  CHECK(packed.refusal([](auto& a) { a.q.shape[0] = std::int64_t{1} << 31; }) ==
        "gdn_prefill: q has total = 2147483648; accepted: 0 to " + std::to_string(tokens));
  CHECK(packed.refusal([](auto& a) { a.cu_seqlens.shape[0] = std::int64_t{1} << 40; }) ==
        "gdn_prefill: cu_seqlens has N = 1099511627775; accepted: 0 to 4194303");
  for (const std::int64_t least : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    CHECK(packed.refusal([=](auto& a) { a.cu_seqlens.shape[0] = least; }) ==
          "gdn_prefill: cu_seqlens has N = -1; accepted: 0 to 4194303");
    CHECK_FALSE(packed.refusal([=](auto& a) { a.q.shape[0] = least - (least == 0); }).empty());
  }
  const FakePrefill one({.heads = {.q = 1, .k = 1, .v = 1}, .varlen = true});
  CHECK(one.refusal([](auto& a) { a.q.shape[0] = std::int64_t{1} << 31; }) ==
        "gdn_prefill: q has total = 2147483648; accepted: 0 to 2147483647");
}

TEST_CASE("WhatThePrefillDoesNotUseIsRefused", "[cpu]") {
  const FakePrefill plain({});
  CHECK(plain.refusal([](auto& a) { a.A_log = a.g; }) ==
        "gdn_prefill: A_log is given; accepted: no tensor, gate_mode is neither computed nor "
        "lower_bound");
  CHECK(plain.refusal([](auto& a) { a.dt_bias = a.g; }) ==
        "gdn_prefill: dt_bias is given; accepted: no tensor, gate_mode is neither computed nor "
        "lower_bound");
  CHECK(plain.refusal([](auto& a) { a.state_indices = a.g; }) ==
        "gdn_prefill: state_indices is given; accepted: no tensor, state_location is dense");
  CHECK(plain.refusal([](auto& a) { a.state_out_indices = a.g; }) ==
        "gdn_prefill: state_out_indices is given; accepted: no tensor, state_location is dense");
  CHECK(plain.refusal([](auto& a) { a.checkpoints = a.g; }) ==
        "gdn_prefill: checkpoints is given; accepted: no tensor, checkpoints is none");
  CHECK(plain.refusal([](auto& a) { a.checkpoint_cu_starts = a.g; }) ==
        "gdn_prefill: checkpoint_cu_starts is given; accepted: no tensor, checkpoints is none");
  CHECK(plain.refusal([](auto& a) { a.checkpoint_offsets = a.g; }) ==
        "gdn_prefill: checkpoint_offsets is given; accepted: no tensor, checkpoints is not at");
  CHECK(plain.refusal([](auto& a) { a.checkpoint_slots = a.g; }) ==
        "gdn_prefill: checkpoint_slots is given; accepted: no tensor, checkpoints is not at");
  CHECK(plain.refusal([](auto& a) { a.scratch_slot = 1; }) ==
        "gdn_prefill: scratch_slot is 1; accepted: none, pad_slot_id is absent");
  const FakePrefill bare({.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}});
  const Tensor gate = plain.args(2, 100).g;
  CHECK(bare.refusal([&](auto& a) { a.g = gate; }) ==
        "gdn_prefill: g is given; accepted: no tensor, gate_mode is none");
  CHECK(bare.refusal([&](auto& a) { a.beta = gate; }) ==
        "gdn_prefill: beta is given; accepted: no tensor, beta_mode is one");
  const FakePrefill reader({.states = {.store = false}});
  CHECK(reader.refusal([](auto& a) { a.state_out = a.state; }) ==
        "gdn_prefill: state_out is given; accepted: no tensor, store_state is false");
}

TEST_CASE("PrefillStatesAreRefusedWithNameAndReason", "[cpu]") {
  const FakePrefill bench({.value_dim = 64});
  CHECK(bench.refusal([](auto& a) { a.state.shape[0] = 3; }) ==
        "gdn_prefill: state has shape [3, 32, 64, 128]; accepted: [B = 2, heads = 32, value_dim = "
        "64, key_dim = 128]");
  CHECK(bench.refusal([](auto& a) { a.state.data = reinterpret_cast<void*>(8); }) ==
        "gdn_prefill: state at 0x8 is misaligned; accepted: a multiple of 16 bytes");
  CHECK(bench.refusal([](auto& a) { a.state = {}; }) ==
        "gdn_prefill: state is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) {
    a.state_out = a.state;
    a.state_out.strides[0] = a.state.strides[1];
  }) == "gdn_prefill: state_out is written and has overlapping elements, by stride 8192; accepted: "
        "no overlap");
  const FakePrefill stateless({.states = {.has_initial = false, .store = false}});
  PrefillArgs args = stateless.args(2, 100);
  args.state = {};
  stateless.launched(args, stateless.workspace(2, 100));
}

TEST_CASE("PrefillPoolsAreRefusedWithNameAndReason", "[cpu]") {
  const FakePrefill bench(
      {.states = {.index_dtype = DType::kI64, .location = StateLocation::kPool}});
  CHECK(bench.refusal([](auto& a) {
    a.pad_slot_id = -1;
    a.scratch_slot = 9;
  }) == "gdn_prefill: scratch_slot is 9; accepted: 0 to 8");
  CHECK(bench.refusal([](auto& a) { a.state_indices = {}; }) ==
        "gdn_prefill: state_indices is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.state_indices.dtype = DType::kI32; }) ==
        "gdn_prefill: state_indices has dtype i32; accepted: i64");
  CHECK(bench.refusal([](auto& a) { a.state_indices.shape[0] = 3; }) ==
        "gdn_prefill: state_indices has shape [3]; accepted: [B = 2]");
  CHECK(bench.refusal([](auto& a) { a.state.shape[0] = -1; })
            .starts_with("gdn_prefill: state has shape [-1, 32, 128, 128]; accepted: [slots = 0"));
}

TEST_CASE("CheckpointsAreRefusedWithNameAndReason", "[cpu]") {
  const FakePrefill dense({.checkpoints = Checkpoints::kBefore});
  CHECK(dense.refusal([](auto& a) { a.checkpoints = {}; }) ==
        "gdn_prefill: checkpoints is missing; accepted: a tensor");
  CHECK(dense.refusal([](auto& a) { a.checkpoints.shape[0] = 5; }) ==
        "gdn_prefill: checkpoints has shape [5, 32, 128, 128]; accepted: [rows = 4, heads = 32, "
        "value_dim = 128, key_dim = 128]");
  CHECK(dense.refusal([](auto& a) { a.checkpoints.dtype = DType::kBF16; }) ==
        "gdn_prefill: checkpoints has dtype bf16; accepted: f32");
  CHECK(dense.refusal([](auto& a) { a.checkpoints.strides[0] = a.checkpoints.strides[1]; }) ==
        "gdn_prefill: checkpoints is written and has overlapping elements, by stride 16384; "
        "accepted: no overlap");
  CHECK(dense.refusal([](auto& a) {
    a.checkpoint_cu_starts = Tensor::contiguous(address(11), DType::kI32, {3});
  }) == "gdn_prefill: checkpoint_cu_starts is given; accepted: no tensor, varlen is false");

  const FakePrefill packed({.varlen = true, .checkpoints = Checkpoints::kAfter});
  CHECK(packed.refusal([](auto& a) { a.checkpoint_cu_starts = {}; }) ==
        "gdn_prefill: checkpoint_cu_starts is missing; accepted: a tensor");
  CHECK(packed.refusal([](auto& a) { a.checkpoint_cu_starts.shape[0] = 2; }) ==
        "gdn_prefill: checkpoint_cu_starts has shape [2]; accepted: [N + 1 = 3]");
  CHECK(packed.refusal([](auto& a) { a.checkpoints.shape[0] = -1; })
            .starts_with("gdn_prefill: checkpoints has shape [-1, 32, 128, 128]; accepted: [rows"));
  PrefillArgs args = packed.args(2, 100);
  args.checkpoints.shape[0] = 0;
  args.checkpoints.data = nullptr;
  CHECK(packed.launched(args, packed.workspace(2, 100)).scan_params.checkpoints.slots == 0);
}

TEST_CASE("CheckpointsAtOffsetsAreRefusedWithNameAndReason", "[cpu]") {
  for (const bool varlen : {false, true}) {
    const FakePrefill bench({.states = {.index_dtype = DType::kI64},
                             .varlen = varlen,
                             .checkpoints = Checkpoints::kAt});
    const std::string n = varlen ? "N" : "B";
    CHECK(bench.refusal([](auto& a) { a.checkpoints = {}; }) ==
          "gdn_prefill: checkpoints is missing; accepted: a tensor");
    CHECK(bench.refusal([](auto& a) { a.checkpoints.shape[1] = 31; })
              .starts_with("gdn_prefill: checkpoints has shape [11, 31, 128, 128]; accepted: "
                           "[rows = 11, heads = 32, "));
    CHECK(bench.refusal([](auto& a) {
      a.checkpoint_cu_starts = Tensor::contiguous(address(11), DType::kI32, {3});
    }) == "gdn_prefill: checkpoint_cu_starts is given; accepted: no tensor, checkpoints is at");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_offsets = {}; }) ==
          "gdn_prefill: checkpoint_offsets is missing; accepted: a tensor");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_offsets.dtype = DType::kI64; }) ==
          "gdn_prefill: checkpoint_offsets has dtype i64; accepted: i32");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_offsets.shape[0] = 1; }) ==
          "gdn_prefill: checkpoint_offsets has shape [1, 3]; accepted: [" + n + " = 2, K = 3]");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_offsets.shape[1] = 0; }) ==
          "gdn_prefill: checkpoint_offsets has shape [2, 0]; accepted: [" + n + " = 2, K = 1]");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_offsets.rank = 1; }) ==
          "gdn_prefill: checkpoint_offsets has shape [2]; accepted: [" + n + " = 2, K = 1]");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_slots = {}; }) ==
          "gdn_prefill: checkpoint_slots is missing; accepted: a tensor");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_slots.dtype = DType::kI32; }) ==
          "gdn_prefill: checkpoint_slots has dtype i32; accepted: i64");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_slots.shape[1] = 2; }) ==
          "gdn_prefill: checkpoint_slots has shape [2, 2]; accepted: [" + n + " = 2, K = 3]");
    CHECK(bench.refusal([](auto& a) { a.checkpoint_every = 32; }) ==
          "gdn_prefill: checkpoint_every is 32; accepted: multiples of the problem's 64, up to "
          "2147483647");
  }
}

TEST_CASE("ALaunchChoosesAMultipleOfTheProblemsStride", "[cpu]") {
  const FakePrefill bench({.checkpoints = Checkpoints::kAfter, .checkpoint_every = 32});
  PrefillArgs args = bench.args(2, 1000);
  const auto launched = [&](std::optional<std::int64_t> every, std::int64_t rows) {
    args.checkpoint_every = every;
    args.checkpoints.shape[0] = rows;
    return bench.launched(args, bench.workspace(2, 1000)).scan_params.checkpoint_every;
  };
  CHECK(launched({}, 62) == 32);
  CHECK(launched(32, 62) == 32);
  CHECK(launched(96, 20) == 96);
  CHECK(launched(2147483616, 0) == 2147483616);
  const auto refused = [&](std::int64_t every) {
    return bench.refusal([&](auto& a) { a.checkpoint_every = every; });
  };
  for (const std::int64_t every : {0, -32, 16, 33}) {
    CHECK(refused(every) == "gdn_prefill: checkpoint_every is " + std::to_string(every) +
                                "; accepted: multiples of the problem's 32, up to 2147483647");
  }
  CHECK(refused(std::int64_t{1} << 32).starts_with("gdn_prefill: checkpoint_every is 4294967296"));
  CHECK(bench.refusal([](auto& a) { a.checkpoint_every = 64; })
            .starts_with("gdn_prefill: checkpoints has shape [6, 32, 128, 128]; accepted: [rows = "
                         "2, "));
}

TEST_CASE("AFlagSaysWhetherASequenceHasAnInitialState", "[cpu]") {
  const FakePrefill bench({.states = {.location = StateLocation::kPool}});
  PrefillArgs args = bench.args(2, 100);
  const auto launched = [&] { return bench.launched(args, bench.workspace(2, 100)).scan_params; };
  CHECK(launched().has_initial.data == nullptr);
  args.has_initial_state = Tensor::contiguous(address(15), DType::kBool, {2});
  args.has_initial_state.strides[0] = 3;
  CHECK((launched().has_initial.data == address(15) && launched().has_initial.stride == 3));
  const auto refused = [](const FakePrefill& of, const Tensor& flags) {
    return of.refusal([&](auto& a) { a.has_initial_state = flags; });
  };
  CHECK(refused(bench, Tensor::contiguous(address(15), DType::kI32, {2})) ==
        "gdn_prefill: has_initial_state has dtype i32; accepted: bool");
  CHECK(refused(bench, Tensor::contiguous(address(15), DType::kBool, {3})) ==
        "gdn_prefill: has_initial_state has shape [3]; accepted: [B = 2]");
  CHECK(refused(bench, Tensor::contiguous(nullptr, DType::kBool, {2}))
            .starts_with("gdn_prefill: has_initial_state "));
  const FakePrefill fresh({.states = {.has_initial = false}});
  CHECK(refused(fresh, args.has_initial_state) ==
        "gdn_prefill: has_initial_state is given; accepted: no tensor, the problem's "
        "has_initial_state is false");
}

TEST_CASE("ThePrefillsScaleIsFinite", "[cpu]") {
  const FakePrefill bench({});
  CHECK(bench.refusal([](auto& a) { a.scale = INFINITY; }) ==
        "gdn_prefill: scale is inf; accepted: a finite number");
}

}  // namespace
}  // namespace cubinery::gdn
