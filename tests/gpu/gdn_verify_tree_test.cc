// GDN verify of trees: every token against its path, by the double-precision reference and by steps
// of decode; chains in the form of trees; parents that cannot be.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "harness/rounding.h"
#include "runtime/gdn/verify/paths.h"
#include "runtime/operator/tuning_context.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/problem_sweeps.h"
#include "tests/gpu/verify_steps.h"

namespace cubinery::test::gdn_verify_tree_test {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::StateLayout;
using gdn::StoredStates;
using gdn::VerifyArgs;
using gdn::VerifyProblem;

// Few states, and enough of them for the kernel of large launches.
const std::vector<CaseShape> kShapes = {uniform(3, 12), uniform(300, 5)};

// Dense, with the state after each token.
VerifyProblem tree() {
  VerifyProblem problem = small_verify();
  problem.tree = true;
  problem.stored_states = StoredStates::kEvery;
  return problem;
}

// Packed, in a pool, without new states: what the reference has such cases of.
VerifyProblem packed_tree() {
  VerifyProblem problem = as_packed_pool(tree());
  problem.states.store = false;
  return problem;
}

// Requests of 9, 1, 0, 4, 9, 1, ... tokens.
CaseShape first(std::int64_t requests) { return cycle(requests, {9, 1, 0, 4}); }

// Those of 16-bit q, k and v, with and without new states.
std::vector<VerifyProblem> both(const std::vector<VerifyProblem>& problems) {
  std::vector<VerifyProblem> all;
  for (const VerifyProblem& problem : problems) {
    if (problem.dtype == DType::kF32) continue;
    for (const bool store : {true, false}) all.emplace_back(problem).states.store = store;
  }
  return all;
}

void run_shapes(const std::vector<VerifyProblem>& problems, const CaseOptions& options = {}) {
  run_cases(both(problems), kShapes, options);
}

TEST_CASE("GdnVerifyTree.EveryOperandAndOutputDtype", "[gpu][verify]") {
  run_shapes(operand_and_output_dtypes(tree()));
}

TEST_CASE("GdnVerifyTree.EveryStateDtypeAndLayout", "[gpu][verify]") {
  run_shapes(state_dtypes_and_layouts(tree()));
}

TEST_CASE("GdnVerifyTree.EveryGateAndBetaModeAndDtype", "[gpu][verify][slow][sanitize]") {
  run_cases(both(gate_modes_and_dtypes(tree())), {uniform(3, 7)});
  run_cases(both(beta_modes_and_dtypes(tree())), {uniform(3, 7)});
}

// Decays that pass each other's range: what is not on a path would be infinite.
TEST_CASE("GdnVerifyTree.EveryGateDistribution", "[gpu][verify]") {
  for (const GateMode mode : {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
    for (const GateDistribution gates : kGateDistributions) {
      VerifyProblem problem = tree();
      problem.inputs.gate_mode = mode;
      problem.inputs.use_qk_l2norm = true;
      run_cases(both({problem}), {uniform(3, 16)}, {.gates = gates, .key_correlation = 0.9});
    }
  }
}

TEST_CASE("GdnVerifyTree.EveryHeadRatio", "[gpu][verify]") {
  run_cases(both(head_ratios(tree())), {uniform(3, 6)});
}

TEST_CASE("GdnVerifyTree.EveryDim", "[gpu][verify][big][slow]") {
  std::vector<VerifyProblem> problems;
  for (int dim = 16; dim <= 256; dim += 16) {
    for (const StateLayout layout : kLayouts) {
      for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
        VerifyProblem problem = tree();
        problem.states.layout = layout;
        problem.states.dtype = state_dtype;
        problem.key_dim = dim;
        problem.value_dim = 272 - dim;
        problems.push_back(problem);
      }
    }
  }
  run_cases(problems, {uniform(3, 6)});
}

TEST_CASE("GdnVerifyTree.EveryNumberOfTokens", "[gpu][verify]") {
  for (const int most : {8, 16}) {  // of the two kinds of kernels
    for (const DType parents_dtype : {DType::kI32, DType::kI64}) {
      VerifyProblem problem = tree();
      problem.draft_tokens = most;
      problem.parents_dtype = parents_dtype;
      for (std::int64_t tokens = 1; tokens <= most; ++tokens) {
        run_cases(both({problem}), {uniform(7, tokens)});
      }
      problem.states.store = false;
      run_case(problem, uniform(2, 0));
    }
  }
}

TEST_CASE("GdnVerifyTree.EveryNumberOfRequests", "[gpu][verify]") {
  for (const std::int64_t requests : {0, 1, 2, 33, 257}) {
    run_case(tree(), uniform(requests, 5));
    run_case(packed_tree(), first(requests));
  }
}

TEST_CASE("GdnVerifyTree.WithoutInitialState", "[gpu][verify]") {
  VerifyProblem problem = tree();
  problem.states.has_initial = false;  // the state is NaN before the launch
  run_shapes({problem});
}

TEST_CASE("GdnVerifyTree.TakesOperandsAsTheyLie", "[gpu][verify]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const VerifyProblem& problem : {tree(), packed_tree()}) {
      run_case(problem, uniform(3, 5), {.placement = placement});
      run_case(problem, uniform(130, 9), {.placement = placement});
    }
  }
}

