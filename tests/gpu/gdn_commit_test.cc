// GDN commit: every option of one layer against the double-precision reference, then what it is
// for: the accepted tokens of all layers, in one launch.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "harness/rounding.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "tests/gpu/far_pool.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/numbers.h"
#include "tests/gpu/pool_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::gdn_commit_test {
namespace {

using gdn::CommitArgs;
using gdn::CommitLayer;
using gdn::CommitProblem;
using gdn::GateMode;
using gdn::StateLayout;

CommitProblem packed() { return as_packed(small_commit()); }
CommitProblem pool() { return as_packed_pool(small_commit()); }

// Requests of 5, 1, 0, 3, 5, 1, ... tokens.
CaseShape first(std::int64_t requests) { return cycle(requests, {5, 1, 0, 3}); }

TEST_CASE("GdnCommit.EveryStateDtypeAndLayout", "[gpu][commit]") {
  run_cases(state_dtypes_and_layouts(small_commit()), {uniform(3, 4), uniform(300, 3)});
}

TEST_CASE("GdnCommit.EveryInputModeAndDtype", "[gpu][commit][slow][sanitize]") {
  run_cases(gate_modes_and_dtypes(small_commit()), {uniform(3, 4)});
  run_cases(beta_modes_and_dtypes(small_commit()), {uniform(3, 4)});
  CommitProblem f16 = small_commit();
  f16.dtype = DType::kF16;
  run_case(f16, uniform(3, 4));
}

TEST_CASE("GdnCommit.EveryGateDistribution", "[gpu][commit]") {
  for (const GateDistribution gates : kGateDistributions) {
    CommitProblem problem = small_commit();
    problem.inputs.gate_mode = GateMode::kComputed;
    problem.inputs.use_qk_l2norm = true;
    for (const std::int64_t tokens : {5, 16}) {
      run_case(problem, uniform(3, tokens), {.gates = gates, .key_correlation = 0.9});
    }
  }
}

TEST_CASE("GdnCommit.EveryHeadRatio", "[gpu][commit]") {
  run_cases(head_ratios(small_commit()), {uniform(3, 4)});
}

TEST_CASE("GdnCommit.EveryDim", "[gpu][commit][big][slow]") {
  std::vector<CommitProblem> problems;
  for (int dim = 16; dim <= 256; dim += 16) {
    for (const StateLayout layout : kLayouts) {
      for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
        CommitProblem problem = small_commit();
        problem.states.layout = layout;
        problem.states.dtype = state_dtype;
        problem.key_dim = dim;
        problem.value_dim = 272 - dim;
        problems.push_back(problem);
      }
    }
  }
  run_cases(problems, {uniform(3, 4)});
}

TEST_CASE("GdnCommit.EveryNumberOfColumns", "[gpu][commit][sanitize][slow]") {
  CommitProblem problem = pool();
  problem.draft_tokens = 8;
  run_with_all_columns<CommitCase>(state_dtypes_and_layouts(problem),
                                   [](const CommitProblem&) { return first(6); });
}

TEST_CASE("GdnCommit.EveryNumberOfTokensAndRequests", "[gpu][commit]") {
  for (std::int64_t tokens = 0; tokens <= 16; ++tokens)
    run_case(small_commit(), uniform(2, tokens));
  CommitProblem few = small_commit();
  few.draft_tokens = 8;
  for (std::int64_t tokens = 0; tokens <= 8; ++tokens) run_case(few, uniform(2, tokens));
  for (const std::int64_t requests : {0, 1, 2, 7, 33, 257}) {
    run_case(small_commit(), uniform(requests, 3));
    run_case(packed(), first(requests));
  }
}

TEST_CASE("GdnCommit.TakesTensorsAsTheyLie", "[gpu][commit]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const CommitProblem& problem : {small_commit(), pool()}) {
      run_case(problem, uniform(3, 5), {.placement = placement});
    }
  }
  run_case(small_commit(), uniform(5, 3), {.head_gap = 8, .slot_gap = 24});
  run_case(small_commit(), uniform(5, 3), {.separate_out = true});
}

