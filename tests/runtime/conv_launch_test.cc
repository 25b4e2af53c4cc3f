// Launches of the convolution on a fake libcuda: what reaches the kernel, and what is refused.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "cubinery/gdn.h"
#include "gdn_conv/fields.h"
#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/cost.h"
#include "runtime/gdn/conv/operator.h"
#include "tests/catch.h"
#include "tests/function_ref.h"
#include "tests/runtime/fake_operator.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery::gdn::conv_launch_test {
namespace {

using test::address;

constexpr std::int64_t kSequences = 2, kTokens = 5, kChannels = 512, kSlots = 9;

// What a launch has of each.
struct Sizes {
  std::int64_t sequences = kSequences;
  std::int64_t tokens = kTokens;  // of each
  std::int64_t channels = kChannels;
};

// An operator on the fake driver, and good arguments for it.
class ConvBench {
 public:
  explicit ConvBench(const ConvProblem& problem)
      : problem_(problem), conv_(test::fake_operator(fake, dir_, problem)) {}

  const Conv& conv() const { return conv_; }

  ConvArgs args(Sizes sizes = {}) const {
    const ConvProblem& p = problem_;
    if (p.split_qkv) sizes.channels = split_channels(p);
    ConvArgs args{
        .x = rows(1, p.dtype, sizes, sizes.channels),
        .weight = Tensor::contiguous(address(2), p.weight_dtype, {sizes.channels, p.width})};
    if (p.has_bias) args.bias = Tensor::contiguous(address(3), p.weight_dtype, {sizes.channels});
    if (p.split_qkv) {
      args.q = rows(5, p.dtype, sizes, p.heads.q, p.key_dim);
      args.k = rows(6, p.dtype, sizes, p.heads.k, p.key_dim);
      args.v = rows(7, p.dtype, sizes, p.heads.v, p.value_dim);
    } else {
      args.y = rows(4, p.dtype, sizes, sizes.channels);
    }
    add_gates(sizes, &args);
    add_states(sizes, &args);
    return args;
  }

  GdnConvParams launched(const ConvArgs& args) const {
    const Status status = conv_.launch(nullptr, args);
    INFO(status.message());
    REQUIRE(status.ok());
    return test::params_of<GdnConvParams>(fake->launches.back());
  }

  // The key of the kernel that a launch of this size runs on tensors that lie in vectors.
  GdnConvKey key(const ConvSize& size) const {
    const std::string launched = conv_.kernel(size).info().canonical;
    for (const GdnConvKey& key : test::conv_keys(problem_)) {
      if (canonical(key) == launched) return key;
    }
    FAIL(launched);
    return {};
  }

  // The message with which `spoil` makes good arguments bad.
  std::string refusal(FunctionRef<void(ConvArgs&)> spoil) const {
    ConvArgs spoilt = args();
    spoil(spoilt);
    return test::refused(fake, [&] { return conv_.launch(nullptr, spoilt); });
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};

 private:
  // [B, T, outer, inner] without `inner` where it is 0; packed [total, ...].
  Tensor rows(int at, DType dtype, const Sizes& sizes, std::int64_t outer,
              std::int64_t inner = 0) const {
    const std::int64_t total = sizes.sequences * sizes.tokens;
    if (problem_.varlen) {
      return inner == 0 ? Tensor::contiguous(address(at), dtype, {total, outer})
                        : Tensor::contiguous(address(at), dtype, {total, outer, inner});
    }
    return inner == 0
               ? Tensor::contiguous(address(at), dtype, {sizes.sequences, sizes.tokens, outer})
               : Tensor::contiguous(address(at), dtype,
                                    {sizes.sequences, sizes.tokens, outer, inner});
  }

  void add_gates(const Sizes& sizes, ConvArgs* args) const {
    const Inputs& inputs = problem_.inputs;
    const std::int64_t heads = problem_.heads.count();
    if (writes_g(problem_)) {
      const bool has_rows = inputs.decay == Decay::kChannel;
      const std::int64_t row = has_rows ? problem_.key_dim : 0;
      args->a = rows(8, inputs.gate_dtype, sizes, heads, row);
      args->A_log = Tensor::contiguous(address(9), inputs.a_log_dtype, {heads});
      args->dt_bias = has_rows ? Tensor::contiguous(address(10), inputs.dt_bias_dtype, {heads, row})
                               : Tensor::contiguous(address(10), inputs.dt_bias_dtype, {heads});
      args->g = rows(11, DType::kF32, sizes, heads, row);
      if (inputs.gate_mode == GateMode::kLowerBound) args->lower_bound = -5.0f;
    }
    if (!writes_beta(problem_)) return;
    args->b = rows(12, inputs.beta_dtype, sizes, heads);
    args->beta = rows(13, DType::kF32, sizes, heads);
  }

  void add_states(const Sizes& sizes, ConvArgs* args) const {
    const ConvStates& states = problem_.states;
    const bool pool = states.location == StateLocation::kPool;
    const std::int64_t slots = pool ? kSlots : sizes.sequences;
    const std::int64_t columns = state_columns(problem_);
    if (states.has_initial || states.store) {
      args->state =
          states.layout == ConvStateLayout::kColumns
              ? Tensor::contiguous(address(14), states.dtype, {slots, sizes.channels, columns})
              : Tensor{.data = address(14),
                       .dtype = states.dtype,
                       .rank = 3,
                       .shape = {slots, sizes.channels, columns},
                       .strides = {columns * sizes.channels, 1, sizes.channels}};
    }
    const auto numbers = [&](int at, DType dtype, std::int64_t count) {
      return Tensor::contiguous(address(at), dtype, {count});
    };
    if (pool) args->state_indices = numbers(15, states.index_dtype, sizes.sequences);
    if (problem_.varlen) {
      args->cu_seqlens = numbers(16, problem_.cu_seqlens_dtype, sizes.sequences + 1);
    }
    if (problem_.from_accepted) {
      args->accepted = numbers(17, problem_.accepted_dtype, sizes.sequences);
    }
    if (problem_.circular_state) {
      args->cache_seqlens = numbers(18, DType::kI32, sizes.sequences);
    }
  }

