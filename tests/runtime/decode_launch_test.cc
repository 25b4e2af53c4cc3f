// Launches of the decode operator on a fake libcuda: what reaches the kernel, and what is refused.
// The same refusals, and the arithmetic, are tested on GPUs in tests/gpu.
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>

#include "cubinery/gdn.h"
#include "gdn_decode/fields.h"
#include "tests/catch.h"
#include "tests/function_ref.h"
#include "tests/runtime/fake_operator.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery::gdn {
namespace {

using test::address;

// An operator on the fake driver, and good arguments for it.
class Bench {
 public:
  explicit Bench(const DecodeProblem& problem)
      : problem_(problem), decode_(test::fake_operator(fake, dir_, problem)) {}

  const Decode& decode() const { return decode_; }

  DecodeArgs args(std::int64_t batch) const {
    const DecodeProblem& p = problem_;
    const auto rows = [&](int at, DType dtype, std::int64_t heads, std::int64_t dim) {
      return Tensor::contiguous(address(at), dtype, {batch, heads, dim});
    };
    const bool kv = p.states.layout == StateLayout::kKV;
    const std::int64_t heads = p.heads.count();
    DecodeArgs args{.o = rows(4, p.output_dtype, heads, p.value_dim)};
    if (p.conv.is_there()) {
      add_conv(batch, &args);
    } else {
      args.q = rows(1, p.dtype, p.heads.q, p.key_dim);
      args.k = rows(2, p.dtype, p.heads.k, p.key_dim);
      args.v = rows(3, p.dtype, p.heads.v, p.value_dim);
    }
    args.g = Tensor::contiguous(address(5), p.inputs.gate_dtype, {batch, heads});
    args.beta = Tensor::contiguous(address(6), p.inputs.beta_dtype, {batch, heads});
    const bool pool = p.states.location == StateLocation::kPool;
    args.state = Tensor::contiguous(
        address(7), p.states.dtype,
        {pool ? 9 : batch, heads, kv ? p.key_dim : p.value_dim, kv ? p.value_dim : p.key_dim});
    if (pool) args.state_indices = Tensor::contiguous(address(8), p.states.index_dtype, {batch});
    if (p.output_norm == OutputNorm::kNone) return args;
    args.z = rows(9, p.dtype, heads, p.value_dim);
    args.norm_weight = Tensor::contiguous(address(10), p.norm_weight_dtype, {p.value_dim});
    return args;
  }

  void add_conv(std::int64_t batch, DecodeArgs* args) const {
    const DecodeConv& conv = problem_.conv;
    const Heads& heads = problem_.heads;
    const std::int64_t channels =
        (heads.q + heads.k) * problem_.key_dim + heads.v * problem_.value_dim;
    const std::int64_t columns = conv.whole_window ? conv.width : conv.width - 1;
    const std::int64_t slots = problem_.states.location == StateLocation::kPool ? 9 : batch;
    args->x = Tensor::contiguous(address(11), problem_.dtype, {batch, channels});
    args->conv_weight = Tensor::contiguous(address(12), conv.weight_dtype, {channels, conv.width});
    args->conv_state =
        Tensor::contiguous(address(13), conv.state_dtype, {slots, channels, columns});
    if (conv.has_bias) {
      args->conv_bias = Tensor::contiguous(address(14), conv.weight_dtype, {channels});
    }
    if (conv.state_layout == ConvStateLayout::kColumns) return;
    args->conv_state.strides = {channels * columns, 1, channels};
  }

  GdnDecodeParams launched(const DecodeArgs& args) const {
    const Status status = decode_.launch(nullptr, args);
    INFO(status.message());
    REQUIRE(status.ok());
    return test::params_of<GdnDecodeParams>(fake->launches.back());
  }

  // The message with which `spoil` makes good arguments for two requests bad.
  std::string refusal(FunctionRef<void(DecodeArgs&)> spoil) const {
    DecodeArgs spoilt = args(2);
    spoil(spoilt);
    return test::refused(fake, [&] { return decode_.launch(nullptr, spoilt); });
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};

