// Prefill of sequences that are spread over several GPUs (PrefillProblem::context_parallel), here
// over ranks that take turns on one: exact, whatever the gates, and the same bits on any number of
// ranks.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cubinery/ranks.h"
#include "harness/data.h"
#include "harness/memory.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::StateLocation;

PrefillProblem over_ranks(PrefillProblem problem, int segment_tokens) {
  problem.varlen = true;
  problem.context_parallel = true;
  problem.segment_tokens = segment_tokens;
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

// On one rank, all steps of a launch one after the other.
TEST_CASE("GdnPrefillRanks.LengthsAroundEverySegment", "[gpu][prefill]") {
  for (const std::int64_t length : {63, 64, 65, 127, 128, 129, 192, 640}) {
    const PrefillProblem problem = over_ranks(small_prefill(), 64);
    run_case(problem, {.lengths = {length, 1, length + 1, 0, 70}, .lead = 65, .tail = 3});
    PrefillProblem dense = problem;
    dense.varlen = false;
    run_case(dense, uniform(2, length));
  }
}

TEST_CASE("GdnPrefillRanks.EveryGateDistribution", "[gpu][prefill]") {
  run_every_gate(over_ranks(small_prefill(), 192), {.lengths = {1000, 333}});
}

TEST_CASE("GdnPrefillRanks.KeysThatNobodyNormalises", "[gpu][prefill]") {
  PrefillProblem problem = over_ranks(small_prefill(), 64);
  problem.inputs.use_qk_l2norm = false;
  for (const GateDistribution gates : kGateDistributions) {
    run_case(problem, {.lengths = {700, 64}}, {.seed = seed(), .gates = gates});
  }
}

TEST_CASE("GdnPrefillRanks.Checkpoints", "[gpu][prefill][sanitize]") {
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAfter}) {
    PrefillProblem problem = over_ranks(small_prefill(), 128);
    problem.checkpoints = checkpoints;
    problem.checkpoint_every = 64;
    for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
      run_case(problem, {.lengths = {700, 64, 0, 129}}, {.seed = seed(), .gates = gates});
    }
  }
}

TEST_CASE("GdnPrefillRanks.StatesInPlace", "[gpu][prefill][sanitize]") {
  PrefillProblem problem = over_ranks(small_prefill(), 128);
  problem.states.location = StateLocation::kPool;
  for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
    run_case(problem, {.lengths = {900, 70, 400}},
             {.seed = seed(), .gates = gates, .padding = {.slot_id = -1}, .padded = 1});
    run_case(problem, {.lengths = {900, 70, 400, 300}},
             {.seed = seed(), .gates = gates, .fresh_every = 2});
  }
}

// Also those that TMA can neither read nor write.
TEST_CASE("GdnPrefillRanks.EveryPlacement", "[gpu][prefill]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
      const CaseOptions options{.seed = seed(), .gates = gates, .placement = placement};
      run_case(over_ranks(small_prefill(), 128), {.lengths = {500, 64, 1}, .lead = 3}, options);
      PrefillProblem dense = over_ranks(small_prefill(), 128);
      dense.varlen = false;
      run_case(dense, uniform(2, 333), options);
    }
  }
}

TEST_CASE("GdnPrefillRanks.TheSameInGraphsAndWithPdl", "[gpu][prefill]") {
  for (const bool channels : {false, true}) {
    PrefillProblem problem = over_ranks(small_prefill(), 128);
    if (channels) problem = with_channels(problem);
    for (const bool enable_pdl : {false, true}) {
      const PrefillCase c(
          problem, {.lengths = {500, 64}},
          {.seed = seed(), .gates = GateDistribution::kUndecayed, .enable_pdl = enable_pdl});
      const gdn::Prefill prefill = prepare(problem);
      if (enable_pdl && !can_enable_pdl(c, prefill)) return;
      expect_same_in_graph(c, prefill, 1, 3);
    }
  }
}