  test::TempDir dir_;
  ConvProblem problem_;
  Conv conv_;
};

// 2 heads of q and k, 4 of v, of 64 and 32: 384 channels.
ConvProblem split_problem() {
  return {.heads = {.q = 2, .k = 2, .v = 4}, .key_dim = 64, .value_dim = 32, .split_qkv = true};
}

ConvProblem gated_problem() {
  ConvProblem problem = split_problem();
  problem.inputs.gate_mode = GateMode::kComputed;
  problem.inputs.beta_mode = BetaMode::kLogit;
  problem.inputs.gate_dtype = DType::kBF16;
  problem.inputs.beta_dtype = DType::kF16;
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

// A decay for each of 64 channels.
ConvProblem row_problem() {
  ConvProblem problem = gated_problem();
  problem.inputs.decay = Decay::kChannel;
  problem.inputs.gate_mode = GateMode::kLowerBound;
  return problem;
}

const ConvStates kPool{.location = StateLocation::kPool};

TEST_CASE("AConvPassesPointersAndStrides", "[cpu]") {
  const ConvBench bench({.has_bias = true});
  const GdnConvParams p = bench.launched(bench.args());
  CHECK((p.channels == 512 && p.sequences == 2 && p.tokens == 5));
  CHECK((p.x.data == address(1) && p.x.batch == 5 * 512 && p.x.token == 512 && p.x.channel == 1));
  const ConvOutput& y = p.outputs[0];
  CHECK((y.data == address(4) && y.batch == 5 * 512 && y.token == 512 && y.head == 0 &&
         y.channel == 1));
  CHECK((y.first == 0 && y.count == 512 && y.dim == 512));
  CHECK((p.outputs[1].count == 0 && p.outputs[2].count == 0));
  CHECK((p.weight == address(2) && p.weight_channel == 4 && p.weight_tap == 1 && p.weight_packed));
  CHECK((p.bias.data == address(3) && p.bias.stride == 1 && p.scale == 1));
  CHECK((p.read == address(14) && p.written == address(14) && p.columns == 3));
  CHECK((p.read_stride.slot == 3 * 512 && p.read_stride.channel == 3 && p.read_stride.column == 1));
  CHECK((p.read_slots == 2 && p.written_slots == 2 && p.padding.index == PaddingParams::kNone));
  CHECK((p.read_indices.data == nullptr && p.cu_seqlens.data == nullptr &&
         p.has_initial.data == nullptr && p.accepted.data == nullptr));
}

TEST_CASE("ASplitGoesToThreeTensors", "[cpu]") {
  const ConvBench bench(split_problem());
  ConvArgs args = bench.args();
  args.scale = 0.125f;
  args.v.strides = {10000, 800, 200, 2};
  const GdnConvParams p = bench.launched(args);
  CHECK((p.channels == 384 && p.scale == 0.125f && p.norm_heads == 0));
  const auto& [q, k, v] = p.outputs;
  CHECK((q.data == address(5) && q.first == 0 && q.count == 128 && q.dim == 64));
  CHECK((q.batch == 5 * 128 && q.token == 128 && q.head == 64 && q.channel == 1));
  CHECK((k.data == address(6) && k.first == 128 && k.count == 128 && k.dim == 64));
  CHECK((v.data == address(7) && v.first == 256 && v.count == 128 && v.dim == 32));
  CHECK((v.batch == 10000 && v.token == 800 && v.head == 200 && v.channel == 2));
}

TEST_CASE("GatesAreThoseOfAllHeads", "[cpu]") {
  const ConvBench bench(gated_problem());
  ConvArgs args = bench.args();
  args.a.strides = {1000, 100, 3};
  args.A_log.strides = {2};
  const GdnConvParams p = bench.launched(args);
  CHECK((p.heads == 4 && p.norm_heads == 4));
  CHECK((p.gates.g.data == address(8) && p.gates.g.stride == TokenStrides{1000, 100, 3}));
  CHECK((p.gates.A_log.data == address(9) && p.gates.A_log.stride == 2));
  CHECK((p.gates.dt_bias.data == address(10) && p.g.data == address(11)));
  CHECK(p.g.stride == TokenStrides{5 * 4, 4, 1});
  CHECK((p.gates.beta.data == address(12) && p.beta.data == address(13)));
  CHECK(p.beta.stride == TokenStrides{5 * 4, 4, 1});
}

TEST_CASE("GatesOfChannelsAreRows", "[cpu]") {
  const ConvBench bench(row_problem());
  ConvArgs args = bench.args();
  args.a.strides = {10000, 1000, 100, 1};
  const GdnConvParams p = bench.launched(args);
  CHECK((p.heads == 4 && p.lower_bound == -5));
  CHECK((p.gates.g.data == address(8) && p.gates.g.stride == TokenStrides{10000, 1000, 100}));
  CHECK((p.gates.A_log.data == address(9) && p.gates.A_log.stride == 1));
  CHECK((p.gates.dt_bias.data == address(10) && p.gates.dt_bias.stride == 64));
  CHECK((p.g.data == address(11) && p.g.stride == TokenStrides{5 * 4 * 64, 4 * 64, 64}));
  CHECK(p.beta.stride == TokenStrides{5 * 4, 4, 1});
  // A flat dt_bias is the same, and neither it nor A_log has to be there.
  args.dt_bias = Tensor::contiguous(address(10), DType::kF32, {4 * 64});
  CHECK(bench.launched(args).gates.dt_bias.stride == 64);
  args.dt_bias = args.A_log = {};
  const GdnConvParams bare = bench.launched(args);
  CHECK((bare.gates.dt_bias.data == nullptr && bare.gates.A_log.data == nullptr));
}

TEST_CASE("PackedSequencesHaveNoBatch", "[cpu]") {
  ConvProblem problem = gated_problem();
  problem.varlen = true;
  problem.states = kPool;
  const ConvBench bench(problem);
  ConvArgs args = bench.args();
  const GdnConvParams p = bench.launched(args);
  CHECK((p.sequences == 2 && p.tokens == 10 && p.cu_seqlens.data == address(16)));
  CHECK((p.x.batch == 0 && p.x.token == 384 && p.outputs[2].batch == 0 && p.g.stride.batch == 0));
  CHECK((p.read_slots == 9 && p.read_indices.data == address(15) &&
         p.write_indices.data == address(15)));
  // Or with B = 1.
  args.x = Tensor::contiguous(args.x.data, args.x.dtype, {1, 10, 384});
  args.v = Tensor::contiguous(args.v.data, args.v.dtype, {1, 10, 4, 32});
  args.g = Tensor::contiguous(args.g.data, args.g.dtype, {1, 10, 4});
  const GdnConvParams same = bench.launched(args);
  CHECK((same.tokens == 10 && same.x.batch == 0 && same.x.token == 384 && same.run == p.run &&
         same.g.stride == p.g.stride));
}

TEST_CASE("StatesMayGoElsewhere", "[cpu]") {
  const ConvBench bench({.states = kPool});
  ConvArgs args = bench.args();
  args.state_out = Tensor::contiguous(address(20), DType::kBF16, {11, kChannels, 3});
  args.state_out.strides[0] = 5000;
  args.state_out_indices = Tensor::contiguous(address(21), DType::kI32, {2});
  args.has_initial_state = Tensor::contiguous(address(22), DType::kBool, {2});
  const GdnConvParams p = bench.launched(args);
  CHECK((p.read == address(14) && p.written == address(20)));
  CHECK((p.read_slots == 9 && p.written_slots == 11 && p.written_stride.slot == 5000));
  CHECK((p.read_indices.data == address(15) && p.write_indices.data == address(21)));
  CHECK((p.has_initial.data == address(22) && p.has_initial.stride == 1));
}

TEST_CASE("WithoutAStateItsIndicesAreThoseOfTheOther", "[cpu]") {
  const auto slots = [](bool has_initial, bool store) {
    ConvStates states = kPool;
    states.has_initial = has_initial;
    states.store = store;
    const ConvBench bench({.states = states});
    const GdnConvParams p = bench.launched(bench.args());
    CHECK((p.read != nullptr) == has_initial);
    CHECK((p.written != nullptr) == store);
    CHECK(p.columns == 3);
    return std::pair(p.read_slots, p.written_slots);
  };
  CHECK(slots(true, false) == std::pair(9LL, 9LL));
  CHECK(slots(false, true) == std::pair(9LL, 9LL));
  constexpr long long kAny = std::numeric_limits<long long>::max();
  CHECK(slots(false, false) == std::pair(kAny, kAny));
}

TEST_CASE("AWholeWindowHasAColumnMore", "[cpu]") {
  const ConvBench bench({.width = 3, .states = {.whole_window = true}});
  const GdnConvParams p = bench.launched(bench.args());
  CHECK((p.columns == 3 && p.read_stride.channel == 3 && p.weight_channel == 3));
  CHECK(bench.refusal([](auto& a) {
    a.state = Tensor::contiguous(address(14), DType::kBF16, {2, kChannels, 2});
  }) == "gdn_conv: state has shape [2, 512, 2]; accepted: [B = 2, channels = 512, columns = 3]");
}

TEST_CASE("AStateOfAVerificationHasAsManyColumnsAsItHas", "[cpu]") {
  const ConvBench bench({.states = kPool, .from_accepted = true, .accepted_dtype = DType::kI64});
  ConvArgs args = bench.args();
  args.state = Tensor::contiguous(address(14), DType::kBF16, {kSlots, kChannels, 7});
  args.accepted.strides[0] = 3;
  GdnConvParams p = bench.launched(args);
  CHECK((p.columns == 7 && p.accepted.data == address(17) && p.accepted.stride == 3));
  args.state_out = Tensor::contiguous(address(20), DType::kBF16, {4, kChannels, 7});
  p = bench.launched(args);
  CHECK((p.columns == 7 && p.written_slots == 4));
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.state_out = Tensor::contiguous(address(20), DType::kBF16, {4, kChannels, 6});
  }) == "gdn_conv: state_out has 6 columns; accepted: 7, as state has");
  CHECK(
      bench.refusal([&](auto& a) {
        a.state = Tensor::contiguous(address(14), DType::kBF16, {kSlots, kChannels, 2});
      }) ==
      "gdn_conv: state has shape [9, 512, 2]; accepted: [slots = 9, channels = 512, columns = 3]");
  CHECK(bench.refusal([&](auto& a) {
    a.state.shape[2] = std::int64_t{1} << 31;
    a.state.strides = {0, 0, 1};
  }) == "gdn_conv: state has columns = 2147483648; accepted: 0 to 2147483647");
  CHECK(bench.refusal([](auto& a) { a.state.rank = 2; }) ==
        "gdn_conv: state has shape [9, 512]; accepted: [slots = 9, channels = 512, columns = 3]");
}

