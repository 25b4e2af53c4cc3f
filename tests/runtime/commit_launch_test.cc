// Tables and launches of the commit operator on a fake libcuda: what reaches the kernel, and what
// is refused.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "gdn_commit/fields.h"
#include "runtime/gdn/shared/requests.h"
#include "tests/catch.h"
#include "tests/function_ref.h"
#include "tests/runtime/fake_operator.h"

namespace cubinery::gdn::commit_launch_test {
namespace {

using test::address;

constexpr std::int64_t kRequests = 2, kTokens = 3, kSlots = 9, kLayers = 5;
constexpr long long kMatrix = 128 * 128, kSlot = 32 * kMatrix;

// An operator on the fake driver, and good arguments for it: two requests of three tokens.
class CommitBench {
 public:
  explicit CommitBench(const CommitProblem& problem)
      : problem_(problem), commit_(test::fake_operator(fake, dir_, problem)) {}

  const Commit& commit() const { return commit_; }

  CommitLayer layer() const {
    const CommitProblem& p = problem_;
    const std::int64_t heads = p.heads.count();
    const auto rows = [&](int at, std::int64_t own, std::int64_t dim) {
      return p.varlen ? Tensor::contiguous(address(at), p.dtype, {kRequests * kTokens, own, dim})
                      : Tensor::contiguous(address(at), p.dtype, {kRequests, kTokens, own, dim});
    };
    const auto numbers = [&](int at, DType dtype) {
      return p.varlen ? Tensor::contiguous(address(at), dtype, {kRequests * kTokens, heads})
                      : Tensor::contiguous(address(at), dtype, {kRequests, kTokens, heads});
    };
    const std::int64_t slots = p.states.location == StateLocation::kPool ? kSlots : kRequests;
    return {.k = rows(1, p.heads.k, p.key_dim),
            .v = rows(2, p.heads.v, p.value_dim),
            .g = numbers(3, p.inputs.gate_dtype),
            .beta = numbers(4, p.inputs.beta_dtype),
            .state = Tensor::contiguous(address(5), p.states.dtype,
                                        {slots, heads, p.value_dim, p.key_dim})};
  }

  CommitArgs args() const { return with_numbers({.layer = layer()}); }
  CommitArgs table_args() const {
    return with_numbers({.layers = Tensor::contiguous(address(10), DType::kI64, {kLayers, 32})});
  }

  GdnCommitParams launched(const CommitArgs& args) const {
    const Status status = commit_.launch(nullptr, args);
    INFO(status.message());
    REQUIRE(status.ok());
    return test::params_of<GdnCommitParams>(fake->launches.back());
  }

  // The message with which `spoil` makes good arguments bad.
  std::string refusal(FunctionRef<void(CommitArgs&)> spoil) const { return refusal(args(), spoil); }
  std::string table_refusal(FunctionRef<void(CommitArgs&)> spoil) const {
    return refusal(table_args(), spoil);
  }

  test::FakeDriver fake{CUBINERY_FAKE_DRIVER};

 private:
  // What comes beside the layers.
  CommitArgs with_numbers(CommitArgs args) const {
    args.accepted = Tensor::contiguous(address(6), problem_.accepted_dtype, {kRequests});
    if (problem_.varlen) {
      args.cu_seqlens = Tensor::contiguous(address(7), problem_.cu_seqlens_dtype, {kRequests + 1});
    }
    if (problem_.states.location == StateLocation::kPool) {
      args.state_indices = Tensor::contiguous(address(8), problem_.states.index_dtype, {kRequests});
    }
    return args;
  }
  std::string refusal(CommitArgs args, FunctionRef<void(CommitArgs&)> spoil) const {
    spoil(args);
    return test::refused(fake, [&] { return commit_.launch(nullptr, args); });
  }

  test::TempDir dir_;
  CommitProblem problem_;
  Commit commit_;
};

const States kPool{.location = StateLocation::kPool};

std::int64_t word(const Tensor& tensor) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data));
}