TEST_CASE("ChannelDecayRanks.EveryGateDistribution", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = with_channels(over_ranks(small_prefill(), 192));
    problem.dtype = dtype;
    for (const GateDistribution gates : kGateDistributions) {
      run_case(problem, {.lengths = {1000, 333}}, {.seed = seed(), .gates = gates});
    }
  }
}

// The states of a case's sequences, and of a rank's, as they lie in memory.
class StateRows {
 public:
  explicit StateRows(const PrefillCase& c) : c_(c), memory_(c.memory()) {}

  std::size_t bytes() const { return heads() * matrix_bytes(); }
  std::vector<std::byte> initial(std::int64_t n) const {
    std::vector<std::byte> row;
    for (std::size_t h = 0; h < heads(); ++h) {
      const std::byte* const matrix = at(TensorId::kState, n, h);
      row.insert(row.end(), matrix, matrix + matrix_bytes());
    }
    return row;
  }
  // Puts a last state where the case's launches have it.
  void finish(std::int64_t n, const std::vector<std::byte>& row) {
    for (std::size_t h = 0; h < heads(); ++h) {
      std::copy_n(row.data() + h * matrix_bytes(), matrix_bytes(), at(TensorId::kStateOut, n, h));
    }
  }
  // The case's memory, all but the last states from `after`.
  GdnMemory in(GdnMemory after) const {
    const auto piece = static_cast<std::size_t>(TensorId::kStateOut);
    after[piece] = memory_[piece];
    return after;
  }

 private:
  std::size_t heads() const { return idx(c_.problem().heads.count()); }
  std::size_t matrix_bytes() const {
    return idx(c_.problem().key_dim) * idx(c_.problem().value_dim) * sizeof(float);
  }
  std::byte* at(TensorId tensor, std::int64_t n, std::size_t h) const {
    const auto place = c_.matrix_at(tensor, n, static_cast<std::int64_t>(h));
    return memory_[place.piece].data() + place.byte;
  }

  const PrefillCase& c_;
  mutable GdnMemory memory_;
};

// What one rank launches: tokens first to end - 1 of the packed ones.
class Rank {
 public:
  Rank(const PrefillCase& c, std::int64_t first, std::int64_t end)
      : Rank(c, gpu(), c.args(), first, end) {}
  // `args`: all tokens, in memory of `on`.
  Rank(const PrefillCase& c, const Gpu& on, PrefillArgs args, std::int64_t first, std::int64_t end)
      : on_(on), args_(args) {
    std::vector<std::int32_t> bounds;
    std::int64_t begin = 0;
    for (std::int64_t n = 0; n < c.sequences(); begin += c.length(n++)) {
      const std::int64_t from = std::max(begin, first), to = std::min(begin + c.length(n), end);
      // A sequence without tokens is its last owner's.
      if (from > to || (from == to && !(c.length(n) == 0 && begin >= first && begin < end)))
        continue;
      if (bounds.empty()) {
        first_sequence_ = n;
        continues_ = begin < first;
        bounds.push_back(static_cast<std::int32_t>(from - first));
      }
      bounds.push_back(static_cast<std::int32_t>(to - first));
    }
    const std::size_t dimension = c.token_dimension();
    for (Tensor* tensor : token_tensors(&args_)) slice(tensor, dimension, first, end - first);
    bounds_ = std::make_unique<DeviceBuffer>(on_, bounds.size() * sizeof(std::int32_t));
    bounds_->upload(std::as_bytes(std::span(bounds)));
    args_.cu_seqlens = Tensor::contiguous(bounds_->data(), DType::kI32,
                                          {static_cast<std::int64_t>(bounds.size())});
    args_.max_seqlen = 0;
    args_.continues = continues_;
  }

  std::int64_t first_sequence() const { return first_sequence_; }
  std::int64_t sequences() const { return args_.cu_seqlens.shape[0] - 1; }
  bool continues() const { return continues_; }