TEST_CASE("ACircularStateHasAsManyColumnsAsItHas", "[cpu]") {
  for (const bool varlen : {false, true}) {
    const ConvBench bench({.states = kPool, .varlen = varlen, .circular_state = true});
    ConvArgs args = bench.args();
    args.state = Tensor::contiguous(address(14), DType::kBF16, {kSlots, kChannels, 7});
    args.cache_seqlens.strides[0] = 3;
    const GdnConvParams p = bench.launched(args);
    CHECK((p.columns == 7 && p.accepted.data == address(18) && p.accepted.stride == 3));
  }
  const ConvBench bench({.circular_state = true});
  CHECK(bench.refusal([](auto& a) { a.cache_seqlens = {}; }) ==
        "gdn_conv: cache_seqlens is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.cache_seqlens.dtype = DType::kI64; }) ==
        "gdn_conv: cache_seqlens has dtype i64; accepted: i32");
  CHECK(bench.refusal([](auto& a) { a.cache_seqlens.shape[0] = 3; }) ==
        "gdn_conv: cache_seqlens has shape [3]; accepted: [B = 2]");
  CHECK(bench.refusal([](auto& a) {
    a.state = Tensor::contiguous(address(14), DType::kBF16, {2, kChannels, 2});
  }) == "gdn_conv: state has shape [2, 512, 2]; accepted: [B = 2, channels = 512, columns = 3]");
  CHECK(bench.refusal([](auto& a) { a.state_out = a.state; }) ==
        "gdn_conv: state_out is given; accepted: no tensor, circular_state is true");
  const ConvBench pool({.states = kPool, .circular_state = true});
  CHECK(pool.refusal([](auto& a) { a.state_out_indices = a.state_indices; }) ==
        "gdn_conv: state_out_indices is given; accepted: no tensor, circular_state is true");
  const ConvBench plain({});
  CHECK(plain.refusal([](auto& a) {
    a.cache_seqlens = Tensor::contiguous(address(18), DType::kI32, {2});
  }) == "gdn_conv: cache_seqlens is given; accepted: no tensor, circular_state is false");
}

constexpr StoredStates kEvery = StoredStates::kEvery;

TEST_CASE("DenseStepsHaveADimension", "[cpu]") {
  const ConvBench bench({.stored_states = kEvery});
  ConvArgs args = bench.args();
  args.state_out = Tensor::contiguous(address(20), DType::kBF16, {2, 7, kChannels, 3});
  GdnConvParams p = bench.launched(args);
  CHECK((p.read == address(14) && p.written == address(20) && p.columns == 3));
  CHECK((p.read_stride.slot == 3 * kChannels && p.steps.read_state == 0));
  CHECK((p.written_stride.slot == 7 * 3 * kChannels && p.steps.written_state == 3 * kChannels));
  CHECK((p.draft_tokens == 7 && p.by_sequence && p.runs == 2 && p.run == 5));
  args.state_out = Tensor::contiguous(address(20), DType::kBF16, {2, 20, kChannels, 3});
  CHECK(bench.launched(args).draft_tokens == 16);
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.state_out = Tensor::contiguous(address(20), DType::kBF16, {2, 4, kChannels, 3});
  }) == "gdn_conv: state_out has shape [2, 4, 512, 3]; accepted: [B = 2, steps = 5, channels = "
        "512, columns = 3]");
  CHECK(bench.refusal([](auto&) {}) ==
        "gdn_conv: state_out is missing; accepted: a tensor, stored_states is every and "
        "from_accepted is false");
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.state_out.strides[1] = 3;
  }) == "gdn_conv: state_out is written and has overlapping elements, by stride 3; accepted: no "
        "overlap");
  CHECK(bench.refusal([](auto& a) { a.x.shape[1] = 17; }) ==
        "gdn_conv: x has T = 17; accepted: 0 to 16");
}

TEST_CASE("AcceptedStepsAreReadAndWrittenInPlace", "[cpu]") {
  const ConvBench bench({.states = {.whole_window = true},
                         .varlen = true,
                         .stored_states = kEvery,
                         .from_accepted = true});
  ConvArgs args = bench.args();
  args.state = Tensor::contiguous(address(14), DType::kBF16, {2, 6, kChannels, 4});
  const GdnConvParams p = bench.launched(args);
  CHECK((p.read == address(14) && p.written == address(14) && p.columns == 4));
  CHECK((p.steps.read_state == 4 * kChannels && p.steps.written_state == 4 * kChannels));
  CHECK((p.steps.readable == 6 && p.draft_tokens == 6 && p.accepted.data == address(17)));
  CHECK((p.by_sequence && p.runs == 2));
  CHECK(bench.refusal([](auto&) {}) ==
        "gdn_conv: state has shape [2, 512, 4]; accepted: [N = 2, steps = 512, channels = 512, "
        "columns = 4]");
}

TEST_CASE("StepsOfAPoolHaveIndices", "[cpu]") {
  const ConvBench bench({.states = kPool, .stored_states = kEvery, .from_accepted = true});
  ConvArgs args = bench.args();
  args.state_indices = Tensor::contiguous(address(15), DType::kI32, {2, 6});
  GdnConvParams p = bench.launched(args);
  CHECK((p.read_indices.data == address(15) && p.write_indices.data == address(15)));
  CHECK((p.read_indices.stride == 6 && p.steps.read_index == 1 && p.steps.written_index == 1));
  CHECK((p.steps.readable == 6 && p.draft_tokens == 6 && p.steps.read_state == 0));
  args.state_out_indices = Tensor::contiguous(address(21), DType::kI32, {2, 5});
  p = bench.launched(args);
  CHECK((p.write_indices.data == address(21) && p.steps.readable == 6 && p.draft_tokens == 5));
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.state_out_indices = Tensor::contiguous(address(21), DType::kI32, {2, 4});
  }) == "gdn_conv: state_out_indices has shape [2, 4]; accepted: [B = 2, steps = 5]");
  const ConvBench elsewhere({.states = kPool, .stored_states = kEvery});
  CHECK(elsewhere.refusal([](auto&) {}) ==
        "gdn_conv: state_out_indices is missing; accepted: a tensor, stored_states is every and "
        "from_accepted is false");
  CHECK(ConvBench({.states = kPool}).refusal([&](auto& a) {
    a.state_out_indices = args.state_out_indices;
  }) == "gdn_conv: state_out_indices has shape [2, 5]; accepted: [B = 2]");
}