 private:
  test::TempDir dir_;
  DecodeProblem problem_;
  Decode decode_;
};

TEST_CASE("ALaunchPassesPointersStridesAndGroups", "[cpu]") {
  const Bench bench({.heads = {.q = 4, .k = 8, .v = 16}});
  DecodeArgs args = bench.args(3);
  args.q.strides = {10000, 200, 1};
  args.scale = 0.5f;
  const GdnDecodeParams p = bench.launched(args);
  CHECK((p.q.data == address(1) && p.k.data == address(2) && p.v.data == address(3) &&
         p.o.data == address(4)));
  CHECK((p.gates.g.data == address(5) && p.gates.beta.data == address(6) &&
         p.gates.A_log.data == nullptr));
  CHECK((p.states.read.data == address(7) && p.states.written.data == address(7) &&
         p.states.read_indices.data == nullptr));
  CHECK(p.q.stride == RequestStrides{10000, 200});
  CHECK(p.k.stride == RequestStrides{8 * 128, 128});
  CHECK(p.states.read.stride == StateStrides{16 * 128 * 128, 128 * 128});
  CHECK((p.requests == 3 && p.heads == 16));
  CHECK((p.q.group == 4 && p.k.group == 2 && p.v.group == 1));
  CHECK(p.scale == 0.5f);
  CHECK(bench.launched(bench.args(1)).scale == 1.0f / std::sqrt(128.0f));
}

TEST_CASE("OneTokenMayBeADimensionOfItsOwn", "[cpu]") {
  const Bench bench({});
  const GdnDecodeParams plain = bench.launched(bench.args(2));
  DecodeArgs args = bench.args(2);
  args.q = Tensor::contiguous(args.q.data, args.q.dtype, {2, 1, 16, 128});
  args.g = Tensor::contiguous(args.g.data, args.g.dtype, {2, 1, 32});
  const GdnDecodeParams with_token = bench.launched(args);
  CHECK(std::memcmp(&plain, &with_token, sizeof plain) == 0);
}

TEST_CASE("EnoughWarpsForTheGridAndNoMore", "[cpu]") {
  const Bench bench({.key_dim = 64, .value_dim = 96});
  for (const std::int64_t batch : {1, 2, 3, 7, 64, 1001}) {
    bench.launched(bench.args(batch));
    const DecodeProblem& problem = bench.decode().problem();
    const std::string chosen = bench.decode().choice(batch).configuration;
    const GdnDecodeKey key = test::decode_key(problem, test::values_in(problem, chosen)).value();
    CHECK(bench.decode().kernel(batch).info().canonical == canonical(key));
    const int warps = 32 * 96 / key.warp_v;  // of a request
    const CUlaunchConfig& config = bench.fake->launches.back().config;
    CHECK(config.gridDimX == static_cast<unsigned>((warps + key.warps - 1) / key.warps));
    CHECK((config.gridDimY == batch && config.gridDimZ == 1));
    CHECK(config.blockDimX == static_cast<unsigned>(threads(key)));
  }
}

TEST_CASE("RequestsBeyondAGridsSecondDimensionGoOnInTheThird", "[cpu]") {
  const Bench bench({});
  bench.launched(bench.args(65536));
  const CUlaunchConfig& config = bench.fake->launches.back().config;
  CHECK((config.gridDimY == 65535 && config.gridDimZ == 2));
}

TEST_CASE("AnEmptyBatchLaunchesNothing", "[cpu]") {
  const Bench bench({});
  CHECK(bench.decode().launch(nullptr, bench.args(0)).ok());
  CHECK(bench.fake->launches.empty());
}

TEST_CASE("ABatchThatNoGridCanHoldIsRefused", "[cpu]") {
  const Bench bench({});
  const auto with_batch = [](std::int64_t batch) {
    return [=](DecodeArgs& args) { args.q.shape[0] = batch; };
  };
  CHECK(bench.refusal(with_batch(-1)).starts_with("gdn_decode: q has B = -1; accepted: 0 to "));
  for (const std::int64_t batch : {INT64_MIN, INT64_MAX}) {
    CHECK(bench.refusal(with_batch(batch))
              .starts_with("gdn_decode: q has B = " + std::to_string(batch) + "; accepted: 0 to "));
  }
  for (const int bits : {32, 40, 62}) {
    const std::string text = bench.refusal(with_batch(std::int64_t{1} << bits));
    CHECK(text.find("accepted: 0 to ") != std::string::npos);
  }
  CHECK(bench.refusal([](DecodeArgs& args) { args.q = {}; }) ==
        "gdn_decode: q is missing; accepted: a tensor");
}

TEST_CASE("PdlNeedsHopper", "[cpu]") {
  const Bench bench({});
  DecodeArgs args = bench.args(2);
  bench.launched(args);
  CHECK(bench.fake->launches.back().attributes.empty());
  args.enable_pdl = true;
  bench.launched(args);
  CHECK(bench.fake->launches.back().attributes.size() == 1);
}

TEST_CASE("RowsAreRefusedWithNameAndReason", "[cpu]") {
  const Bench bench({});
  CHECK(bench.refusal([](auto& a) { a.k.dtype = DType::kF16; }) ==
        "gdn_decode: k has dtype f16; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.v.data = nullptr; }) ==
        "gdn_decode: v is null; accepted: a device pointer");
  CHECK(bench.refusal([](auto& a) { a.o.shape[1] = 16; }) ==
        "gdn_decode: o has shape [2, 16, 128]; accepted: [B = 2, heads = 32, value_dim = 128], or "
        "with one token behind the first dimension");
  CHECK(bench.refusal([](auto& a) { a.q.strides[2] = 2; }) ==
        "gdn_decode: q has innermost stride 2; accepted: 1");
  for (const std::size_t d : {std::size_t{0}, std::size_t{1}}) {
    CHECK(
        bench.refusal([d](auto& a) { a.o.strides[d] = 0; }) ==
        "gdn_decode: o is written and has overlapping elements, by stride 0; accepted: no overlap");
  }
  // Inputs may be broadcast.
  DecodeArgs args = bench.args(2);
  args.q.strides[0] = args.k.strides[1] = args.g.strides[0] = 0;
  bench.launched(args);
}

TEST_CASE("TensorsThatTheProblemDoesNotUseAreRefused", "[cpu]") {
  const Bench plain({});
  CHECK(plain.refusal([](auto& a) { a.A_log = a.g; }) ==
        "gdn_decode: A_log is given; accepted: no tensor, gate_mode is neither computed nor "
        "lower_bound");
  CHECK(plain.refusal([](auto& a) { a.dt_bias = a.g; }) ==
        "gdn_decode: dt_bias is given; accepted: no tensor, gate_mode is neither computed nor "
        "lower_bound");
  CHECK(plain.refusal([](auto& a) { a.state_indices = a.g; }) ==
        "gdn_decode: state_indices is given; accepted: no tensor, state_location is dense");
  CHECK(plain.refusal([](auto& a) { a.scratch_slot = 1; }) ==
        "gdn_decode: scratch_slot is 1; accepted: none, pad_slot_id is absent");

  const Bench bare({.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}});
  CHECK(bare.refusal([](auto& a) { a.beta = {}; }) ==
        "gdn_decode: g is given; accepted: no tensor, gate_mode is none");
  CHECK(bare.refusal([](auto& a) { a.g = {}; }) ==
        "gdn_decode: beta is given; accepted: no tensor, beta_mode is one");
  const Bench reader({.states = {.store = false}});
  CHECK(reader.refusal([](auto& a) { a.state_out = a.state; }) ==
        "gdn_decode: state_out is given; accepted: no tensor, store_state is false");
}