// The configurations of the path that takes trees.
auto wy_defaults(const VerifyProblem& problem) {
  return gdn::verify_wy().defaults(problem, target_of(gpu().context()));
}
gdn::Verify by_wy(const VerifyProblem& problem, std::size_t which) {
  const auto values = wy_defaults(problem).at(which)->values();
  return gdn::Verify::create(gpu().context(), problem, target_of(gpu().context()), values).value();
}

// The same numbers in the same order: the same bits, whichever configurations they are of.  A cover
// of pairs of the problem's fields and the configuration of the tree.
TEST_CASE("GdnVerifyTree.AChainHasTheBitsOfNoTree", "[gpu][verify][slow]") {
  struct Launched {
    VerifyProblem problem;
    std::size_t configuration;
  };
  std::vector<Launched> all;
  std::vector<std::vector<std::string>> rows;
  for (const auto& sweep : {state_dtypes_and_layouts(tree()), gate_modes_and_dtypes(tree())}) {
    for (VerifyProblem problem : both(sweep)) {
      problem.inputs.use_qk_l2norm = true;
      for (const int most : {8, 16}) {
        problem.draft_tokens = most;
        for (std::size_t i = 0; i < wy_defaults(problem).size(); ++i) {
          all.push_back({problem, i});
          rows.push_back(row_of(problem.to_json(), {std::to_string(i)}));
        }
      }
    }
  }
  for (const std::size_t i : cover(rows)) {
    const auto& [problem, configuration] = all[i];
    VerifyProblem chain = problem;
    chain.tree = false;
    const CaseShape shape = uniform(5, problem.draft_tokens - 1);
    VerifyCase one(problem, shape, {.seed = seed()});
    for (std::int64_t n = 0; n < one.sequences(); ++n) {
      for (std::int64_t t = 0; t < one.length(n); ++t) {
        store_integer(problem.parents_dtype, one.at(one.parent_at(n, t)), t - 1);
      }
    }
    const VerifyCase other(chain, shape, {.seed = seed()});
    const GdnMemory expected = run(other, by_wy(chain, 0));
    GdnMemory after = run(one, by_wy(problem, configuration));
    after[static_cast<std::size_t>(TensorId::kParents)].clear();
    INFO("problem " << problem.to_json() << ", seed " << seed());
    CHECK(first_difference(after, expected) == "");
  }
}

// A parent that cannot be: NaN in its request and no state, others do not notice.
TEST_CASE("GdnVerifyTree.MalformedParents", "[gpu][verify][sanitize]") {
  struct Bad {
    std::int64_t token, parent;
  };
  constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int32_t>::max();
  std::vector<Bad> all = {{0, 0}, {0, -2}, {0, 1},    {3, 3},     {3, 4}, {3, 7},
                          {3, 8}, {3, -2}, {7, kLow}, {7, kHigh}, {7, 7}, {5, 1000}};
  for (const DType parents_dtype : {DType::kI32, DType::kI64}) {
    // Must not be taken for 0 and -1.
    if (parents_dtype == DType::kI64) {
      all.push_back({3, std::int64_t{1} << 32});
      all.push_back({3, (std::int64_t{1} << 32) - 1});
      all.push_back({3, std::numeric_limits<std::int64_t>::min()});
    }
    for (VerifyProblem problem : {tree(), packed_tree()}) {
      problem.parents_dtype = parents_dtype;
      for (const int most : {8, 16}) {
        problem.draft_tokens = most;
        for (const gdn::Verify& verify : on_every_path(problem)) {
          for (const Bad& bad : all) {
            VerifyCase one(problem, uniform(4, 8), {.seed = seed()});
            store_integer(parents_dtype, one.at(one.parent_at(2, bad.token)), bad.parent);
            expect_good(one, run(one, verify), "parent " + std::to_string(bad.parent));
          }
        }
      }
    }
  }
}