TEST_CASE("CheckpointsHaveOffsetsAndSlots", "[cpu]") {
  for (const bool varlen : {false, true}) {
    const ConvBench bench({.states = {.index_dtype = DType::kI64},
                           .varlen = varlen,
                           .checkpoints = Checkpoints::kAt});
    ConvArgs args = bench.args();
    args.checkpoints = Tensor::contiguous(address(23), DType::kBF16, {11, kChannels, 3});
    args.checkpoint_offsets = Tensor::contiguous(address(24), DType::kI32, {2, 1});
    args.checkpoint_offsets.strides[0] = 4;
    args.checkpoint_slots = Tensor::contiguous(address(25), DType::kI64, {2, 1});
    // Any offset may be, so strides mean nothing.
    for (const std::int64_t every : {64, 7, 0}) {
      args.checkpoint_every = every;
      const GdnConvParams p = bench.launched(args);
      CHECK((p.checkpoints.data == address(23) && p.checkpoints.slots == 11));
      CHECK((p.checkpoint_cu_starts.data == address(24) && p.checkpoint_cu_starts.stride == 4));
      const CheckpointSlots& at = p.checkpoint_slots;
      CHECK((at.slots.data == address(25) && at.slots.stride == 1 && at.count == 1));
      CHECK(p.checkpoint_every == 1);
    }
    // None at all.
    CHECK(bench.launched(bench.args()).checkpoint_slots.count == 0);
    const auto refused = [&](FunctionRef<void(ConvArgs&)> spoil) {
      return bench.refusal([&](auto& a) {
        a = args;
        spoil(a);
      });
    };
    const std::string n = varlen ? "N" : "B";
    CHECK(refused([](auto& a) { a.checkpoints = {}; }) ==
          "gdn_conv: checkpoints is missing; accepted: a tensor");
    CHECK(refused([](auto& a) {
            a.checkpoint_cu_starts = Tensor::contiguous(address(26), DType::kI32, {3});
          }) == "gdn_conv: checkpoint_cu_starts is given; accepted: no tensor, checkpoints is at");
    CHECK(refused([](auto& a) { a.checkpoint_offsets = {}; }) ==
          "gdn_conv: checkpoint_offsets is missing; accepted: a tensor");
    CHECK(refused([](auto& a) { a.checkpoint_offsets.dtype = DType::kI64; }) ==
          "gdn_conv: checkpoint_offsets has dtype i64; accepted: i32");
    CHECK(refused([](auto& a) { a.checkpoint_slots.dtype = DType::kI32; }) ==
          "gdn_conv: checkpoint_slots has dtype i32; accepted: i64");
    CHECK(refused([](auto& a) {
            a.checkpoint_slots.shape = {2, 2};
          }) == "gdn_conv: checkpoint_slots has shape [2, 2]; accepted: [" + n + " = 2, K = 1]");
  }
}

TEST_CASE("CheckpointsHaveRows", "[cpu]") {
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAfter}) {
    const ConvBench bench({.checkpoints = checkpoints, .checkpoint_every = 2});
    // Of 5 tokens.
    const std::int64_t rows = 2 * (checkpoints == Checkpoints::kBefore ? 3 : 2);
    ConvArgs args = bench.args();
    args.checkpoints = Tensor::contiguous(address(23), DType::kBF16, {rows, kChannels, 3});
    args.checkpoints.strides[0] = 5000;
    const GdnConvParams p = bench.launched(args);
    CHECK((p.checkpoints.data == address(23) && p.checkpoints.slots == rows));
    CHECK((p.checkpoints.stride.slot == 5000 && p.checkpoints.stride.channel == 3));
    CHECK((p.checkpoint_every == 2 && p.checkpoint_cu_starts.data == nullptr));
    CHECK(bench.refusal([&](auto& a) {
      a.checkpoints = Tensor::contiguous(address(23), DType::kBF16, {1, kChannels, 3});
    }) == "gdn_conv: checkpoints has shape [1, 512, 3]; accepted: [rows = " + std::to_string(rows) +
              ", channels = 512, columns = 3]");
  }
  const ConvBench bench({.varlen = true, .checkpoints = Checkpoints::kAfter});
  ConvArgs args = bench.args();
  args.checkpoints = Tensor::contiguous(address(23), DType::kBF16, {11, kChannels, 3});
  args.checkpoint_cu_starts = Tensor::contiguous(address(24), DType::kI32, {3});
  const GdnConvParams p = bench.launched(args);
  CHECK((p.checkpoints.slots == 11 && p.checkpoint_cu_starts.data == address(24)));
  CHECK(p.checkpoint_every == 64);
  args.checkpoint_every = 192;
  CHECK(bench.launched(args).checkpoint_every == 192);
  for (const std::int64_t every : {0, -64, 32, 65}) {
    CHECK(bench.refusal([&](auto& a) {
      a = args;
      a.checkpoint_every = every;
    }) == "gdn_conv: checkpoint_every is " + std::to_string(every) +
              "; accepted: multiples of the problem's 64, up to 2147483647");
  }
  CHECK(bench.refusal([](auto&) {}) == "gdn_conv: checkpoints is missing; accepted: a tensor");
  CHECK(bench.refusal([&](auto& a) { a.checkpoints = args.checkpoints; }) ==
        "gdn_conv: checkpoint_cu_starts is missing; accepted: a tensor");
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.checkpoint_cu_starts.shape[0] = 2;
  }) == "gdn_conv: checkpoint_cu_starts has shape [2]; accepted: [N + 1 = 3]");
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.checkpoints.dtype = DType::kF32;
  }) == "gdn_conv: checkpoints has dtype f32; accepted: bf16");
  CHECK(bench.refusal([&](auto& a) {
    a = args;
    a.checkpoints.strides[0] = 0;
  }) == "gdn_conv: checkpoints is written and has overlapping elements, by stride 0; accepted: no "
        "overlap");
}

// What the kernel knows of the grid, of its key and the launch.
void check_grid(const ConvBench& bench, const GdnConvKey& key, const GdnConvParams& p) {
  const ConvGrid grid = conv_grid(key,
                                  {.sequences = p.sequences,
                                   .tokens = p.tokens,
                                   .channels = p.channels,
                                   .norm_heads = p.norm_heads,
                                   .heads = p.heads},
                                  bench.fake->sm_count);
  CHECK(p.by_sequence == grid.by_sequence);
  CHECK((p.run == grid.run && p.runs == grid.runs && p.channel_warps == grid.channel_warps));
  CHECK(p.runs_of_sequence == grid.runs_of_sequence);
  const CUlaunchConfig& config = bench.fake->launches.back().config;
  CHECK(config.gridDimX == static_cast<unsigned>((grid.warps + key.warps - 1) / key.warps));
  CHECK(std::int64_t{config.gridDimY} * config.gridDimZ >= grid.runs);
  CHECK(std::int64_t{config.gridDimY} * (config.gridDimZ - 1) < grid.runs);
  CHECK(config.gridDimY <= 65535);
  CHECK(config.blockDimX == static_cast<unsigned>(threads(key)));
}

TEST_CASE("ALaunchHasWarpsForAllRunsAndChannels", "[cpu]") {
  ConvProblem packed = gated_problem();
  packed.varlen = true;
  for (const ConvProblem& problem : {ConvProblem{}, gated_problem(), packed}) {
    const ConvBench bench(problem);
    for (const Sizes& sizes : {Sizes{1, 1}, Sizes{256, 1}, Sizes{100000, 1}, Sizes{3, 2},
                               Sizes{1, 512}, Sizes{7, 1000}, Sizes{1, 100000}}) {
      const ConvArgs args = bench.args(sizes);
      const GdnConvParams p = bench.launched(args);
      check_grid(bench,
                 bench.key({.sequences = sizes.sequences,
                            .tokens = sizes.sequences * sizes.tokens,
                            .channels = sizes.channels}),
                 p);
    }
  }
}