TEST_CASE("StatesAreRefusedWithNameAndReason", "[cpu]") {
  const Bench bench({.value_dim = 64});
  CHECK(bench.refusal([](auto& a) { a.state.shape[2] = 128; }) ==
        "gdn_decode: state has shape [2, 32, 128, 128]; accepted: [B = 2, heads = 32, value_dim = "
        "64, key_dim = 128]");
  CHECK(bench.refusal([](auto& a) { a.state.data = reinterpret_cast<void*>(8); }) ==
        "gdn_decode: state at 0x8 is misaligned; accepted: a multiple of 16 bytes");
  CHECK(bench.refusal([](auto& a) { a.state.strides[2] = 132; }) ==
        "gdn_decode: state has strides 132, 1 in its matrices; accepted: 128, 1 (no gaps)");
  CHECK(bench.refusal([](auto& a) { a.state.strides[1] += 2; }) ==
        "gdn_decode: state has head stride 8194; accepted: multiples of 4 from 8192 up");
  CHECK(bench.refusal([](auto& a) { a.state.strides[0] = 0; }) ==
        "gdn_decode: state has B stride 0; accepted: multiples of 4 from 8192 up");
  CHECK(bench.refusal([](auto& a) {
    a.state_out = a.state;
    a.state_out.dtype = DType::kBF16;
  }) == "gdn_decode: state_out has dtype bf16; accepted: f32");
  // Two requests' heads, each without gaps, one upon the other.
  CHECK(bench.refusal([](auto& a) { a.state.strides[0] = a.state.strides[1]; }) ==
        "gdn_decode: state is written and has overlapping elements, by stride 8192; accepted: no "
        "overlap");
  DecodeArgs args = bench.args(2);
  args.state.strides[1] += 4;
  args.state.strides[0] = 33 * args.state.strides[1];
  CHECK(bench.launched(args).states.read.stride.head == 8196);
}