  // Launches the steps by launch(stream, args, workspace, received states).  Returns new states.
  template <class Launch>
  std::vector<std::vector<std::byte>> run(const PrefillCase& c, const gdn::Prefill& prefill,
                                          const StateRows& states, Launch launch_steps) {
    const std::size_t row = states.bytes();
    const DeviceBuffer initial(on_, row * idx(sequences()));
    const DeviceBuffer last(on_, row * idx(sequences()));
    for (std::int64_t i = continues_ ? 1 : 0; i < sequences(); ++i) {
      initial.upload(states.initial(first_sequence_ + i), row * idx(i));
    }
    const auto rows = [&](const DeviceBuffer& buffer) {
      Tensor tensor = c.args().state;
      tensor.data = buffer.data();
      tensor.shape[0] = sequences();
      return tensor;
    };
    args_.state = rows(initial);
    args_.state_out = rows(last);
    const DeviceStream stream = make_stream(on_);
    const DeviceBuffer workspace(on_, workspace_bytes(c, prefill, args_));
    const Status status = launch_steps(stream, args_, workspace, initial);
    if (status.ok()) stream.synchronize().value();
    ok_ =
        status.ok() && workspace.guards_intact() && initial.guards_intact() && last.guards_intact();
    why_ = std::string(status.message());
    std::vector<std::vector<std::byte>> found;
    for (std::int64_t i = 0; i < sequences(); ++i) {
      found.push_back(last.download(row * idx(i), row));
    }
    return found;
  }
  // `received`: the state that the first sequence goes on from.
  std::vector<std::vector<std::byte>> run(const PrefillCase& c, const gdn::Prefill& prefill,
                                          const StateRows& states,
                                          const std::vector<std::byte>& received) {
    return run(c, prefill, states,
               [&](const DeviceStream& stream, PrefillArgs args, const DeviceBuffer& workspace,
                   const DeviceBuffer& initial) {
                 for (args.step = 1; args.step <= 3; ++args.step) {
                   if (args.step == 2 && args.continues) {
                     stream.synchronize().value();
                     initial.upload(received, 0);
                   }
                   Status status = launch(prefill, stream.get(), args, workspace);
                   if (!status.ok()) return status;
                 }
                 return Status{};
               });
  }
  bool ok() const { return ok_; }
  const std::string& why() const { return why_; }

 private:
  const Gpu& on_;
  PrefillArgs args_;
  std::int64_t first_sequence_ = 0;
  bool continues_ = false;
  bool ok_ = false;
  std::string why_;
  std::unique_ptr<DeviceBuffer> bounds_;
};

// The case on ranks that begin at these tokens.
GdnMemory run_on_ranks(const PrefillCase& c, const gdn::Prefill& prefill,
                       std::vector<std::int64_t> begins) {
  StateRows states(c);
  c.upload();
  std::int64_t total = 0;
  for (std::int64_t n = 0; n < c.sequences(); ++n) total += c.length(n);
  begins.push_back(total);
  std::vector<std::byte> passed_on;
  for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
    Rank rank(c, begins[r], begins[r + 1]);
    const auto found = rank.run(c, prefill, states, passed_on);
    INFO(rank.why());
    REQUIRE(rank.ok());
    for (std::size_t i = 0; i < found.size(); ++i) {
      states.finish(rank.first_sequence() + static_cast<std::int64_t>(i), found[i]);
    }
    passed_on = found.back();
  }
  return states.in(c.download());
}

void expect_same_on_ranks(const PrefillProblem& problem, const CaseShape& shape,
                          CaseOptions options, const std::vector<std::vector<std::int64_t>>& cuts) {
  options.separate_out = true;
  const PrefillCase c(problem, shape, options);
  for (const gdn::Prefill& prefill : on_every_path(problem)) {
    const GdnMemory one = run_on_ranks(c, prefill, {0});
    INFO("problem " << problem.to_json());
    expect_good(c, one, "one rank, problem " + problem.to_json());
    for (const std::vector<std::int64_t>& begins : cuts) {
      INFO("ranks: " << begins.size());
      CHECK(first_difference(run_on_ranks(c, prefill, begins), one) == "");
    }
  }
}