TEST_CASE("PackedSequencesThatAreShortHaveWarpsOfTheirOwn", "[cpu]") {
  const ConvBench bench({.varlen = true});
  ConvArgs args = bench.args({.sequences = 7, .tokens = 5});
  CHECK_FALSE(bench.launched(args).by_sequence);
  args.max_seqlen = 17;
  CHECK_FALSE(bench.launched(args).by_sequence);
  args.max_seqlen = 16;
  GdnConvParams p = bench.launched(args);
  CHECK((p.by_sequence && p.runs == 7 && p.run == 5));
  p = bench.launched(bench.args({.sequences = 7, .tokens = 1}));
  CHECK((p.by_sequence && p.runs == 7 && p.run == 1));
}

// Decoding steps are taken some sequences at a time where there are many.
TEST_CASE("ManyStepsAreTakenTogether", "[cpu]") {
  const ConvBench bench({});
  const ConvSize size{.sequences = 100000, .tokens = 100000, .channels = kChannels};
  const GdnConvKey key = bench.key(size);
  REQUIRE(has_steps(key));
  const GdnConvParams p = bench.launched(bench.args({.sequences = 100000, .tokens = 1}));
  CHECK((p.run == key.together && p.runs == (100000 + key.together - 1) / key.together));
  CHECK((p.sequences == 100000 && p.tokens == 1));
}

// Launches with tensors that `change` has moved run one kernel or the other: their grids differ.
class LayoutBench {
 public:
  explicit LayoutBench(const ConvProblem& problem) : bench_(problem) {}

  bool takes_vectors(FunctionRef<void(ConvArgs&)> change,
                     const Sizes& sizes = {.sequences = 3, .tokens = 3000}) const {
    ConvArgs args = bench_.args(sizes);
    change(args);
    const GdnConvParams p = bench_.launched(args);
    const GdnConvKey key = bench_.key({.sequences = sizes.sequences,
                                       .tokens = sizes.sequences * sizes.tokens,
                                       .channels = kChannels});
    const auto run = [&](const GdnConvKey& of) {
      return conv_grid(of,
                       {.sequences = p.sequences,
                        .tokens = p.tokens,
                        .channels = p.channels,
                        .norm_heads = p.norm_heads},
                       bench_.fake->sm_count)
          .run;  // whatever gates there are
    };
    const int vectors = run(key), elements = run(without_vectors(key));
    REQUIRE(vectors != elements);
    REQUIRE((p.run == vectors || p.run == elements));
    check_grid(bench_, p.run == vectors ? key : without_vectors(key), p);
    return p.run == vectors;
  }

 private:
  ConvBench bench_;
};

void* moved(const Tensor& tensor, int bytes) { return static_cast<char*>(tensor.data) + bytes; }

TEST_CASE("RowsThatLieInVectorsAreReadInVectors", "[cpu]") {
  const LayoutBench bench({});
  CHECK(bench.takes_vectors([](auto&) {}));
  // Parts of wider rows, at multiples of 16 bytes.
  CHECK(bench.takes_vectors([](auto& a) {
    a.x.data = moved(a.x, 32);
    a.x.strides = {3000 * 1024, 1024, 1};
    a.y.strides = {3000 * 520, 520, 1};
  }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.x.data = moved(a.x, 2); }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.y.data = moved(a.y, 4); }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.x.strides[1] += 1; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.x.strides[0] += 2; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.y.strides = {3000 * 514, 514, 1}; }));
  // [B, channels, T] in memory.
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.x.strides = {3000 * kChannels, 1, 3000}; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.y.strides = {3000 * kChannels, 1, 3000}; }));
  // Weights lie as they like; that they are packed is a parameter.
  CHECK(bench.takes_vectors([](auto& a) { a.weight.strides = {1, kChannels}; }));
}

TEST_CASE("RowsOfGatesThatLieInVectorsAreReadInVectors", "[cpu]") {
  const LayoutBench bench(row_problem());
  CHECK(bench.takes_vectors([](auto&) {}));
  // Four elements of bf16 are 8 bytes, of f32 16.
  CHECK(bench.takes_vectors([](auto& a) {
    a.a.data = moved(a.a, 8);
    a.a.strides = {3000 * 404, 404, 68, 1};
    a.g.strides = {3000 * 404, 404, 68, 1};
  }));
  CHECK(bench.takes_vectors([](auto& a) { a.A_log = a.dt_bias = {}; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.a.data = moved(a.a, 4); }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.a.strides[1] += 2; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.a.strides[2] += 1; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.g.data = moved(a.g, 8); }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.g.strides[0] += 1; }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.dt_bias.data = moved(a.dt_bias, 4); }));
  CHECK_FALSE(bench.takes_vectors([](auto& a) { a.dt_bias.strides[0] = 65; }));
  // Numbers of heads lie as they like.
  CHECK(bench.takes_vectors([](auto& a) {
    a.A_log.strides[0] = 3;
    a.b.data = moved(a.b, 2);
  }));
  const LayoutBench heads(gated_problem());
  CHECK(heads.takes_vectors([](auto& a) { a.a.data = moved(a.a, 2); }));
}

TEST_CASE("CheckpointsThatALaunchDoesNotKeepLieNowhere", "[cpu]") {
  CHECK(LayoutBench({.checkpoints = Checkpoints::kAt}).takes_vectors([](auto&) {}));
}

TEST_CASE("StatesThatLieAsTheLayoutSaysAreReadInVectors", "[cpu]") {
  for (const ConvStateLayout layout : {ConvStateLayout::kColumns, ConvStateLayout::kChannels}) {
    const bool columns = layout == ConvStateLayout::kColumns;
    const LayoutBench bench({.states = {.layout = layout}});
    CHECK(bench.takes_vectors([](auto&) {}));
    CHECK(bench.takes_vectors([](auto& a) { a.state.strides[0] += 8; }));
    CHECK_FALSE(bench.takes_vectors([](auto& a) { a.state.strides[0] += 1; }));
    CHECK_FALSE(bench.takes_vectors([](auto& a) { a.state.data = moved(a.state, 2); }));
    const auto lies = [&](bool in_columns) {
      return bench.takes_vectors([&](ConvArgs& a) {
        a.state.strides = {3 * kChannels, in_columns ? 3 : 1, in_columns ? 1 : kChannels};
      });
    };
    CHECK(lies(true) == columns);
    CHECK(lies(false) == !columns);
    // Only the new one is elsewhere.
    CHECK_FALSE(bench.takes_vectors([](auto& a) {
      a.state_out = a.state;
      a.state_out.data = address(20);
      a.state_out.strides = {4 * kChannels, 4, 1};
    }));
  }
}

TEST_CASE("StridesOfOneElementMeanNothing", "[cpu]") {
  const LayoutBench bench({});
  CHECK(bench.takes_vectors(
      [](ConvArgs& a) { a.x.strides[0] = a.y.strides[0] = a.state.strides[0] = 1; },
      {.sequences = 1, .tokens = 9000}));
  // Grids of decoding steps do not differ.
  const ConvBench steps({});
  ConvArgs args = steps.args({.sequences = 256, .tokens = 1});
  args.x.strides[1] = args.y.strides[1] = 1;
  const GdnConvParams p = steps.launched(args);
  CHECK((p.x.token == 0 && p.outputs[0].token == 0));
  const ConvSize size{.sequences = 256, .tokens = 256, .channels = kChannels};
  CHECK(lies_in_vectors(steps.key(size), p));
  ConvProblem one = row_problem();
  one.heads = {.q = 1, .k = 1, .v = 1};
  const ConvBench rows(one);
  ConvArgs gates = rows.args({.sequences = 1, .tokens = 1});
  gates.a.strides = gates.g.strides = {1, 1, 1, 1};
  gates.dt_bias.strides = {1, 1};
  CHECK(lies_in_vectors(rows.key({.sequences = 1, .tokens = 1}), rows.launched(gates)));
}