// Word by word: the kernel reads tables that other builds of the library made.
TEST_CASE("ATableHasPointersStridesAndRoom", "[cpu]") {
  const CommitBench bench({.inputs = {.gate_mode = GateMode::kComputed}});
  CommitLayer first = bench.layer(), second = first;
  first.A_log = second.A_log = Tensor::contiguous(address(11), DType::kF32, {32});
  first.dt_bias = second.dt_bias = Tensor::contiguous(address(12), DType::kF32, {32});
  second.k.data = address(21);
  second.k.strides[0] = 3 * 4096;  // k and v in one tensor
  second.k.strides[1] = 4096;
  second.state_out = Tensor::contiguous(address(22), DType::kF32, {2, 32, 128, 128});
  const std::vector<std::int64_t> words = bench.commit().table({first, second}).value();
  REQUIRE(words.size() == 64);
  const std::int64_t aligned_pair = (std::int64_t{1} << 32) + 2;  // and heads for each of k
  const std::int64_t aligned_one = (std::int64_t{1} << 32) + 1;
  const std::vector<std::int64_t> expected = {2,
                                              3,  // room
                                              word(first.k),
                                              3 * 2048,
                                              2048,
                                              128,
                                              aligned_pair,  // k
                                              word(first.v),
                                              3 * 4096,
                                              4096,
                                              128,
                                              aligned_one,  // v
                                              word(first.g),
                                              3 * 32,
                                              32,
                                              1,
                                              word(first.beta),
                                              3 * 32,
                                              32,
                                              1,  // gates
                                              word(first.A_log),
                                              1,
                                              word(first.dt_bias),
                                              1,  //
                                              word(first.state),
                                              kSlot,
                                              kMatrix,
                                              2,  // read
                                              word(first.state),
                                              kSlot,
                                              kMatrix,
                                              2};  // written
  CHECK(std::vector(words.begin(), words.begin() + 32) == expected);
  CHECK(words[32 + 2] == word(second.k));
  CHECK((words[32 + 3] == 3 * 4096 && words[32 + 4] == 4096));
  CHECK((words[32 + 24] == word(second.state) && words[32 + 28] == word(second.state_out)));
  // The launch with one layer takes the same.
  const GdnCommitParams p = bench.launched({.layer = first});
  CHECK(std::memcmp(&p.layer, words.data(), sizeof p.layer) == 0);
}

TEST_CASE("ATableOfAPoolHasRoomForAllRequests", "[cpu]") {
  const CommitBench bench({.states = kPool, .varlen = true});
  CommitLayer layer = bench.layer();
  const std::vector<std::int64_t> words = bench.commit().table({layer}).value();
  CHECK((words[0] == 2147483647 && words[1] == 6));
  CHECK((words[3] == 0 && words[4] == 16 * 128));  // packed: no batch
  CHECK((words[27] == kSlots && words[31] == kSlots));
  layer.k = Tensor::contiguous(layer.k.data, DType::kBF16, {1, 6, 16, 128});
  CHECK(bench.commit().table({layer}).value() == words);
  const CommitBench dense({.varlen = true});
  CHECK(dense.commit().table({dense.layer()}).value()[0] == kRequests);
}