TEST_CASE("GdnPrefillRanks.SameBitsOnAnyNumberOfRanks", "[gpu][prefill][sanitize]") {
  const std::vector<std::vector<std::int64_t>> cuts = {
      {0, 512}, {0, 256, 512, 768}, {0, 128, 256, 384, 512, 640, 768, 896}, {0, 896}, {0, 128}};
  for (const bool channels : {false, true}) {
    PrefillProblem problem = over_ranks(small_prefill(), 128);
    if (channels) problem = with_channels(problem);
    for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
      expect_same_on_ranks(problem, {.lengths = {1000}}, {.seed = seed(), .gates = gates}, cuts);
    }
  }
}

TEST_CASE("GdnPrefillRanks.EveryGateOnFourRanks", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    PrefillProblem problem = over_ranks(small_prefill(), 128);
    problem.dtype = dtype;
    for (const GateDistribution gates : kGateDistributions) {
      expect_same_on_ranks(problem, {.lengths = {2000}},
                           {.seed = seed(), .gates = gates, .key_correlation = 0.5},
                           {{0, 512, 1024, 1536}});
    }
  }
}

// Ranks begin inside of sequences, between them, and have whole ones.
TEST_CASE("GdnPrefillRanks.SeveralSequences", "[gpu][prefill][sanitize]") {
  PrefillProblem problem = over_ranks(small_prefill(), 64);
  for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
    expect_same_on_ranks(
        problem, {.lengths = {200, 0, 500, 64, 300}}, {.seed = seed(), .gates = gates},
        {{0, 200 + 128}, {0, 64, 200, 200 + 256, 200 + 500 + 64 + 64}, {0, 200 + 500 + 64}});
  }
}

// Where ranks do not begin at multiples of a segment, bits differ, but nothing else.
TEST_CASE("GdnPrefillRanks.RanksThatBeginAnywhere", "[gpu][prefill]") {
  const PrefillProblem problem = over_ranks(small_prefill(), 128);
  for (const GateDistribution gates : kGateDistributions) {
    const PrefillCase c(problem, {.lengths = {1000, 300}},
                        {.seed = seed(), .gates = gates, .separate_out = true});
    for (const gdn::Prefill& prefill : on_every_path(problem)) {
      for (const std::vector<std::int64_t>& begins : std::vector<std::vector<std::int64_t>>{
               {0, 1}, {0, 333, 334, 1100}, {0, 999}, {0, 1000}, {0, 1299}}) {
        expect_good(c, run_on_ranks(c, prefill, begins), "problem " + problem.to_json());
      }
    }
  }
}

// Long enough that transitions are forgotten, also where nothing decays.
TEST_CASE("GdnPrefillRanks.LongSegments", "[gpu][prefill][slow]") {
  PrefillProblem problem = over_ranks(small_prefill(), 8192);
  problem.heads = {.q = 1, .k = 1, .v = 1};
  for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
    expect_same_on_ranks(problem, {.lengths = {24000}}, {.seed = seed(), .gates = gates},
                         {{0, 8192}, {0, 8192, 16384}});
  }
}

// What the test needs of NCCL, which the process may or may not have.
struct TestNccl {
  int (*init_all)(void** comms, int count, const int* devices) = nullptr;
  int (*destroy)(void* comm) = nullptr;
  int (*abort)(void* comm) = nullptr;

  static std::optional<TestNccl> load() {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return std::nullopt;
    TestNccl nccl;
    nccl.init_all = reinterpret_cast<decltype(init_all)>(dlsym(library, "ncclCommInitAll"));
    nccl.destroy = reinterpret_cast<decltype(destroy)>(dlsym(library, "ncclCommDestroy"));
    nccl.abort = reinterpret_cast<decltype(abort)>(dlsym(library, "ncclCommAbort"));
    return nccl;
  }
};