TEST_CASE("StatesInFp8AreTensorsOfTheirDtype", "[cpu]") {
  for (const auto& [dtype, other, name] : {std::tuple{DType::kF8E4M3, DType::kF8E5M2, "f8e4m3"},
                                           {DType::kF8E5M2, DType::kF8E4M3, "f8e5m2"}}) {
    const Bench bench(
        {.value_dim = 64, .states = {.dtype = dtype, .location = StateLocation::kPool}});
    const DecodeArgs args = bench.args(2);
    const GdnDecodeParams params = bench.launched(args);
    CHECK((params.states.read.slots == 9 && params.states.read.stride.head == 64 * 128));
    const DType given = other;
    CHECK(bench.refusal([&](auto& a) { a.state.dtype = given; })
              .ends_with(std::string("; accepted: ") + name));
    CHECK(bench.refusal([](auto& a) { a.state.strides[1] += 8; }) ==
          "gdn_decode: state has head stride 8200; accepted: multiples of 16 from 8192 up");
  }
}

TEST_CASE("PoolsHaveSlotsAndIndices", "[cpu]") {
  const Bench bench({.states = {.index_dtype = DType::kI64, .location = StateLocation::kPool}});
  DecodeArgs args = bench.args(2);
  args.pad_slot_id = -1;
  args.scratch_slot = 8;
  GdnDecodeParams p = bench.launched(args);
  CHECK((p.states.read.slots == 9 && p.states.written.slots == 9 && p.states.padding.scratch == 8));
  CHECK((p.states.read_indices.data == address(8) && p.states.write_indices.data == address(8)));
  args.state_out_indices = args.state_indices;
  args.state_out_indices.data = address(9);
  p = bench.launched(args);
  CHECK((p.states.read_indices.data == address(8) && p.states.write_indices.data == address(9)));
  CHECK(bench.refusal([](auto& a) {
    a.pad_slot_id = 0;
    a.scratch_slot = 9;
  }) == "gdn_decode: scratch_slot is 9; accepted: 0 to 8");
  CHECK(bench.refusal([](auto& a) { a.state_indices = {}; })
            .starts_with("gdn_decode: state_indices "));
  CHECK(bench.refusal([](auto& a) { a.state_indices.dtype = DType::kI32; }) ==
        "gdn_decode: state_indices has dtype i32; accepted: i64");
}

TEST_CASE("PaddingIsAnIndexAndWhatBecomesOfIt", "[cpu]") {
  const Bench bench({.states = {.location = StateLocation::kPool}});
  DecodeArgs args = bench.args(2);
  const auto padding = [&] { return bench.launched(args).states.padding; };
  CHECK((padding().index == PaddingParams::kNone && padding().scratch == PaddingParams::kNone));
  for (const std::int64_t id : {-1, 0, 5, 1000}) {
    args.pad_slot_id = id;
    args.zero_padding = false;
    CHECK((padding().index == id && padding().scratch == PaddingParams::kDropped));
    CHECK_FALSE(padding().zero);
    args.zero_padding = true;
    CHECK((padding().zero && padding().scratch == PaddingParams::kDropped));
  }
  CHECK(bench.refusal([](auto& a) { a.scratch_slot = 0; }) ==
        "gdn_decode: scratch_slot is 0; accepted: none, pad_slot_id is absent");
  CHECK(bench.refusal([](auto& a) { a.zero_padding = true; }) ==
        "gdn_decode: zero_padding is true; accepted: false, pad_slot_id is absent");
  CHECK(bench.refusal([](auto& a) {
    a.pad_slot_id = 0;
    a.zero_padding = true;
    a.scratch_slot = 0;
  }) == "gdn_decode: zero_padding is true; accepted: false, scratch_slot is given");
  CHECK(Bench({}).refusal([](auto& a) { a.pad_slot_id = -1; }) ==
        "gdn_decode: pad_slot_id is -1; accepted: none, state_location is dense");
}