TEST_CASE("ATableNamesTheLayerAndTheTensor", "[cpu]") {
  const CommitBench bench({});
  const auto refusal = [&](FunctionRef<void(CommitLayer&)> spoil) {
    std::vector<CommitLayer> layers(3, bench.layer());
    spoil(layers[2]);
    const auto refused = bench.commit().table(layers);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
    return std::string(refused.error().message());
  };
  CHECK(bench.commit().table({}).error().message() ==
        "gdn_commit: layers is empty; accepted: 1 or more");
  CHECK(refusal([](CommitLayer& l) { l.v = {}; }) ==
        "layer 2: gdn_commit: v is missing; accepted: a tensor");
  CHECK(refusal([](CommitLayer& l) { l.k.shape[1] = 5; }) ==
        "layer 2: gdn_commit: k has T = 5; accepted: 0 to 4");
  CHECK(refusal([](CommitLayer& l) { l.k.rank = 3; }) ==
        "layer 2: gdn_commit: k has 3 dimensions; accepted: 4");
  CHECK(refusal([](CommitLayer& l) { l.v.shape[2] = 16; }) ==
        "layer 2: gdn_commit: v has shape [2, 3, 16, 128]; accepted: [B = 2, T = 3, v_heads = 32, "
        "value_dim = 128]");
  CHECK(refusal([](CommitLayer& l) { l.v.dtype = DType::kF16; }) ==
        "layer 2: gdn_commit: v has dtype f16; accepted: bf16");
  CHECK(refusal([](CommitLayer& l) { l.g = {}; }) ==
        "layer 2: gdn_commit: g is missing; accepted: a tensor");
  CHECK(refusal([](CommitLayer& l) { l.A_log = l.g; }) ==
        "layer 2: gdn_commit: A_log is given; accepted: no tensor, gate_mode is neither "
        "computed nor lower_bound");
  CHECK(refusal([](CommitLayer& l) { l.state = {}; }) ==
        "layer 2: gdn_commit: state is missing; accepted: a tensor");
  CHECK(refusal([](CommitLayer& l) { l.state.shape[0] = 3; }) ==
        "layer 2: gdn_commit: state has shape [3, 32, 128, 128]; accepted: [B = 2, heads = 32, "
        "value_dim = 128, key_dim = 128]");
  CHECK(refusal([](CommitLayer& l) {
          l.state_out = l.state;
          l.state_out.strides[0] = kSlot - 4;
        }) ==
        "layer 2: gdn_commit: state_out is written and has overlapping elements, by stride "
        "524284; accepted: no overlap");
  const CommitBench packed({.varlen = true});
  CommitLayer flat = packed.layer();
  flat.k.rank = 2;
  CHECK(packed.commit().table({flat}).error().message() ==
        "layer 0: gdn_commit: k has 2 dimensions; accepted: 3, or 4 with B = 1");
}

TEST_CASE("ACommitOfOneLayerNeedsNoTable", "[cpu]") {
  const CommitBench bench({});
  CommitArgs args = bench.args();
  GdnCommitParams p = bench.launched(args);
  CHECK((p.requests == 2 && p.layers == 1 && p.heads == 32 && p.draft_tokens == 4));
  CHECK((p.table == nullptr && p.accepted.data == address(6) && p.accepted.stride == 1));
  CHECK((p.layer.k.data == address(1) && p.layer.v.data == address(2)));
  CHECK((p.layer.requests == 2 && p.layer.tokens == 3 && p.cu_seqlens.data == nullptr));
  CHECK(p.layer.k.stride == TokenStrides{3 * 16 * 128, 16 * 128, 128});
  CHECK((p.layer.read.data == address(5) && p.layer.written.data == address(5)));
  CHECK((p.read_indices.data == nullptr && p.padding.index == PaddingParams::kNone));
  args.accepted = {};
  args.layer.state_out = Tensor::contiguous(address(9), DType::kF32, {2, 32, 128, 128});
  p = bench.launched(args);
  CHECK((p.requests == 2 && p.accepted.data == nullptr));
  CHECK((p.layer.read.data == address(5) && p.layer.written.data == address(9)));
}

TEST_CASE("ATableIsReadOnTheDevice", "[cpu]") {
  const CommitBench bench({.states = kPool, .varlen = true, .accepted_dtype = DType::kI64});
  CommitArgs args = bench.table_args();
  args.state_out_indices = Tensor::contiguous(address(9), DType::kI32, {2});
  args.accepted.strides[0] = 3;
  const GdnCommitParams p = bench.launched(args);
  CHECK((p.table == address(10) && p.layers == kLayers && p.requests == 2));
  CHECK((p.cu_seqlens.data == address(7) && p.accepted.stride == 3));
  CHECK((p.read_indices.data == address(8) && p.write_indices.data == address(9)));
  args.state_out_indices = {};
  CHECK(bench.launched(args).write_indices.data == address(8));
}