// Whatever the parents of padding are, and those of tokens of no request.
TEST_CASE("GdnVerifyTree.PaddingHasNoParents", "[gpu][verify][sanitize]") {
  const VerifyProblem problem = packed_tree();
  for (const Padding& padding : every_padding(0)) {
    if (!padding.slot_id || padding.is_computed()) continue;
    for (const gdn::Verify& verify : on_every_path(problem)) {
      VerifyCase one(problem, {.lengths = {3, 5, 2}, .lead = 3, .tail = 4},
                     {.seed = seed(), .padding = padding, .padded = 1});
      for (std::int64_t t = 0; t < one.length(1); ++t) {
        store_integer(problem.parents_dtype, one.at(one.parent_at(1, t)), 77);
      }
      expect_good(one, run(one, verify), "padding");
    }
  }
}

// Bounds that cannot be: no parent is read.
TEST_CASE("GdnVerifyTree.MalformedCuSeqlens", "[gpu][verify]") {
  const VerifyProblem problem = packed_tree();
  for (const gdn::Verify& verify : on_every_path(problem)) {
    for (const std::int64_t bound : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 30}) {
      VerifyCase one(problem, {.lengths = {4, 1, 3, 5}}, {.seed = seed()});  // 0 4 5 8 13
      store_integer(problem.cu_seqlens_dtype, one.at(one.vector_at(TensorId::kCuSeqlens, 2)),
                    bound);
      expect_good(one, run(one, verify), "bound " + std::to_string(bound));
    }
  }
}

struct Round {
  std::vector<std::int64_t> bounds;    // of 3 requests
  std::vector<std::int64_t> accepted;  // of those
  std::vector<std::int64_t> slots;     // 3 x 6
  std::vector<std::int64_t> parents;   // 11
};
const Round kRounds[] = {
    {{0, 4, 5, 11},
     {1, 1, 1},
     {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25},
     {-1, 0, 0, 1, -1, -1, 0, 1, 0, 3, 3}},
    {{0, 6, 6, 9},
     {4, 1, 6},
     {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25},
     {-1, -1, 1, -1, 2, 0, -1, 0, 0, 99, 99}},
    {{1, 2, 7, 11},
     {2, 0, 3},
     {31, 4, 5, 1, 7, 8, 0, 10, 11, 2, 13, 14, 30, 21, 22, 29, 24, 25},
     {99, -1, -1, 0, 1, 2, 0, -1, 0, 1, 2}},
};

// A state of its own, in place of a slot that may be written.
class CopiedState {
 public:
  explicit CopiedState(const SlotTable& table) : bytes_(gpu(), table.bytes(0).size()) {
    tensor_ = table.slot(0);
    tensor_.data = bytes_.data();
  }
  const Tensor& copy(const SlotTable& table, std::int64_t slot) const {
    bytes_.upload(table.bytes(slot));
    return tensor_;
  }

 private:
  DeviceBuffer bytes_;
  Tensor tensor_{};
};