// Makes a communicator for each of two GPUs.  Absent, and the test case is skipped, where there are
// none or no NCCL.
std::optional<TestNccl> connect_two_gpus(void* (&comms)[2]) {
  int devices = 0;
  gpu().must(gpu().driver().cuDeviceGetCount(&devices), "cuDeviceGetCount");
  if (devices < 2) return skip_test("one GPU"), std::nullopt;
  std::optional<TestNccl> nccl = TestNccl::load();
  if (!nccl) return skip_test("no libnccl.so.2"), std::nullopt;
  const int ordinals[2] = {0, 1};
  REQUIRE(nccl->init_all(comms, 2, ordinals) == 0);
  return nccl;
}

// One of two GPUs, from a thread of its own.
struct OneOfTwo {
  std::unique_ptr<const Gpu> gpu;
  std::optional<GdnDeviceMemory> memory;
  std::vector<std::vector<std::byte>> states;
  std::int64_t first_sequence = 0;
  GdnMemory after;
  std::string error;
  bool in_graph = false;

  void run(const PrefillCase& c, const PrefillProblem& problem, void* comm, int rank,
           std::int64_t first, std::int64_t end) {
    Options options = test::gpu().options();
    options.device = rank;
    auto opened = Gpu::open(options);
    if (!opened) return void(error = opened.error().message());
    gpu = std::move(opened).value();
    memory = GdnDeviceMemory::allocate(gpu->device(), c.memory()).value();
    memory->upload(c.memory()).value();
    auto ranks = NcclRanks::create(gpu->context(), comm);
    if (!ranks) return void(error = ranks.error().message());
    auto made = gdn::RankPrefill::create(gpu->context().prepare(problem).value(), *ranks);
    if (!made) return void(error = made.error().message());
    Rank one(c, *gpu, c.GdnCase::args(memory->addresses()), first, end);
    first_sequence = one.first_sequence();
    const StateRows rows(c);
    states = one.run(c, made->prefill(), rows,
                     [&](const DeviceStream& stream, PrefillArgs args,
                         const DeviceBuffer& workspace, const DeviceBuffer&) {
                       args.continues = false;  // RankPrefill says so
                       gdn::RankNeighbours neighbours;
                       if (rank == 1) neighbours.source = 0;
                       if (rank == 0) neighbours.target = 1;
                       const auto enqueue = [&] {
                         return made->launch(stream.get(), args,
                                             {.data = workspace.data(), .bytes = workspace.bytes()},
                                             neighbours);
                       };
                       // The first launch connects the ranks.
                       Status status = enqueue();
                       if (!status.ok() || !in_graph) return status;
                       stream.synchronize().value();
                       auto graph = DeviceGraph::capture(stream, enqueue);
                       if (!graph) return graph.error().clone();
                       status = graph->launch(stream);
                       if (status.ok()) status = graph->launch(stream);
                       // The graph goes with this function.
                       if (status.ok()) status = stream.synchronize();
                       return status;
                     });
    if (!one.ok()) error = "rank failed: " + one.why();
    if (const Status failed = (*ranks)->check(); !failed.ok()) error = failed.message();
    after = memory->download().value();
  }
};