// Columns of a verification's states are read one by one, wherever they begin.
TEST_CASE("StatesOfAVerificationNeedNoVectors", "[cpu]") {
  const LayoutBench bench({.from_accepted = true});
  CHECK(bench.takes_vectors([](auto& a) {
    a.state.data = moved(a.state, 2);
    a.state.strides = {5 * kChannels + 1, 5, 1};
  }));
  const LayoutBench channels(
      {.states = {.layout = ConvStateLayout::kChannels}, .from_accepted = true});
  CHECK(channels.takes_vectors([](auto&) {}));
  CHECK_FALSE(channels.takes_vectors([](auto& a) { a.state.strides[0] += 1; }));
  const LayoutBench circular({.circular_state = true});
  CHECK(circular.takes_vectors([](auto& a) { a.state.data = moved(a.state, 2); }));
}

TEST_CASE("OddNumbersOfChannelsHaveNoVectors", "[cpu]") {
  const ConvBench bench({});
  for (const std::int64_t channels : {1, 3, 6, 1001}) {
    const Sizes sizes{.sequences = 3, .tokens = 3000, .channels = channels};
    const GdnConvParams p = bench.launched(bench.args(sizes));
    const GdnConvKey key = bench.key({.sequences = 3, .tokens = 9000, .channels = channels});
    check_grid(bench, without_vectors(key), p);
  }
}

TEST_CASE("PackedWeightsAreAligned", "[cpu]") {
  const ConvBench bench({});
  const auto packed = [&](FunctionRef<void(Tensor&)> change) {
    ConvArgs args = bench.args();
    change(args.weight);
    return bench.launched(args).weight_packed;
  };
  CHECK(packed([](auto&) {}));
  CHECK_FALSE(packed([](auto& w) { w.data = moved(w, 2); }));
  CHECK_FALSE(packed([](auto& w) { w.strides = {5, 1}; }));
  CHECK_FALSE(packed([](auto& w) { w.strides = {1, kChannels}; }));
}

TEST_CASE("NothingIsLaunchedForNoSequences", "[cpu]") {
  const ConvBench dense({});
  CHECK(dense.conv().launch(nullptr, dense.args({.sequences = 0})).ok());
  CHECK(dense.conv().launch(nullptr, dense.args({.channels = 0})).ok());
  const ConvBench packed({.varlen = true});
  CHECK(packed.conv().launch(nullptr, packed.args({.sequences = 0})).ok());
  CHECK(packed.fake->launches.empty());
  // Without tokens there are still states.
  CHECK(dense.launched(dense.args({.tokens = 0})).runs == 2);
  CHECK(packed.launched(packed.args({.tokens = 0})).runs == 2);
}

TEST_CASE("SizesOfAConvHaveLimits", "[cpu]") {
  const ConvBench bench({});
  const auto x = [&](std::size_t d, std::int64_t extent) {
    return bench.refusal([=](ConvArgs& a) { a.x.shape[d] = extent; });
  };
  for (const std::int64_t extent : {std::int64_t{-1}, std::int64_t{1} << 31, INT64_MAX}) {
    const std::string is = " = " + std::to_string(extent);
    CHECK(x(0, extent) == "gdn_conv: x has B" + is + "; accepted: 0 to 2147483647");
    CHECK(x(1, extent) == "gdn_conv: x has T" + is + "; accepted: 0 to 2147483647");
    CHECK(x(2, extent) == "gdn_conv: x has channels" + is + "; accepted: 0 to 1048576");
  }
  CHECK(x(2, (1 << 20) + 1) == "gdn_conv: x has channels = 1048577; accepted: 0 to 1048576");
  CHECK(bench.refusal([](auto& a) { a.x.rank = 2; }) ==
        "gdn_conv: x has 2 dimensions; accepted: 3");
  const ConvBench packed({.varlen = true});
  CHECK(packed.refusal([](auto& a) { a.x.rank = 1; }) ==
        "gdn_conv: x has 1 dimensions; accepted: 2, or 3 with B = 1");
  CHECK(packed.refusal([](auto& a) { a.x.shape[0] = -1; }) ==
        "gdn_conv: x has total = -1; accepted: 0 to 2147483647");
  CHECK(packed.refusal([](auto& a) {
    a.x = Tensor::contiguous(a.x.data, a.x.dtype, {2, 5, kChannels});
  }) == "gdn_conv: x has shape [2, 5, 512]; accepted: [total = 5, channels = 512], or with a "
        "dimension of 1 in front");
}

TEST_CASE("XIsRefusedWithNameAndReason", "[cpu]") {
  const ConvBench bench({});
  CHECK(bench.refusal([](auto& a) { a.x = {}; }) == "gdn_conv: x is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.x.data = nullptr; }) ==
        "gdn_conv: x is null; accepted: a device pointer");
  CHECK(bench.refusal([](auto& a) { a.x.dtype = DType::kF16; }) ==
        "gdn_conv: x has dtype f16; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.x.data = moved(a.x, 1); }) ==
        "gdn_conv: x at 0x100001 is misaligned; accepted: a multiple of 2 bytes");
  CHECK(bench.refusal([](auto& a) { a.x.strides[1] = std::int64_t{1} << 61; }) ==
        "gdn_conv: x has strides that overflow 64-bit offsets; accepted: strides inside its "
        "memory");
  // Inputs may be broadcast.
  ConvArgs args = bench.args();
  args.x.strides = args.weight.strides = {};
  CHECK(bench.launched(args).x.token == 0);
  CHECK(ConvBench(split_problem()).refusal([](auto& a) { a.x.shape[2] = 512; }) ==
        "gdn_conv: x has 512 channels; accepted: 384, those of q, k and v");
}

TEST_CASE("OutputsAreRefusedWithNameAndReason", "[cpu]") {
  const ConvBench bench({});
  CHECK(bench.refusal([](auto& a) { a.y = {}; }) == "gdn_conv: y is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.y.dtype = DType::kF32; }) ==
        "gdn_conv: y has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.y.shape[2] = 256; }) ==
        "gdn_conv: y has shape [2, 5, 256]; accepted: [B = 2, T = 5, channels = 512]");
  CHECK(bench.refusal([](auto& a) { a.y.rank = 2; }) ==
        "gdn_conv: y has shape [2, 5]; accepted: [B = 2, T = 5, channels = 512]");
  CHECK(bench.refusal([](auto& a) { a.y.strides[1] = 0; }) ==
        "gdn_conv: y is written and has overlapping elements, by stride 0; accepted: no overlap");
  CHECK(bench.refusal([](auto& a) { a.y.strides[1] = 511; }) ==
        "gdn_conv: y is written and has overlapping elements, by stride 511; accepted: no overlap");
  CHECK(bench.refusal([](auto& a) { a.y = a.x; }) ==
        "gdn_conv: y is x; accepted: memory of its own");
  const ConvBench split(split_problem());
  CHECK(split.refusal([](auto& a) { a.q = {}; }) == "gdn_conv: q is missing; accepted: a tensor");
  CHECK(split.refusal([](auto& a) { a.k.dtype = DType::kF32; }) ==
        "gdn_conv: k has dtype f32; accepted: bf16");
  CHECK(split.refusal([](auto& a) { a.q.shape[2] = 4; }) ==
        "gdn_conv: q has shape [2, 5, 4, 64]; accepted: [B = 2, T = 5, q_heads = 2, key_dim = 64]");
  CHECK(split.refusal([](auto& a) { a.k.shape[1] = 4; }) ==
        "gdn_conv: k has shape [2, 4, 2, 64]; accepted: [B = 2, T = 5, k_heads = 2, key_dim = 64]");
  CHECK(split.refusal([](auto& a) { a.v.shape[3] = 64; }) ==
        "gdn_conv: v has shape [2, 5, 4, 64]; accepted: [B = 2, T = 5, v_heads = 4, value_dim = "
        "32]");
  CHECK(split.refusal([](auto& a) { a.v.strides[2] = 16; }) ==
        "gdn_conv: v is written and has overlapping elements, by stride 16; accepted: no overlap");
  CHECK(split.refusal([](auto& a) { a.k.data = a.x.data; }) ==
        "gdn_conv: k is x; accepted: memory of its own");
}