// The first that is there of cu_seqlens, accepted, state_indices, the layer.
TEST_CASE("TheNumberOfRequestsIsFound", "[cpu]") {
  const auto counts = [](DType dtype, std::int64_t n) {
    return Tensor::contiguous(address(6), dtype, {n});
  };
  const CommitBench packed({.varlen = true});
  CommitArgs args = packed.args();
  args.cu_seqlens.shape[0] = 2;
  args.accepted.shape[0] = 1;
  CHECK(packed.launched(args).requests == 1);
  CHECK(packed.refusal([&](CommitArgs& a) { a.cu_seqlens.shape[0] = 2; }) ==
        "gdn_commit: accepted has shape [2]; accepted: [N = 1]");
  CHECK(packed.refusal([](CommitArgs& a) { a.cu_seqlens = {}; }) ==
        "gdn_commit: cu_seqlens is missing; accepted: a tensor");
  CHECK(packed.refusal([](CommitArgs& a) { a.cu_seqlens.rank = 2; }) ==
        "gdn_commit: cu_seqlens has 2 dimensions; accepted: 1");

  const CommitBench pool({.states = kPool});
  args = pool.table_args();
  args.accepted = counts(DType::kI32, 7);
  args.state_indices.shape[0] = 7;
  CHECK(pool.launched(args).requests == 7);
  args.accepted = {};
  CHECK(pool.launched(args).requests == 7);
  CHECK(pool.table_refusal([](CommitArgs& a) { a.state_indices.shape[0] = 3; }) ==
        "gdn_commit: state_indices has shape [3]; accepted: [B = 2]");
  CHECK(CommitBench({}).table_refusal([](CommitArgs& a) { a.accepted = {}; }) ==
        "gdn_commit: accepted is missing; accepted: a tensor, layers does not say how many "
        "requests there are");
  CHECK(CommitBench({}).refusal([&](CommitArgs& a) { a.accepted = counts(DType::kI32, 3); }) ==
        "gdn_commit: k has room for 2 requests; accepted: N = 3 or more");
}

TEST_CASE("AnEmptyCommitLaunchesNothing", "[cpu]") {
  const CommitBench bench({});
  CommitArgs args = bench.table_args();
  args.accepted.shape[0] = 0;
  CHECK(bench.commit().launch(nullptr, args).ok());
  CHECK(bench.fake->launches.empty());
}

TEST_CASE("TablesThatCannotBeAreRefused", "[cpu]") {
  const CommitBench bench({});
  CHECK(bench.table_refusal([](CommitArgs& a) { a.layers.shape[1] = 31; }) ==
        "gdn_commit: layers has shape [5, 31]; accepted: [layers = 5, words = 32]");
  CHECK(bench.table_refusal([](CommitArgs& a) { a.layers.shape[0] = 0; }) ==
        "gdn_commit: layers has shape [0, 32]; accepted: [layers = 1, words = 32]");
  CHECK(bench.table_refusal([](CommitArgs& a) { a.layers.rank = 1; })
            .starts_with("gdn_commit: layers has shape [5]; accepted: "));
  CHECK(bench.table_refusal([](CommitArgs& a) { a.layers.dtype = DType::kI32; }) ==
        "gdn_commit: layers has dtype i32; accepted: i64");
  CHECK(bench.table_refusal([](CommitArgs& a) { a.layers.strides[0] = 64; }) ==
        "gdn_commit: layers has strides 64, 1; accepted: 32, 1 (no gaps)");
  CHECK(bench.table_refusal([](CommitArgs& a) { a.layers.strides[1] = 2; }) ==
        "gdn_commit: layers has strides 32, 2; accepted: 32, 1 (no gaps)");
  CHECK(bench.table_refusal([&](CommitArgs& a) { a.layer.k = bench.layer().k; }) ==
        "gdn_commit: k is given; accepted: no tensor, layers is given");
  CHECK(bench.table_refusal([](CommitArgs& a) {
    a.layers.shape[0] = 1 << 16;
    a.accepted.shape[0] = 1 << 15;
  }) == "gdn_commit: layers has 65536 layers of 32768 requests; accepted: 2147483647 of both");
}