TEST_CASE("GdnPrefillRanks.TwoGpusByNccl", "[gpu][prefill]") {
  void* comms[2] = {};
  const std::optional<TestNccl> nccl = connect_two_gpus(comms);
  if (!nccl) return;
  PrefillProblem problem = over_ranks(small_prefill(), 128);
  for (const bool in_graph : {false, true}) {
    const GateDistribution gates =
        in_graph ? GateDistribution::kUndecayed : GateDistribution::kQwen;
    const PrefillCase c(problem, {.lengths = {300, 1000, 77}},
                        {.seed = seed(), .gates = gates, .separate_out = true});
    constexpr std::int64_t kCut = 300 + 512;
    const GdnMemory expected = run_on_ranks(c, prepare(problem), {0});
    OneOfTwo both[2];
    both[0].in_graph = both[1].in_graph = in_graph;
    std::thread other([&] { both[1].run(c, problem, comms[1], 1, kCut, 1377); });
    both[0].run(c, problem, comms[0], 0, 0, kCut);
    other.join();
    CHECK(both[0].error == "");
    CHECK(both[1].error == "");
    // Of each what it has computed.
    StateRows states(c);
    for (OneOfTwo& one : both) {
      for (std::size_t i = 0; i < one.states.size(); ++i) {
        states.finish(one.first_sequence + static_cast<std::int64_t>(i), one.states[i]);
      }
    }
    GdnMemory found = both[0].after;
    const auto cut = c.row_at(TensorId::kO, 1, 512, 0);
    const std::vector<std::byte>& behind = both[1].after[cut.piece];
    std::copy(behind.begin() + static_cast<std::ptrdiff_t>(cut.byte), behind.end(),
              found[cut.piece].begin() + static_cast<std::ptrdiff_t>(cut.byte));
    CHECK(first_difference(states.in(found), expected) == "");
  }
  // Ranks with different problems: both are told, and none waits.
  const PrefillCase c(problem, {.lengths = {200}}, {.seed = seed(), .separate_out = true});
  PrefillProblem another = problem;
  another.segment_tokens = 64;
  OneOfTwo both[2];
  std::thread other([&] { both[1].run(c, another, comms[1], 1, 128, 200); });
  both[0].run(c, problem, comms[0], 0, 0, 128);
  other.join();
  for (const OneOfTwo& one : both) {
    INFO(one.error);
    CHECK(one.error.find("another rank has another problem") != std::string::npos);
  }
  for (void* comm : comms) nccl->destroy(comm);
}

// The others are told in time, and what they have enqueued ends when the caller says so.
TEST_CASE("GdnPrefillRanks.ARankThatDies", "[gpu][prefill]") {
  void* comms[2] = {};
  const std::optional<TestNccl> nccl = connect_two_gpus(comms);
  if (!nccl) return;
  constexpr std::size_t kBytes = 65536;
  std::unique_ptr<const Gpu> gpus[2];
  std::shared_ptr<NcclRanks> ranks[2];
  bool met[2] = {};
  const auto meet = [&](int rank) {
    Options options = test::gpu().options();
    options.device = rank;
    gpus[rank] = Gpu::open(options).value();
    ranks[rank] =
        NcclRanks::create(gpus[rank]->context(), comms[rank], std::chrono::milliseconds(500))
            .value();
    const DeviceBuffer data(*gpus[rank], kBytes);
    const DeviceStream stream = make_stream(*gpus[rank]);
    const Result<bool> agreed = ranks[rank]->agree(1);
    const Status sent = rank == 0 ? ranks[0]->receive(stream.get(), data.data(), kBytes, 1)
                                  : ranks[1]->send(stream.get(), data.data(), kBytes, 0);
    met[rank] = agreed && *agreed && sent.ok() && stream.synchronize().ok();
  };
  std::thread other([&] { meet(1); });
  meet(0);
  other.join();
  REQUIRE((met[0] && met[1]));
  // Rank 1 does nothing more.
  const DeviceBuffer data(*gpus[0], kBytes);
  const DeviceStream stream = make_stream(*gpus[0]);
  CHECK(ranks[0]->receive(stream.get(), data.data(), kBytes, 1).ok());
  const Result<bool> agreed = ranks[0]->agree(1);
  REQUIRE(!agreed);
  CHECK(agreed.error().code() == Code::kDriver);
  CHECK(agreed.error().message() ==
        "NCCL: ncclAllReduce on rank 0 of 2: other ranks have not come in 500 ms");
  nccl->abort(comms[0]);
  CHECK(stream.synchronize().ok());
  nccl->abort(comms[1]);
}

}  // namespace
}  // namespace cubinery::test