TEST_CASE("TheScaleIsFinite", "[cpu]") {
  const Bench bench({});
  CHECK(bench.refusal([](auto& a) { a.scale = INFINITY; }) ==
        "gdn_decode: scale is inf; accepted: a finite number");
  CHECK(bench.refusal([](auto& a) { a.scale = NAN; }).starts_with("gdn_decode: scale is "));
}

TEST_CASE("ANormTakesItsGateAndWeightAsTheyLie", "[cpu]") {
  const Bench bench({.output_norm = OutputNorm::kGatedRms, .norm_weight_dtype = DType::kBF16});
  DecodeArgs args = bench.args(3);
  args.z.strides = {9000, 200, 1};
  args.norm_weight.strides = {2};
  GdnDecodeParams p = bench.launched(args);
  CHECK((p.norm.z.data == address(9) && p.norm.weight.data == address(10)));
  CHECK((p.norm.z.stride == RequestStrides{9000, 200} && p.norm.z.group == 1));
  CHECK(p.norm.weight.stride == 2);
  CHECK(p.norm.eps == 1e-6f);
  args.norm_eps = 0.0f;
  args.z = Tensor::contiguous(args.z.data, args.z.dtype, {3, 1, 32, 128});
  p = bench.launched(args);
  CHECK(p.norm.eps == 0);
  CHECK(p.norm.z.stride == RequestStrides{32 * 128, 128});
}

TEST_CASE("ABlockOfANormHasWholeHeads", "[cpu]") {
  const Bench bench({.value_dim = 96, .output_norm = OutputNorm::kGatedRms});
  for (const std::int64_t batch : {1, 64}) {
    bench.launched(bench.args(batch));
    const CUlaunchConfig& config = bench.fake->launches.back().config;
    CHECK(config.gridDimX == 32);
    CHECK((config.blockDimX == 96 || config.blockDimX == 384));
  }
}

TEST_CASE("ANormIsRefusedWithNameAndReason", "[cpu]") {
  const Bench bench({.output_norm = OutputNorm::kGatedRms});
  CHECK(bench.refusal([](auto& a) { a.z = {}; }) == "gdn_decode: z is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.z.dtype = DType::kF32; }) ==
        "gdn_decode: z has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.z.shape[1] = 16; }) ==
        "gdn_decode: z has shape [2, 16, 128]; accepted: [B = 2, heads = 32, value_dim = 128], or "
        "with one token behind the first dimension");
  CHECK(bench.refusal([](auto& a) { a.z.strides[2] = 2; }) ==
        "gdn_decode: z has innermost stride 2; accepted: 1");
  CHECK(bench.refusal([](auto& a) { a.norm_weight = {}; }) ==
        "gdn_decode: norm_weight is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.norm_weight.dtype = DType::kBF16; }) ==
        "gdn_decode: norm_weight has dtype bf16; accepted: f32");
  CHECK(bench.refusal([](auto& a) { a.norm_weight.shape[0] = 64; }) ==
        "gdn_decode: norm_weight has shape [64]; accepted: [value_dim = 128]");
  CHECK(bench.refusal([](auto& a) { a.norm_eps = -1.0f; }) ==
        "gdn_decode: norm_eps is -1; accepted: finite numbers from 0 up");
  CHECK(bench.refusal([](auto& a) { a.norm_eps = NAN; }).starts_with("gdn_decode: norm_eps is "));

  const Bench plain({});
  CHECK(plain.refusal([](auto& a) { a.z = a.o; }) ==
        "gdn_decode: z is given; accepted: no tensor, output_norm is none");
  CHECK(plain.refusal([](auto& a) { a.norm_weight = a.g; }) ==
        "gdn_decode: norm_weight is given; accepted: no tensor, output_norm is none");
  CHECK(plain.refusal([](auto& a) { a.norm_eps = 1e-5f; }) ==
        "gdn_decode: norm_eps is 1e-05; accepted: none, output_norm is none");
}