TEST_CASE("CommitsThatCannotBeAreRefused", "[cpu]") {
  const CommitBench dense({});
  CHECK(dense.refusal([](CommitArgs& a) { a.layer = {}; }) ==
        "gdn_commit: k is missing; accepted: a tensor");
  CHECK(dense.refusal([](CommitArgs& a) { a.accepted.dtype = DType::kI64; }) ==
        "gdn_commit: accepted has dtype i64; accepted: i32");
  CHECK(dense.refusal([](CommitArgs& a) {
    a.cu_seqlens = Tensor::contiguous(address(7), DType::kI32, {3});
  }) == "gdn_commit: cu_seqlens is given; accepted: no tensor, varlen is false");
  CHECK(dense.refusal([](CommitArgs& a) {
    a.state_indices = Tensor::contiguous(address(8), DType::kI32, {2});
  }) == "gdn_commit: state_indices is given; accepted: no tensor, state_location is dense");
  CHECK(dense.refusal([](CommitArgs& a) { a.scratch_slot = 1; }) ==
        "gdn_commit: scratch_slot is 1; accepted: none, pad_slot_id is absent");
  CHECK(dense.refusal([](CommitArgs& a) { a.pad_slot_id = 0; }) ==
        "gdn_commit: pad_slot_id is 0; accepted: none, state_location is dense");
  CHECK(dense.refusal([](CommitArgs& a) { a.layer.v.shape[1] = 2; }) ==
        "gdn_commit: v has shape [2, 2, 32, 128]; accepted: [B = 2, T = 3, v_heads = 32, "
        "value_dim = 128]");
  const CommitBench pool({.states = kPool});
  CHECK(pool.refusal([](CommitArgs& a) { a.state_indices = {}; }) ==
        "gdn_commit: state_indices is missing; accepted: a tensor");
}

// What a table's pools have is checked on the device.
TEST_CASE("TheScratchSlotIsOneOfThePool", "[cpu]") {
  const CommitBench bench({.states = kPool});
  const auto scratch = [](std::int64_t slot) {
    return [slot](CommitArgs& a) {
      a.pad_slot_id = -1;
      a.scratch_slot = slot;
    };
  };
  CommitArgs args = bench.args();
  scratch(kSlots - 1)(args);
  CHECK(bench.launched(args).padding.scratch == kSlots - 1);
  CHECK(bench.refusal(scratch(kSlots)) == "gdn_commit: scratch_slot is 9; accepted: 0 to 8");
  CHECK(bench.refusal(scratch(-1)) == "gdn_commit: scratch_slot is -1; accepted: 0 to 8");
  args = bench.table_args();
  scratch(1000)(args);
  CHECK(bench.launched(args).padding.scratch == 1000);
  args.scratch_slot = {};
  CHECK((bench.launched(args).padding.index == -1 &&
         bench.launched(args).padding.scratch == PaddingParams::kDropped));
  CHECK(bench.table_refusal(scratch(-1))
            .starts_with("gdn_commit: scratch_slot is -1; accepted: 0 to "));
}

TEST_CASE("ACommitHasBlocksForEveryRequestOfEveryLayer", "[cpu]") {
  const CommitBench bench({});
  bench.launched(bench.table_args());
  const CUlaunchConfig& config = bench.fake->launches.back().config;
  const CommitSize size{.layers = kLayers, .requests = kRequests};
  const std::string launched = bench.commit().kernel(size).info().canonical;
  GdnCommitKey key;
  for_each_candidate(key, [&](const GdnCommitKey& candidate) {
    if (canonical(candidate) == launched) key = candidate;
  });
  REQUIRE(canonical(key) == launched);
  CHECK(config.gridDimX == blocks_of_request(key, 32));
  CHECK((config.gridDimY == kLayers * kRequests && config.gridDimZ == 1));
  CHECK(config.blockDimX == static_cast<unsigned>(threads(key)));
  // Rows beyond what the second dimension takes.
  CommitArgs many = bench.table_args();
  many.layers.shape[0] = 48;
  many.accepted.shape[0] = 2048;
  bench.launched(many);
  const CUlaunchConfig& wide = bench.fake->launches.back().config;
  CHECK(wide.gridDimY * wide.gridDimZ >= 48 * 2048);
  CHECK(wide.gridDimZ == 2);
}

TEST_CASE("ACommitMayOverlapTheKernelInFrontOfIt", "[cpu]") {
  const CommitBench bench({});
  CommitArgs args = bench.table_args();
  bench.launched(args);
  CHECK(bench.fake->launches.back().attributes.empty());
  args.enable_pdl = true;
  bench.launched(args);
  REQUIRE(bench.fake->launches.back().attributes.size() == 1);
  CHECK(bench.fake->launches.back().attributes[0].id ==
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
}

}  // namespace
}  // namespace cubinery::gdn::commit_launch_test