TEST_CASE("GdnCommit.ReadsAndWritesSlots", "[gpu][commit][sanitize]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    CommitProblem problem = pool();
    problem.states.index_dtype = problem.cu_seqlens_dtype = index_dtype;
    run_case(problem, first(5));
    run_case(problem, first(130), {.write_indices = true});
    run_case(problem, first(5), {.separate_out = true, .write_indices = true});
  }
  run_shared_slots(pool(), first);
  run_padding_policies(pool(), first);
  run_padded_write_indices(pool(), first);
  run_outside_the_pool(pool(), first(3));
}

TEST_CASE("GdnCommit.SlotsBeyond32BitOffsets", "[gpu][commit][big]") {
  expect_far_pools_work<CommitProblem>([](const CommitProblem& problem) {
    return CommitCase(problem, uniform(4, 2), near_options());
  });
}

// Bounds that cannot be touch no state.
TEST_CASE("GdnCommit.MalformedCuSeqlens", "[gpu][commit][sanitize]") {
  struct Bad {
    std::int64_t index, value;
  };
  for (const gdn::Commit& commit : on_every_path(packed())) {
    for (const auto& [index, value] :
         {Bad{0, -1}, Bad{2, 3}, Bad{4, 14}, Bad{1, 1 << 30}, Bad{2, -5}}) {
      CommitCase one(packed(), {.lengths = {4, 1, 3, 5}}, {.seed = seed()});  // 0 4 5 8 13
      store_integer(DType::kI32, one.at(one.vector_at(TensorId::kCuSeqlens, index)), value);
      expect_good(one, run(one, commit), "bound " + std::to_string(index));
    }
  }
}

TEST_CASE("GdnCommit.BitsDoNotDependOnTheBatch", "[gpu][commit]") {
  const CommitCase c(packed(), first(257), {.seed = seed()});
  for (const gdn::Commit& commit : on_every_path(packed())) {
    expect_same_in_parts(c, commit, {{0, 1}, {0, 150}, {100, 2}, {255, 1}});
  }
}

TEST_CASE("GdnCommit.GraphsLaunchesWithPdlAndThreads", "[gpu][commit]") {
  const CommitCase ragged(pool(), first(130), {.seed = seed(), .enable_pdl = true});
  std::vector<std::unique_ptr<CommitCase>> cases;
  for (int i = 0; i < 8; ++i) {
    const CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
    cases.push_back(std::make_unique<CommitCase>(small_commit(), uniform(1 + 20 * i, 2), options));
  }
  for (const gdn::Commit& commit : on_every_path(small_commit())) {
    expect_same_from_threads(cases, commit, 50);
  }
  for (const gdn::Commit& commit : on_every_path(pool())) {
    if (!can_enable_pdl(ragged, commit)) return;
    expect_same_in_graph(ragged, commit, 2, 3);
    expect_same_with_pdl(ragged, commit, 20);
  }
}

// The layers of a model: the same shapes, other numbers and, every second one, other strides.
class Layers {
 public:
  Layers(const CommitProblem& problem, std::int64_t requests, std::int64_t tokens, int count) {
    for (int i = 0; i < count; ++i) {
      CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
      if (i % 2 != 0) options = {.seed = options.seed, .slot_gap = 64, .separate_out = true};
      layers_.push_back(std::make_unique<CommitCase>(problem, uniform(requests, tokens), options));
    }
  }
  std::size_t size() const { return layers_.size(); }
  const CommitCase& operator[](std::size_t i) const { return *layers_[i]; }
  void upload() const {
    for (const auto& layer : layers_) layer->upload();
  }
  std::vector<CommitLayer> tensors() const {
    std::vector<CommitLayer> tensors;
    for (const auto& layer : layers_) tensors.push_back(layer->args().layer);
    return tensors;
  }
  Numbers table(const gdn::Commit& commit) const {
    const std::vector<std::int64_t> words = commit.table(tensors()).value();
    return Numbers(DType::kI64, {static_cast<std::int64_t>(size()), 32}, words);
  }

 private:
  std::vector<std::unique_ptr<CommitCase>> layers_;
};

// The first `count` tokens of a request of dense tensors, which are then all accepted.
CommitArgs prefix(const CommitCase& layer, std::int64_t n, std::int64_t count) {
  CommitArgs args = layer.args(n, 1);
  for (Tensor* tensor : {&args.layer.k, &args.layer.v, &args.layer.g, &args.layer.beta}) {
    slice(tensor, 1, 0, count);
  }
  return args;
}

