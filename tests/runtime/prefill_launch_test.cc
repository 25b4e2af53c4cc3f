// Launches of the prefill operator on a fake libcuda: what reaches the kernels.  The arithmetic is
// tested on GPUs in tests/gpu.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "cubinery/ranks.h"
#include "tests/runtime/fake_prefill.h"

namespace cubinery::gdn {
namespace {

using test::address;
using test::FakePrefill;

TEST_CASE("ADensePrefillPassesPointersStridesAndCounts", "[cpu]") {
  const FakePrefill bench({.heads = {.q = 4, .k = 8, .v = 16}, .value_dim = 64});
  PrefillArgs args = bench.args(3, 100);
  args.q.strides = {1000000, 1000, 200, 1};
  args.state_out = args.state;
  args.state_out.data = address(15);
  args.scale = 0.5f;
  const auto [chunks, scan, c, s] = bench.launched(args, bench.workspace(3, 100));
  REQUIRE(chunks);
  CHECK((c.q.data == address(1) && c.k.data == address(2) && c.gates.g.data == address(5) &&
         c.gates.beta.data == address(6)));
  CHECK((c.gates.A_log.data == nullptr && c.gates.dt_bias.data == nullptr &&
         c.cu_seqlens.data == nullptr));
  CHECK(c.q.stride == TokenStrides{1000000, 1000, 200});
  CHECK(c.k.stride == TokenStrides{100 * 8 * 128, 8 * 128, 128});
  CHECK(c.gates.g.stride == TokenStrides{1600, 16, 1});
  CHECK(c.gates.beta.stride == TokenStrides{1600, 16, 1});
  CHECK((c.tokens == 100 && c.sequences == 3 && c.heads == 16));
  CHECK(c.slots == 3 * ((100 + bench.chunk_size() - 1) / bench.chunk_size()));
  CHECK((c.q.group == 4 && c.k.group == 2));
  CHECK((c.order == nullptr && c.wy == address(20)));
  CHECK(c.scale == 0.5f);

  CHECK((s.q.data == address(1) && s.k.data == address(2) && s.v.data == address(3) &&
         s.o.data == address(4)));
  CHECK(s.q.stride == TokenStrides{1000000, 1000, 200});
  CHECK(s.k.stride == TokenStrides{100 * 8 * 128, 8 * 128, 128});
  CHECK(s.v.stride == TokenStrides{100 * 16 * 64, 16 * 64, 64});
  CHECK(s.o.stride == TokenStrides{100 * 16 * 64, 16 * 64, 64});
  CHECK((s.states.read.data == address(7) && s.states.written.data == address(15)));
  CHECK(s.states.read.stride == StateStrides{16 * 64 * 128, 64 * 128});
  CHECK(s.states.written.stride == StateStrides{16 * 64 * 128, 64 * 128});
  CHECK((s.states.read_indices.data == nullptr && s.checkpoints.data == nullptr &&
         s.cu_seqlens.data == nullptr));
  CHECK((s.tokens == 100 && s.sequences == 3 && s.heads == 16));
  CHECK((s.q.group == 4 && s.k.group == 2 && s.v.group == 1));
  CHECK((s.order == nullptr && s.wy == address(20)));
  CHECK(bench.launched(1, 1).chunks_params.scale == 1.0f / std::sqrt(128.0f));
}

// For a thread that has none: to push and pop it are calls of the driver.
TEST_CASE("BothKernelsOfAPrefillShareOneCurrentContext", "[cpu]") {
  const FakePrefill bench({});
  const PrefillArgs args = bench.args(1, 100);
  const Workspace workspace = bench.workspace(1, 100);
  const int before = bench.fake->pushes;
  REQUIRE(bench.prefill().launch(nullptr, args, workspace).ok());
  CHECK(bench.fake->pushes == before + 1);
  CHECK(bench.fake->pushed == 0);
}

TEST_CASE("APackedPrefillHasNoBatch", "[cpu]") {
  const FakePrefill bench({.varlen = true, .cu_seqlens_dtype = DType::kI64});
  PrefillArgs args = bench.args(70, 1000);
  args.cu_seqlens.strides[0] = 3;
  const auto plain = bench.launched(args, bench.workspace(70, 1000));
  const GdnPrefillChunksParams& c = plain.chunks_params;
  const GdnPrefillScanParams& s = plain.scan_params;
  CHECK(c.q.stride == TokenStrides{0, 16 * 128, 128});
  CHECK(c.gates.g.stride == TokenStrides{0, 32, 1});
  CHECK(s.v.stride == TokenStrides{0, 32 * 128, 128});
  CHECK(s.o.stride == TokenStrides{0, 32 * 128, 128});
  CHECK((c.cu_seqlens.data == address(9) && s.cu_seqlens.data == address(9)));
  CHECK((c.cu_seqlens.stride == 3 && s.cu_seqlens.stride == 3));
  CHECK((c.tokens == 1000 && c.sequences == 70 && s.tokens == 1000 && s.sequences == 70));
  CHECK(c.slots == 1000 / bench.chunk_size() + 70);
  // The order of 70 sequences takes 280 bytes, rounded up to 512.
  CHECK((static_cast<void*>(c.order) == address(20) && s.order == c.order));
  CHECK((c.wy == static_cast<char*>(address(20)) + 512 && s.wy == c.wy));

  for (Tensor* x : {&args.q, &args.k, &args.v, &args.o, &args.g, &args.beta}) {
    for (int d = x->rank++; d > 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      x->shape[at] = x->shape[at - 1];
      x->strides[at] = x->strides[at - 1];
    }
    x->shape[0] = 1;
    x->strides[0] = 12345;
  }
  const auto with_batch = bench.launched(args, bench.workspace(70, 1000));
  CHECK(with_batch.chunks->arguments == plain.chunks->arguments);
  CHECK(with_batch.scan.arguments == plain.scan.arguments);
}

TEST_CASE("HeadsMayComeBeforeTokens", "[cpu]") {
  const FakePrefill dense({.token_layout = TokenLayout::kBHTD});
  const auto d = dense.launched(2, 100);
  CHECK(d.chunks_params.q.stride == TokenStrides{16 * 100 * 128, 128, 100 * 128});
  CHECK(d.scan_params.o.stride == TokenStrides{32 * 100 * 128, 128, 100 * 128});
  CHECK(d.chunks_params.gates.g.stride == TokenStrides{3200, 1, 100});
  CHECK(d.chunks_params.tokens == 100);
  const FakePrefill packed({.token_layout = TokenLayout::kBHTD, .varlen = true});
  const auto p = packed.launched(2, 100);
  CHECK(p.chunks_params.q.stride == TokenStrides{0, 128, 100 * 128});
  CHECK(p.chunks_params.gates.beta.stride == TokenStrides{0, 1, 100});
  CHECK(p.chunks_params.tokens == 100);
}

TEST_CASE("RowsAtMultiplesOf16BytesAreReportedAsAligned", "[cpu]") {
  const FakePrefill bench({});
  const auto aligned = [&](const PrefillArgs& args, std::int64_t sequences) {
    const auto launched = bench.launched(args, bench.workspace(sequences, 100));
    const GdnPrefillScanParams& s = launched.scan_params;
    CHECK(launched.chunks_params.q.aligned == s.q.aligned);
    CHECK(launched.chunks_params.k.aligned == s.k.aligned);
    return std::vector<bool>{s.q.aligned, s.k.aligned, s.v.aligned};
  };
  using Flags = std::vector<bool>;
  CHECK(aligned(bench.args(2, 100), 2) == Flags{true, true, true});
  PrefillArgs args = bench.args(2, 100);
  args.q.data = static_cast<char*>(args.q.data) + 8;
  args.k.strides[1] += 4;
  args.v.strides[2] += 8;
  CHECK(aligned(args, 2) == Flags{false, false, true});
  args = bench.args(1, 100);
  args.q.strides[0] = 4;  // of one sequence: never used
  CHECK(aligned(args, 1) == Flags{true, true, true});
}

TEST_CASE("PoolsGatesAndCheckpointsReachTheKernels", "[cpu]") {
  const FakePrefill bench({.inputs = {.gate_mode = GateMode::kComputed},
                           .states = {.location = StateLocation::kPool},
                           .varlen = true,
                           .checkpoints = Checkpoints::kAfter,
                           .checkpoint_every = 128});
  PrefillArgs args = bench.args(2, 1000);
  args.A_log = Tensor::contiguous(address(12), DType::kF32, {32});
  args.dt_bias = Tensor::contiguous(address(13), DType::kF32, {32});
  args.dt_bias.strides[0] = 0;
  args.state_out_indices = args.state_indices;
  args.state_out_indices.data = address(14);
  args.state_out_indices.strides[0] = 5;
  args.pad_slot_id = 3;
  args.scratch_slot = 8;
  const auto launched = bench.launched(args, bench.workspace(2, 1000));
  const GdnPrefillChunksParams& c = launched.chunks_params;
  const GdnPrefillScanParams& s = launched.scan_params;
  CHECK((c.gates.A_log.data == address(12) && c.gates.A_log.stride == 1));
  CHECK((c.gates.dt_bias.data == address(13) && c.gates.dt_bias.stride == 0));
  CHECK((s.states.read.slots == 9 && s.states.written.slots == 9 && s.states.padding.scratch == 8));
  CHECK((s.states.read_indices.data == address(8) && s.states.read_indices.stride == 1));
  CHECK((s.states.write_indices.data == address(14) && s.states.write_indices.stride == 5));
  CHECK((s.checkpoints.data == address(10) && s.checkpoints.slots == 11 &&
         s.checkpoint_every == 128));
  CHECK(s.checkpoints.stride == StateStrides{32 * 128 * 128, 128 * 128});
  CHECK((s.checkpoint_cu_starts.data == address(11) && s.checkpoint_cu_starts.stride == 1));
}

TEST_CASE("DenseCheckpointsFollowEachOther", "[cpu]") {
  const auto rows = [](Checkpoints checkpoints, std::int64_t tokens) {
    const FakePrefill bench({.checkpoints = checkpoints, .checkpoint_every = 32});
    return bench.launched(3, tokens).scan_params.checkpoints.slots;
  };
  CHECK(rows(Checkpoints::kBefore, 100) == 3 * 4);
  CHECK(rows(Checkpoints::kBefore, 96) == 3 * 3);
  CHECK(rows(Checkpoints::kAfter, 100) == 3 * 3);
  CHECK(rows(Checkpoints::kAfter, 31) == 0);
}

TEST_CASE("OffsetsAndSlotsOfCheckpointsReachTheKernel", "[cpu]") {
  for (const bool varlen : {false, true}) {
    const FakePrefill bench({.states = {.location = StateLocation::kPool},
                             .varlen = varlen,
                             .checkpoints = Checkpoints::kAt,
                             .checkpoint_every = 32});
    PrefillArgs args = bench.args(2, 100);
    args.checkpoint_offsets.strides = {7, 2};
    args.checkpoint_slots.strides = {1, 2};
    args.checkpoint_every = 96;
    args.pad_slot_id = 5;
    const GdnPrefillScanParams s = bench.launched(args, bench.workspace(2, 100)).scan_params;
    CHECK((s.checkpoints.data == address(10) && s.checkpoints.slots == 11));
    CHECK((s.checkpoint_every == 96 && s.states.padding.index == 5));
    CHECK((s.checkpoint_cu_starts.data == address(16) && s.checkpoint_cu_starts.stride == 7));
    const CheckpointSlots& at = s.checkpoint_slots;
    CHECK((at.slots.data == address(17) && at.slots.stride == 1));
    CHECK((at.offset_step == 2 && at.slot_step == 2 && at.count == 3));
    // The very pool.
    args.checkpoints = args.state;
    CHECK(bench.launched(args, bench.workspace(2, 100)).scan_params.checkpoints.slots == 9);
    // None at all.
    args.checkpoints = args.checkpoint_offsets = args.checkpoint_slots = {};
    CHECK(bench.launched(args, bench.workspace(2, 100)).scan_params.checkpoint_slots.count == 0);
  }
}

TEST_CASE("KernelsGetTheThreadsAndSharedMemoryOfTheirKeys", "[cpu]") {
  const FakePrefill bench({});
  const test::PrefillPair keys = bench.keys({.tokens = 1000 * 100, .sequences = 1000});
  const auto launched = bench.launched(1000, 100);
  CHECK(launched.chunks->config.blockDimX == static_cast<unsigned>(threads(keys.chunks)));
  CHECK(launched.chunks->config.sharedMemBytes == static_cast<unsigned>(shared_bytes(keys.chunks)));
  CHECK(launched.scan.config.blockDimX == static_cast<unsigned>(threads(keys.scan)));
  CHECK(launched.scan.config.sharedMemBytes == static_cast<unsigned>(shared_bytes(keys.scan)));
  // More than 48 KiB have to be asked for.
  REQUIRE(shared_bytes(keys.scan) > 48 * 1024);
  CHECK(bench.fake->shared_bytes["gdn_prefill_scan"].contains(shared_bytes(keys.scan)));
}

TEST_CASE("HeadsShareABlockWhenThereAreManyChunks", "[cpu]") {
  const auto grid = [](const PrefillProblem& problem, std::int64_t chunks) {
    const FakePrefill bench(problem);
    const auto launched = bench.launched(1, chunks * bench.chunk_size());
    CHECK(launched.chunks_params.slots == chunks);
    const int heads = launched.chunks_params.heads_per_block;
    CHECK(launched.chunks->config.gridDimX * static_cast<unsigned>(heads) ==
          static_cast<unsigned>(launched.chunks_params.slots * problem.heads.count()));
    CHECK(launched.chunks->config.gridDimY * launched.chunks->config.gridDimZ == 1);
    return heads;
  };
  // A block on each of 132 multiprocessors: from 9 chunks of 16 pairs of heads on.
  CHECK(grid({}, 1) == 1);
  CHECK(grid({}, 8) == 1);
  CHECK(grid({}, 9) == 2);
  CHECK(grid({.heads = {.q = 32, .k = 32}}, 1000) == 1);
  CHECK(grid({.heads = {.q = 32, .k = 4, .v = 4}}, 1000) == 1);  // queries differ
  CHECK(grid({.heads = {.q = 1, .k = 2, .v = 24}}, 1000) == 6);  // of 12
  CHECK(grid({.heads = {.q = 1, .k = 1, .v = 32}}, 1000) == 8);
}

TEST_CASE("BlocksAreAsWideAsTheChosenScan", "[cpu]") {
  for (const int value_dim : {48, 128}) {
    for (const int heads : {1, 11, 32}) {
      const FakePrefill bench(
          {.heads = {.q = heads, .k = heads, .v = heads}, .value_dim = value_dim});
      for (const std::int64_t sequences : {1, 4, 40}) {
        const CUlaunchConfig config = bench.launched(sequences, 64).scan.config;
        const int warps = bench.keys({.tokens = 64 * sequences, .sequences = sequences}).scan.warps;
        CHECK(config.gridDimX * 16 * warps == sequences * heads * value_dim);
        CHECK(config.gridDimY * config.gridDimZ == 1);
      }
    }
  }
}

TEST_CASE("ALongestSequenceIsAHint", "[cpu]") {
  const FakePrefill bench({.varlen = true});
  PrefillArgs args = bench.args(4, 1000);
  for (const std::int64_t longest : {0, 1, 250, 1000}) {
    args.max_seqlen = longest;
    bench.launched(args, bench.workspace(4, 1000));
  }
  for (const std::int64_t longest : {-1, 1001}) {
    args.max_seqlen = longest;
    CHECK(bench.refusal(args, bench.workspace(4, 1000)) ==
          "gdn_prefill: max_seqlen = " + std::to_string(longest) +
              "; accepted: 0 to 1000, the tokens that there are");
  }
  const FakePrefill dense({});
  CHECK(dense.refusal([](PrefillArgs& a) { a.max_seqlen = 101; }).starts_with("gdn_prefill: max_"));
}

TEST_CASE("StepsNeedContextParallelism", "[cpu]") {
  const FakePrefill dense({});
  for (const std::int64_t step : {-1, 1, 3, 4}) {
    CHECK(dense.refusal([&](PrefillArgs& a) { a.step = step; }) ==
          "gdn_prefill: step = " + std::to_string(step) +
              "; accepted: 0, without context_parallel");
  }
  CHECK(dense.refusal([](PrefillArgs& a) { a.continues = true; }) ==
        "gdn_prefill: continues = 1; accepted: 0, without context_parallel");
}

// Ranks that agree or do not.
class FakeRanks : public Ranks {
 public:
  explicit FakeRanks(Result<bool> agrees) : agrees_(std::move(agrees)) {}
  Status receive(Stream, void*, std::size_t, int) override { return {}; }
  Status send(Stream, const void*, std::size_t, int) override { return {}; }
  Result<bool> agree(std::uint64_t) override { return std::move(agrees_); }