TEST_CASE("AConvolutionTakesItsTensorsAsTheyLie", "[cpu]") {
  const Bench bench({.heads = {.q = 4, .k = 8, .v = 8},
                     .states = {.location = StateLocation::kPool},
                     .conv = {.width = 3,
                              .has_bias = true,
                              .state_layout = ConvStateLayout::kChannels,
                              .whole_window = true}});
  constexpr std::int64_t kChannels = 20 * 128;
  DecodeArgs args = bench.args(2);
  args.x.strides = {kChannels + 8, 1};
  args.conv_weight.strides = {7, 2};
  args.conv_bias.strides = {3};
  args.conv_state.strides = {4 * kChannels, 1, kChannels + 4};
  GdnDecodeParams p = bench.launched(args);
  CHECK((p.conv.x.data == address(11) && p.conv.x.batch == kChannels + 8 && p.conv.x.channel == 1));
  CHECK((p.conv.weight == address(12) && p.conv.weight_channel == 7 && p.conv.weight_tap == 2));
  CHECK_FALSE(p.conv.weight_packed);
  CHECK((p.conv.bias.data == address(14) && p.conv.bias.stride == 3));
  CHECK((p.conv.read == address(13) && p.conv.written == address(13)));
  CHECK((p.conv.read_stride.slot == 4 * kChannels && p.conv.read_stride.channel == 1));
  CHECK((p.conv.read_stride.column == kChannels + 4 && p.conv.columns == 3));
  CHECK((p.k_first == 4 * 128 && p.v_first == 12 * 128));
  CHECK((p.q.group == 2 && p.k.group == 1 && p.v.group == 1));
  // Blocks that share inputs are a cluster: of two heads of q, and of a head's columns.
  CHECK(bench.fake->launches.back().config.gridDimY == 2);
  args.x = Tensor::contiguous(args.x.data, DType::kBF16, {2, 1, kChannels});
  p = bench.launched(args);
  CHECK(p.conv.x.batch == kChannels);
}

// Nobody steps along a dimension of one column.
TEST_CASE("AConvolutionOfTwoTapsHasStatesOfOneColumn", "[cpu]") {
  for (const auto layout : {ConvStateLayout::kColumns, ConvStateLayout::kChannels}) {
    const Bench bench({.conv = {.width = 2, .state_layout = layout}});
    CHECK(bench.launched(bench.args(2)).conv.columns == 1);
  }
}

// An index is a slot of both states, so the smaller number of slots counts.
TEST_CASE("AConvolutionSharesTheSlotsOfStates", "[cpu]") {
  const Bench bench({.states = {.location = StateLocation::kPool}, .conv = {.width = 4}});
  DecodeArgs args = bench.args(2);
  CHECK(bench.launched(args).states.read.slots == 9);
  args.conv_state.shape[0] = 5;
  GdnDecodeParams p = bench.launched(args);
  CHECK((p.states.read.slots == 5 && p.states.written.slots == 5));
  args.state.shape[0] = 4;
  CHECK(bench.launched(args).states.read.slots == 4);
  CHECK(bench.refusal([](auto& a) {
    a.conv_state.shape[0] = 5;
    a.pad_slot_id = 0;
    a.scratch_slot = 5;
  }) == "gdn_decode: scratch_slot is 5; accepted: 0 to 4");
}