TEST_CASE("WeightsAreRefusedWithNameAndReason", "[cpu]") {
  const ConvBench bench({.weight_dtype = DType::kF32, .width = 3, .has_bias = true});
  CHECK(bench.refusal([](auto& a) { a.weight = {}; }) ==
        "gdn_conv: weight is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.weight.dtype = DType::kBF16; }) ==
        "gdn_conv: weight has dtype bf16; accepted: f32");
  CHECK(bench.refusal([](auto& a) { a.weight.shape[1] = 4; }) ==
        "gdn_conv: weight has shape [512, 4]; accepted: [channels = 512, width = 3]");
  CHECK(bench.refusal([](auto& a) {
    a.weight = Tensor::contiguous(a.weight.data, DType::kF32, {512, 1, 3});
  }) == "gdn_conv: weight has shape [512, 1, 3]; accepted: [channels = 512, width = 3]");
  CHECK(bench.refusal([](auto& a) { a.bias = {}; }) ==
        "gdn_conv: bias is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.bias.dtype = DType::kF16; }) ==
        "gdn_conv: bias has dtype f16; accepted: f32");
  CHECK(bench.refusal([](auto& a) { a.bias.shape[0] = 3; }) ==
        "gdn_conv: bias has shape [3]; accepted: [channels = 512]");
}

TEST_CASE("GatesOfAConvAreRefusedWithNameAndReason", "[cpu]") {
  const ConvBench bench(gated_problem());
  CHECK(bench.refusal([](auto& a) { a.a = {}; }) == "gdn_conv: a is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.a.dtype = DType::kF32; }) ==
        "gdn_conv: a has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.a.shape[2] = 2; }) ==
        "gdn_conv: a has shape [2, 5, 2]; accepted: [B = 2, T = 5, heads = 4]");
  CHECK(bench.refusal([](auto& a) { a.A_log = {}; }) ==
        "gdn_conv: A_log is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.A_log.shape[0] = 2; }) ==
        "gdn_conv: A_log has shape [2]; accepted: [heads = 4]");
  CHECK(bench.refusal([](auto& a) { a.dt_bias.dtype = DType::kBF16; }) ==
        "gdn_conv: dt_bias has dtype bf16; accepted: f32");
  CHECK(bench.refusal([](auto& a) { a.g = {}; }) == "gdn_conv: g is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.g.dtype = DType::kBF16; }) ==
        "gdn_conv: g has dtype bf16; accepted: f32");
  CHECK(bench.refusal([](auto& a) { a.g.strides[0] = 0; }) ==
        "gdn_conv: g is written and has overlapping elements, by stride 0; accepted: no overlap");
  CHECK(bench.refusal([](auto& a) { a.b = {}; }) == "gdn_conv: b is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.b.dtype = DType::kF32; }) ==
        "gdn_conv: b has dtype f32; accepted: f16");
  CHECK(bench.refusal([](auto& a) { a.beta.shape[1] = 1; }) ==
        "gdn_conv: beta has shape [2, 1, 4]; accepted: [B = 2, T = 5, heads = 4]");
  CHECK(bench.refusal([](auto& a) { a.beta.strides[2] = 0; }) ==
        "gdn_conv: beta is written and has overlapping elements, by stride 0; accepted: no "
        "overlap");
  CHECK(bench.refusal([](auto& a) { a.lower_bound = -5; }) ==
        "gdn_conv: lower_bound is -5; accepted: none, gate_mode is not lower_bound");
  const ConvBench rows(row_problem());
  CHECK(rows.refusal([](auto& a) { a.g.strides[3] = 2; }) ==
        "gdn_conv: g has innermost stride 2; accepted: 1");
  CHECK(rows.refusal([](auto& a) { a.g.strides[2] = 32; }) ==
        "gdn_conv: g is written and has overlapping elements, by stride 32; accepted: no "
        "overlap");
}

TEST_CASE("TensorsThatAConvDoesNotUseAreRefused", "[cpu]") {
  const ConvBench plain({});
  const auto given = [](const std::string& name, const std::string& why) {
    return "gdn_conv: " + name + " is given; accepted: no tensor, " + why;
  };
  CHECK(plain.refusal([](auto& a) { a.bias = a.y; }) == given("bias", "has_bias is false"));
  CHECK(plain.refusal([](auto& a) { a.q = a.y; }) == given("q", "split_qkv is false"));
  CHECK(plain.refusal([](auto& a) { a.k = a.y; }) == given("k", "split_qkv is false"));
  CHECK(plain.refusal([](auto& a) { a.v = a.y; }) == given("v", "split_qkv is false"));
  CHECK(plain.refusal([](auto& a) { a.a = a.y; }) == given("a", "gate_mode is none"));
  CHECK(plain.refusal([](auto& a) { a.A_log = a.y; }) == given("A_log", "gate_mode is none"));
  CHECK(plain.refusal([](auto& a) { a.dt_bias = a.y; }) == given("dt_bias", "gate_mode is none"));
  CHECK(plain.refusal([](auto& a) { a.g = a.y; }) == given("g", "gate_mode is none"));
  CHECK(plain.refusal([](auto& a) { a.b = a.y; }) == given("b", "beta_mode is one"));
  CHECK(plain.refusal([](auto& a) { a.beta = a.y; }) == given("beta", "beta_mode is one"));
  CHECK(plain.refusal([](auto& a) { a.cu_seqlens = a.y; }) ==
        given("cu_seqlens", "varlen is false"));
  CHECK(plain.refusal([](auto& a) { a.state_indices = a.y; }) ==
        given("state_indices", "state_location is dense"));
  CHECK(plain.refusal([](auto& a) { a.state_out_indices = a.y; }) ==
        given("state_out_indices", "state_location is dense"));
  CHECK(plain.refusal([](auto& a) { a.accepted = a.y; }) ==
        given("accepted", "from_accepted is false"));
  CHECK(plain.refusal([](auto& a) { a.checkpoints = a.y; }) ==
        given("checkpoints", "checkpoints is none"));
  CHECK(plain.refusal([](auto& a) { a.checkpoint_cu_starts = a.y; }) ==
        given("checkpoint_cu_starts", "checkpoints is none"));
  CHECK(plain.refusal([](auto& a) { a.checkpoint_offsets = a.y; }) ==
        given("checkpoint_offsets", "checkpoints is not at"));
  CHECK(plain.refusal([](auto& a) { a.checkpoint_slots = a.y; }) ==
        given("checkpoint_slots", "checkpoints is not at"));
  CHECK(ConvBench(split_problem()).refusal([](auto& a) { a.y = a.q; }) ==
        given("y", "split_qkv is true"));
  const ConvBench reader({.states = {.store = false}});
  CHECK(reader.refusal([](auto& a) { a.state_out = a.state; }) ==
        given("state_out", "store_state is false"));
  const ConvBench writer({.states = {.has_initial = false}});
  CHECK(writer.refusal([](auto& a) { a.has_initial_state = a.y; }) ==
        given("has_initial_state", "the problem's has_initial_state is false"));
  const ConvBench neither({.states = {.has_initial = false, .store = false}});
  CHECK(neither.refusal([](auto& a) { a.state = a.y; }) ==
        given("state", "has_initial_state and store_state are false"));
}