// The states of all layers, when each request is committed alone, in each.  Counts that cannot be
// commit nothing.
std::vector<GdnMemory> one_by_one(const gdn::Commit& commit, const Layers& layers,
                                  const std::vector<std::int64_t>& accepted, std::int64_t tokens) {
  std::vector<GdnMemory> memories;
  const DeviceStream stream = make_stream(gpu());
  layers.upload();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (std::size_t n = 0; n < accepted.size(); ++n) {
      if (accepted[n] < 0 || accepted[n] > tokens) continue;
      commit.launch(stream.get(), prefix(layers[i], static_cast<std::int64_t>(n), accepted[n]))
          .value();
    }
    stream.synchronize().value();
    memories.push_back(layers[i].download());
  }
  return memories;
}

TEST_CASE("GdnCommit.CommitsTheAcceptedTokensOfAllLayers", "[gpu][commit]") {
  constexpr std::int64_t kRequests = 6, kTokens = 5;
  const std::vector<std::int64_t> accepted = {5, 0, 3, 1, -1, 6};
  std::vector<CommitProblem> problems;
  for (const CommitProblem& problem : state_dtypes_and_layouts(small_commit())) {
    for (const DType dtype : {DType::kI32, DType::kI64}) {
      problems.emplace_back(problem).accepted_dtype = dtype;
    }
  }
  for (const CommitProblem& problem : cover(problems)) {
    const DType dtype = problem.accepted_dtype;
    const Layers layers(problem, kRequests, kTokens, 5);
    const Numbers counts(dtype, {kRequests}, accepted);
    for (const gdn::Commit& commit : on_every_path(problem)) {
      const auto expected = one_by_one(commit, layers, accepted, kTokens);
      const Numbers table = layers.table(commit);
      const DeviceStream stream = make_stream(gpu());
      layers.upload();
      commit.launch(stream.get(), {.layers = table.tensor(), .accepted = counts.tensor()}).value();
      stream.synchronize().value();
      for (std::size_t i = 0; i < layers.size(); ++i) {
        INFO("layer " << i << ", problem " << problem.to_json());
        CHECK(first_difference(layers[i].download(), expected[i]) == "");
      }
    }
  }
}

// One graph; the next replay finds other counts.
TEST_CASE("GdnCommit.AGraphsReplaysFollowCounts", "[gpu][commit]") {
  constexpr std::int64_t kRequests = 3, kTokens = 4;
  const Layers layers(small_commit(), kRequests, kTokens, 3);
  for (const gdn::Commit& commit : on_every_path(small_commit())) {
    const Numbers table = layers.table(commit);
    const Numbers counts(DType::kI32, {kRequests}, {0, 0, 0});
    const DeviceStream stream = make_stream(gpu());
    const DeviceGraph graph = DeviceGraph::capture(stream, [&] {
                                return commit.launch(stream.get(), {.layers = table.tensor(),
                                                                    .accepted = counts.tensor()});
                              }).value();
    for (const std::vector<std::int64_t>& accepted :
         {std::vector<std::int64_t>{1, 4, 2}, {0, 3, 4}}) {
      const auto expected = one_by_one(commit, layers, accepted, kTokens);
      layers.upload();
      counts.set(accepted);
      graph.launch(stream).value();
      stream.synchronize().value();
      for (std::size_t i = 0; i < layers.size(); ++i) {
        CHECK(first_difference(layers[i].download(), expected[i]) == "");
      }
    }
  }
}