 private:
  Result<bool> agrees_;
};

TEST_CASE("RanksAgreeOnTheProblem", "[cpu]") {
  const FakePrefill plain({});
  const auto refusal_of = [&](Result<bool> agrees) {
    const auto made =
        RankPrefill::create(plain.prefill(), std::make_shared<FakeRanks>(std::move(agrees)));
    REQUIRE(!made);
    return std::string(made.error().message());
  };
  CHECK(refusal_of(true) ==
        "gdn_prefill: context_parallel = false; accepted: true, for a prefill on ranks");
  CHECK(refusal_of(false).starts_with("gdn_prefill: another rank has another problem than {"));
  CHECK(refusal_of(Status(Code::kDriver, "NCCL: gone")) == "NCCL: gone");
}

TEST_CASE("TheScanOverlapsTheChunks", "[cpu]") {
  const FakePrefill bench({});
  PrefillArgs args = bench.args(2, 100);
  const Workspace workspace = bench.workspace(2, 100);
  for (const bool enable_pdl : {false, true}) {
    args.enable_pdl = enable_pdl;
    const auto launched = bench.launched(args, workspace);
    CHECK(launched.chunks->attributes.size() == (enable_pdl ? 1 : 0));
    REQUIRE(launched.scan.attributes.size() == 1);
    CHECK(launched.scan.attributes[0].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  }
}

TEST_CASE("NoSequencesLaunchNothing", "[cpu]") {
  const FakePrefill dense({});
  CHECK(dense.prefill().launch(nullptr, dense.args(0, 100), {}).ok());
  CHECK(dense.fake->launches.empty());
  const FakePrefill packed({.varlen = true});
  CHECK(packed.prefill().launch(nullptr, packed.args(0, 100), {}).ok());
  CHECK(packed.fake->launches.empty());
}

// Their final states are their initial ones.
TEST_CASE("SequencesOfNoTokensOnlyRunTheScan", "[cpu]") {
  const FakePrefill dense({});
  PrefillArgs args = dense.args(2, 0);
  for (Tensor* x : {&args.q, &args.k, &args.v, &args.o, &args.g, &args.beta}) x->data = nullptr;
  for (const bool enable_pdl : {false, true}) {
    args.enable_pdl = enable_pdl;
    const auto launched = dense.launched(args, {});
    CHECK_FALSE(launched.chunks);
    CHECK(launched.scan_params.tokens == 0);
    CHECK(launched.scan.attributes.size() == (enable_pdl ? 1 : 0));
  }
  // Packed ones are put into order by the first kernel.
  const FakePrefill packed({.varlen = true});
  CHECK(packed.launched(2, 0).chunks);
}

TEST_CASE("TheWorkspaceHoldsOrderAndRecords", "[cpu]") {
  const FakePrefill dense({});
  const auto dense_bytes = [&](std::int64_t tokens, std::int64_t sequences) {
    return dense.prefill().workspace_bytes({.tokens = tokens, .sequences = sequences});
  };
  const auto slots = [&](int tokens, int sequences) {
    return static_cast<std::size_t>(tokens / dense.chunk_size()) +
           static_cast<std::size_t>(sequences);
  };
  CHECK(dense_bytes(0, 0) == 0);
  CHECK(dense_bytes(200, 2) == slots(200, 2) * dense.slot_bytes());
  const FakePrefill channels({.inputs = {.decay = Decay::kChannel}});
  CHECK(channels.slot_bytes() > 8 * dense.slot_bytes());
  CHECK(channels.prefill().workspace_bytes({.tokens = 200, .sequences = 2}) ==
        slots(200, 2) * channels.slot_bytes());
  const FakePrefill packed({.varlen = true});
  CHECK(packed.prefill().workspace_bytes({.tokens = 64, .sequences = 1}) ==
        256 + slots(64, 1) * packed.slot_bytes());
  CHECK(packed.prefill().workspace_bytes({.tokens = 64, .sequences = 65}) ==
        512 + slots(64, 65) * packed.slot_bytes());

  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(dense_bytes(-5, -5) == 0);
  CHECK(dense_bytes(kMost, kMost) == std::numeric_limits<std::size_t>::max());
  CHECK(packed.prefill().workspace_bytes({.tokens = 0, .sequences = kMost}) ==
        std::numeric_limits<std::size_t>::max());
}

// Heads that share keys and queries share a block; where each channel has a decay a block takes
// some pairs of a chunk and a head, one behind the other, so that all blocks run at once: 3 on each
// of 132 multiprocessors.
TEST_CASE("BlocksOfChannelDecaysHavePairs", "[cpu]") {
  for (const Decay decay : {Decay::kHead, Decay::kChannel}) {
    const FakePrefill bench({.heads = {.q = 2, .k = 2, .v = 16}, .inputs = {.decay = decay}});
    for (const std::int64_t length : {32, 1000}) {
      const auto launched = bench.launched(2, length);
      const std::int64_t pairs = std::int64_t{launched.chunks_params.slots} * 16;
      const int heads = launched.chunks_params.heads_per_block;
      if (decay == Decay::kChannel) CHECK(heads == 1);
      const std::int64_t most = decay == Decay::kHead ? pairs : 3 * 132;
      CHECK(launched.chunks->config.gridDimX == std::min(pairs / heads, most));
    }
  }
}

// So a workspace for the largest launch is enough for all.
TEST_CASE("SmallerLaunchesNeedNoMoreWorkspace", "[cpu]") {
  for (const bool varlen : {false, true}) {
    const FakePrefill bench({.varlen = varlen});
    const auto bytes = [&](std::int64_t tokens, std::int64_t sequences) {
      return bench.prefill().workspace_bytes({.tokens = tokens, .sequences = sequences});
    };
    for (std::int64_t sequences = 0; sequences < 70; ++sequences) {
      for (std::int64_t tokens = 0; tokens < 140; ++tokens) {
        if (bytes(tokens, sequences) > bytes(tokens + 1, sequences)) FAIL_CHECK(tokens);
        if (bytes(tokens, sequences) > bytes(tokens, sequences + 1)) FAIL_CHECK(sequences);
      }
    }
    CHECK(bytes(std::int64_t{1} << 40, 1) < bytes(std::int64_t{1} << 60, 1));
  }
}

// Seven last chunks that are all but empty, all but full, and full: each has a record.
TEST_CASE("EveryDenseChunkHasASlot", "[cpu]") {
  const FakePrefill bench({});
  const int chunk = bench.chunk_size();
  for (const int tokens : {1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1}) {
    CHECK(bench.launched(7, tokens).chunks_params.slots == 7 * ((tokens + chunk - 1) / chunk));
  }
}

TEST_CASE("AWorkspaceIsRefusedWithReason", "[cpu]") {
  const FakePrefill bench({});
  const PrefillArgs args = bench.args(2, 100);
  const auto chunks =
      2 * static_cast<std::size_t>((100 + bench.chunk_size() - 1) / bench.chunk_size());
  const std::size_t needed = chunks * bench.slot_bytes();
  CHECK(bench.refusal(args, {address(20), needed - 1}) ==
        "gdn_prefill: workspace has " + std::to_string(needed - 1) + " bytes; accepted: at least " +
            std::to_string(needed) + ", workspace_bytes() of this size");
  CHECK(bench.refusal(args, {}).starts_with("gdn_prefill: workspace has 0 bytes; "));
  CHECK(bench.refusal(args, {nullptr, needed}) ==
        "gdn_prefill: workspace is null; accepted: a device pointer");
  CHECK(bench.refusal(args, {reinterpret_cast<void*>(0x1080), needed}) ==
        "gdn_prefill: workspace at 0x1080 is misaligned; accepted: a multiple of 256 bytes");
  bench.launched(args, {address(20), needed});
}

}  // namespace
}  // namespace cubinery::gdn