TEST_CASE("StatesOfAConvAreRefusedWithNameAndReason", "[cpu]") {
  const ConvBench bench({});
  CHECK(bench.refusal([](auto& a) { a.state = {}; }) ==
        "gdn_conv: state is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.state.dtype = DType::kF32; }) ==
        "gdn_conv: state has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.state.shape[0] = 3; }) ==
        "gdn_conv: state has shape [3, 512, 3]; accepted: [B = 2, channels = 512, columns = 3]");
  CHECK(bench.refusal([](auto& a) { a.state.shape[2] = 4; }) ==
        "gdn_conv: state has shape [2, 512, 4]; accepted: [B = 2, channels = 512, columns = 3]");
  CHECK(bench.refusal([](auto& a) { a.state.rank = 2; }) ==
        "gdn_conv: state has shape [2, 512]; accepted: [B = 2, channels = 512, columns = 3]");
  CHECK(bench.refusal([](auto& a) { a.state.strides[1] = 2; }) ==
        "gdn_conv: state is written and has overlapping elements, by stride 2; accepted: no "
        "overlap");
  CHECK(bench.refusal([](auto& a) {
    a.state_out = a.state;
    a.state_out.strides[0] = 0;
  }) == "gdn_conv: state_out is written and has overlapping elements, by stride 0; accepted: no "
        "overlap");
  CHECK(bench.refusal([](auto& a) {
    a.state_out = a.state;
    a.state_out.dtype = DType::kF16;
  }) == "gdn_conv: state_out has dtype f16; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.state.strides[0] = INT64_MAX; }) ==
        "gdn_conv: state has strides that overflow 64-bit offsets; accepted: strides inside its "
        "memory");
  // A state that is only read may be that of all.
  const ConvBench reader({.states = {.store = false}});
  ConvArgs args = reader.args();
  args.state.strides[0] = 0;
  CHECK(reader.launched(args).read_stride.slot == 0);
  const ConvBench writer({.states = {.has_initial = false}});
  CHECK(writer.refusal([](auto& a) { a.state = {}; }) ==
        "gdn_conv: state is missing; accepted: a tensor");
}

TEST_CASE("IndicesFlagsAndCountsAreRefusedWithNameAndReason", "[cpu]") {
  ConvStates states = kPool;
  states.index_dtype = DType::kI64;
  const ConvBench bench({.states = states, .from_accepted = true});
  CHECK(bench.refusal([](auto& a) { a.state_indices = {}; }) ==
        "gdn_conv: state_indices is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.state_indices.dtype = DType::kI32; }) ==
        "gdn_conv: state_indices has dtype i32; accepted: i64");
  CHECK(bench.refusal([](auto& a) { a.state_indices.shape[0] = 3; }) ==
        "gdn_conv: state_indices has shape [3]; accepted: [B = 2]");
  CHECK(bench.refusal([](auto& a) {
    a.state_out_indices = a.state_indices;
    a.state_out_indices.shape[0] = 1;
  }) == "gdn_conv: state_out_indices has shape [1]; accepted: [B = 2]");
  const auto scratch = [](std::int64_t slot) {
    return [slot](auto& a) {
      a.pad_slot_id = 0;
      a.scratch_slot = slot;
    };
  };
  CHECK(bench.refusal(scratch(9)) == "gdn_conv: scratch_slot is 9; accepted: 0 to 8");
  CHECK(bench.refusal(scratch(-1)) == "gdn_conv: scratch_slot is -1; accepted: 0 to 8");
  CHECK(bench.refusal([&](auto& a) {
    a.state_out = Tensor::contiguous(address(20), DType::kBF16, {4, kChannels, 3});
    scratch(4)(a);
  }) == "gdn_conv: scratch_slot is 4; accepted: 0 to 3");
  CHECK(bench.refusal([](auto& a) { a.accepted = {}; }) ==
        "gdn_conv: accepted is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.accepted.dtype = DType::kI64; }) ==
        "gdn_conv: accepted has dtype i64; accepted: i32");
  CHECK(bench.refusal([](auto& a) { a.accepted.shape[0] = 1; }) ==
        "gdn_conv: accepted has shape [1]; accepted: [B = 2]");
  CHECK(bench.refusal([](auto& a) { a.has_initial_state = a.accepted; }) ==
        "gdn_conv: has_initial_state has dtype i32; accepted: bool");
  CHECK(bench.refusal([](auto& a) {
    a.has_initial_state = Tensor::contiguous(address(22), DType::kBool, {3});
  }) == "gdn_conv: has_initial_state has shape [3]; accepted: [B = 2]");
  ConvArgs args = bench.args();
  scratch(8)(args);
  CHECK(bench.launched(args).padding.scratch == 8);
  CHECK(ConvBench({.states = kPool}).refusal([](auto& a) { a.scratch_slot = 1; }) ==
        "gdn_conv: scratch_slot is 1; accepted: none, pad_slot_id is absent");
}

TEST_CASE("BoundsOfAConvAreRefusedWithNameAndReason", "[cpu]") {
  const ConvBench bench({.varlen = true, .cu_seqlens_dtype = DType::kI64});
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens = {}; }) ==
        "gdn_conv: cu_seqlens is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens.dtype = DType::kI32; }) ==
        "gdn_conv: cu_seqlens has dtype i32; accepted: i64");
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens.rank = 2; }) ==
        "gdn_conv: cu_seqlens has 2 dimensions; accepted: 1");
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens.shape[0] = 0; }) ==
        "gdn_conv: cu_seqlens has N = -1; accepted: 0 to 2147483647");
  CHECK(bench.refusal([](auto& a) { a.cu_seqlens.shape[0] = 4; }) ==
        "gdn_conv: state has shape [2, 512, 3]; accepted: [N = 3, channels = 512, columns = 3]");
}

TEST_CASE("TheScaleOfQIsFinite", "[cpu]") {
  const ConvBench split(split_problem());
  CHECK(split.refusal([](auto& a) { a.scale = INFINITY; }) ==
        "gdn_conv: scale is inf; accepted: a finite number");
  CHECK(split.refusal([](auto& a) { a.scale = NAN; }) ==
        "gdn_conv: scale is nan; accepted: a finite number");
  CHECK(ConvBench({}).refusal([](auto& a) { a.scale = 0.5f; }) ==
        "gdn_conv: scale is 0.5; accepted: 1, split_qkv is false");
}

TEST_CASE("AConvMayOverlapTheKernelInFrontOfIt", "[cpu]") {
  const ConvBench bench({});
  ConvArgs args = bench.args();
  bench.launched(args);
  CHECK(bench.fake->launches.back().attributes.empty());
  args.enable_pdl = true;
  bench.launched(args);
  REQUIRE(bench.fake->launches.back().attributes.size() == 1);
  CHECK(bench.fake->launches.back().attributes[0].id ==
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
}

TEST_CASE("AConvSaysWhatItRuns", "[cpu]") {
  const ConvBench bench(gated_problem());
  const ConvSize size{.sequences = 1, .tokens = 4096};
  const Choice chosen = bench.conv().choice(size);
  CHECK((chosen.path == "portable" && chosen.rung == Rung::kDefault));
  const GdnConvKey key = bench.key(size);
  CHECK(chosen.configuration.starts_with(
      "path=portable;lane_channels=" + std::to_string(key.lane_channels) + ";ahead="));
  CHECK(bench.conv().problem().to_json() == gated_problem().to_json());
}

}  // namespace
}  // namespace cubinery::gdn::conv_launch_test