TEST_CASE("AConvolutionIsRefusedWithNameAndReason", "[cpu]") {
  const Bench bench({.heads = {.q = 1, .k = 1, .v = 2}, .conv = {.width = 4}});
  const std::string op = "gdn_decode: ";
  CHECK(bench.refusal([](auto& a) { a.q = a.o; }) ==
        op + "q is given; accepted: no tensor, with conv_width they come from x");
  CHECK(bench.refusal([](auto& a) { a.k = a.o; }) ==
        op + "k is given; accepted: no tensor, with conv_width they come from x");
  CHECK(bench.refusal([](auto& a) { a.v = a.o; }) ==
        op + "v is given; accepted: no tensor, with conv_width they come from x");
  CHECK(bench.refusal([](auto& a) { a.x = {}; }) == op + "x is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.x.dtype = DType::kF32; }) ==
        op + "x has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.x.shape[1] = 256; })
            .starts_with(op + "x has shape [2, 1, 256]; accepted: "));
  CHECK(bench.refusal([](auto& a) {
    a.x.strides = {513, 1};
  }) == op + "x does not lie in vectors; accepted: channels next to each other, all else at "
             "multiples of 4 elements");
  CHECK(bench.refusal([](auto& a) {
               a.x.strides = {2, 4};
             })
            .starts_with(op + "x does not lie in vectors"));
  CHECK(bench.refusal([](auto& a) { a.conv_weight = {}; }) ==
        op + "conv_weight is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.conv_weight.dtype = DType::kF32; }) ==
        op + "conv_weight has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.conv_weight.shape[1] = 3; }) ==
        op + "conv_weight has shape [512, 3]; accepted: [channels = 512, width = 4]");
  CHECK(bench.refusal([](auto& a) { a.conv_bias = a.conv_weight; }) ==
        op + "conv_bias is given; accepted: no tensor, has_bias is false");
  CHECK(bench.refusal([](auto& a) { a.conv_state = {}; }) ==
        op + "conv_state is missing; accepted: a tensor");
  CHECK(bench.refusal([](auto& a) { a.conv_state.dtype = DType::kF32; }) ==
        op + "conv_state has dtype f32; accepted: bf16");
  CHECK(bench.refusal([](auto& a) { a.conv_state.shape[2] = 4; }) ==
        op + "conv_state has shape [2, 512, 4]; accepted: [B = 2, channels = 512, columns = 3]");
  CHECK(bench.refusal([](auto& a) { a.conv_state.shape[0] = 3; })
            .starts_with(op + "conv_state has shape [3, 512, 3]; accepted: [B = 2,"));
  const std::string gaps =
      op +
      "conv_state does not lie in vectors; accepted: [channels, columns] without gaps, all "
      "else at multiples of 4 elements";
  CHECK(bench.refusal([](auto& a) { a.conv_state.strides = {4 * 512, 4, 1}; }) == gaps);
  CHECK(bench.refusal([](auto& a) { a.conv_state.strides = {3 * 512 + 1, 3, 1}; }) == gaps);
  CHECK(bench.refusal([](auto& a) {
    a.conv_state.data = static_cast<char*>(a.conv_state.data) + 2;
  }) == gaps);
  CHECK(bench
            .refusal([](auto& a) {
              a.conv_state_out = a.conv_state;
              a.conv_state_out.strides[0] += 2;
              a.conv_state_out.data = address(15);
            })
            .starts_with(op + "conv_state_out does not lie in vectors"));

  const Bench biased({.conv = {.width = 4, .has_bias = true}});
  CHECK(biased.refusal([](auto& a) { a.conv_bias = {}; }) ==
        op + "conv_bias is missing; accepted: a tensor");
  const Bench stateless({.states = {.has_initial = false, .store = false}, .conv = {.width = 4}});
  CHECK(stateless.refusal([](auto& a) { a.state = {}; }) ==
        op + "conv_state is given; accepted: no tensor, has_initial_state and store_state are "
             "false");

  const Bench plain({});
  const auto given = [&](Tensor DecodeArgs::*tensor) {
    return plain.refusal([=](auto& a) { a.*tensor = a.o; });
  };
  const std::string width = " is given; accepted: no tensor, conv_width is 0";
  CHECK(given(&DecodeArgs::x) == op + "x" + width);
  CHECK(given(&DecodeArgs::conv_weight) == op + "conv_weight" + width);
  CHECK(given(&DecodeArgs::conv_bias) == op + "conv_bias" + width);
  CHECK(given(&DecodeArgs::conv_state) == op + "conv_state" + width);
  CHECK(given(&DecodeArgs::conv_state_out) == op + "conv_state_out" + width);
}

}  // namespace
}  // namespace cubinery::gdn