// Requests that a layer of the table has no room for touch nothing of it, and other layers do not
// notice.
TEST_CASE("GdnCommit.NothingBeyondTheRoomOfALayer", "[gpu][commit][sanitize]") {
  const Layers few(small_commit(), 2, 3, 1), many(small_commit(), 4, 3, 1);
  for (const gdn::Commit& commit : on_every_path(small_commit())) {
    std::vector<CommitLayer> tensors = few.tensors();
    tensors.push_back(many.tensors().front());
    const Numbers table(DType::kI64, {2, 32}, commit.table(tensors).value());
    const std::vector<std::int64_t> all = {3, 3, 3, 3};
    const Numbers counts(DType::kI32, {4}, all);
    const auto expected_many = one_by_one(commit, many, all, 3);
    const auto expected_few = one_by_one(commit, few, {3, 3}, 3);
    few.upload();
    many.upload();
    const DeviceStream stream = make_stream(gpu());
    commit.launch(stream.get(), {.layers = table.tensor(), .accepted = counts.tensor()}).value();
    stream.synchronize().value();
    CHECK(first_difference(few[0].download(), expected_few[0]) == "");
    CHECK(first_difference(many[0].download(), expected_many[0]) == "");
  }
}

// Verify without keeping states, reject some, commit, decode on: the same as to have decoded the
// accepted tokens and the next one.  Both are within the rounding of the new state of each other.
TEST_CASE("GdnCommit.IsWhatDecodingTheAcceptedTokensGives", "[gpu][commit]") {
  constexpr std::int64_t kRequests = 4, kTokens = 6;
  const std::vector<std::int64_t> accepted = {6, 0, 2, 5};
  std::vector<CommitProblem> problems;
  for (const StateLayout layout : kLayouts) {
    CommitProblem& problem = problems.emplace_back(small_commit());
    problem.states.layout = layout;
    problem.inputs.gate_mode = GateMode::kComputed;
    problem.inputs.use_qk_l2norm = true;
    problems.emplace_back(problem).inputs.decay = gdn::Decay::kChannel;
    problems.emplace_back(problems.back()).inputs.gate_mode = GateMode::kLowerBound;
  }
  for (const CommitProblem& problem : problems) {
    gdn::DecodeProblem step = small_problem();
    step.inputs = problem.inputs;
    step.states = problem.states;
    const gdn::Decode decode = prepare(step, {1});
    const CommitCase one(problem, uniform(kRequests, kTokens), {.seed = seed()});
    const gdn::PrefillArgs all = one.PrefillCase::args();
    const Numbers counts(DType::kI32, {kRequests}, accepted);
    const DeviceStream stream = make_stream(gpu());
    one.upload();
    for (std::int64_t n = 0; n < kRequests; ++n) {
      for (std::int64_t t = 0; t < accepted[idx(n)]; ++t) {
        gdn::PrefillArgs token = all;
        for (Tensor* tensor : token_tensors(&token)) {
          slice(tensor, 0, n, 1);
          slice(tensor, 1, t, 1);
        }
        slice(&token.state, 0, n, 1);
        decode
            .launch(stream.get(), {.q = token.q,
                                   .k = token.k,
                                   .v = token.v,
                                   .g = token.g,
                                   .beta = token.beta,
                                   .A_log = token.A_log,
                                   .dt_bias = token.dt_bias,
                                   .o = token.o,
                                   .state = token.state,
                                   .state_out = token.state_out,
                                   .state_indices = token.state_indices,
                                   .state_out_indices = token.state_out_indices,
                                   .pad_slot_id = token.pad_slot_id,
                                   .scratch_slot = token.scratch_slot,
                                   .lower_bound = token.lower_bound})
            .value();
      }
    }
    stream.synchronize().value();
    const GdnMemory decoded = one.download();
    for (const gdn::Commit& commit : on_every_path(problem)) {
      one.upload();
      CommitArgs args = one.args();
      args.accepted = counts.tensor();
      commit.launch(stream.get(), args).value();
      stream.synchronize().value();
      const GdnMemory committed = one.download();
      for (std::int64_t n = 0; n < kRequests; ++n) {
        for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
          const auto a = one.matrix_values<double>(decoded, TensorId::kState, n, h);
          const auto b = one.matrix_values<double>(committed, TensorId::kState, n, h);
          double largest = 0, difference = 0;
          for (std::size_t i = 0; i < a.size(); ++i) {
            largest = std::max(largest, std::abs(a[i]));
            difference = std::max(difference, std::abs(a[i] - b[i]));
          }
          INFO("request " << n << ", head " << h);
          CHECK(difference <= largest * std::ldexp(1.0, -18));
          if (accepted[idx(n)] == 0) CHECK(a == b);
        }
      }
    }
  }
}

}  // namespace
}  // namespace cubinery::test::gdn_commit_test