// Requests in a pool, read by a count and written in place: what decoding each token from its
// parent's state gives.  One graph, whose replays see other trees, counts, slots, bounds.
TEST_CASE("GdnVerifyTree.AGraphsReplaysFollowParentsCountsAndSlots", "[gpu][verify]") {
  std::vector<VerifyProblem> problems;
  for (const VerifyProblem& problem : state_dtypes_and_layouts(tree())) {
    for (const DType parents_dtype : {DType::kI32, DType::kI64}) {
      problems.emplace_back(problem).parents_dtype = parents_dtype;
    }
  }
  for (const VerifyProblem& problem : cover(problems)) {
    const DType parents_dtype = problem.parents_dtype;
    const SlotTable table(problem), expected(problem);
    const VerifyCase states = states_for(table);
    const VerifyCase tokens = tokens_for(table, {.lengths = {4, 1, 6}});
    const CopiedState initial(expected);
    const Numbers bounds(DType::kI32, {4}, kRounds[0].bounds);
    const Numbers counts(DType::kI32, {3}, kRounds[0].accepted);
    const Numbers slots(DType::kI32, {3, 6}, kRounds[0].slots);
    const Numbers parents(parents_dtype, {11}, kRounds[0].parents);
    VerifyArgs args = tokens.args();
    args.cu_seqlens = bounds.tensor();
    args.parents = parents.tensor();
    set_steps(table, counts, slots, &args);
    const gdn::Decode decode = decode_of(table.problem());
    for (const gdn::Verify& verify : on_every_path(table.problem())) {
      table.fill(states);
      expected.fill(states);
      const DeviceStream stream = make_stream(gpu());
      const DeviceGraph graph =
          DeviceGraph::capture(stream, [&] { return verify.launch(stream.get(), args); }).value();
      for (const Round& round : kRounds) {
        bounds.set(round.bounds);
        counts.set(round.accepted);
        slots.set(round.slots);
        parents.set(round.parents);
        tokens.upload();
        graph.launch(stream).value();
        stream.synchronize().value();
        const GdnMemory outputs = tokens.download();

        tokens.upload();
        for (std::int64_t n = 0; n < 3; ++n) {
          const auto slot = [&](std::int64_t t) { return round.slots[idx(n * 6 + t)]; };
          const std::int64_t start = std::max<std::int64_t>(round.accepted[idx(n)] - 1, 0);
          const Tensor& root = initial.copy(expected, slot(start));
          for (std::int64_t i = round.bounds[idx(n)]; i < round.bounds[idx(n) + 1]; ++i) {
            const std::int64_t parent = round.parents[idx(i)];
            const Tensor from = parent < 0 ? root : expected.slot(slot(parent));
            const Tensor to = expected.slot(slot(i - round.bounds[idx(n)]));
            decode.launch(stream.get(), step_args(tokens.args(), i, from, to)).value();
          }
          stream.synchronize().value();
        }
        const auto numbers = [&](const GdnMemory& memory) {
          const auto bytes = tokens.bytes(memory, TensorId::kO);
          return from_bytes(problem.output_dtype,
                            std::vector<std::byte>(bytes.begin(), bytes.end()));
        };
        INFO("problem " << table.problem().to_json() << ", seed " << seed());
        CHECK(largest_difference(numbers(outputs), numbers(tokens.download())) < 0.02);
        CHECK(largest_difference(from_bytes(problem.states.dtype, table.pool().download()),
                                 from_bytes(problem.states.dtype, expected.pool().download())) <
              0.02);
      }
    }
  }
}

TEST_CASE("GdnVerifyTree.NonFiniteInputsStayInTheirRequestAndHead", "[gpu][verify]") {
  VerifyProblem problem = tree();  // two value heads per key head
  problem.inputs.beta_mode = BetaMode::kGiven;
  for (const gdn::Verify& verify : on_every_path(problem)) {
    expect_all_confined([&] { return VerifyCase(problem, uniform(3, 4), {.seed = seed()}); },
                        verify, 2);
  }
}

TEST_CASE("GdnVerifyTree.BitsDoNotDependOnTheBatch", "[gpu][verify]") {
  VerifyProblem problem = packed_tree();
  problem.batch_invariant = true;
  const VerifyCase c(problem, first(257), {.seed = seed()});
  for (const gdn::Verify& verify : on_every_path(problem)) {
    expect_same_in_parts(c, verify, {{0, 1}, {0, 150}, {100, 2}, {100, 150}, {255, 1}});
  }
}

TEST_CASE("GdnVerifyTree.LaunchWithPdlEqualsPlainLaunch", "[gpu][verify]") {
  const VerifyCase c(tree(), uniform(130, 6), {.seed = seed(), .enable_pdl = true});
  for (const gdn::Verify& verify : on_every_path(tree())) {
    if (!can_enable_pdl(c, verify)) return;
    expect_same_with_pdl(c, verify, 20);
    expect_same_in_graph(c, verify, 3, 1);
  }
}

}  // namespace
}  // namespace cubinery::test::gdn_verify_tree_test
