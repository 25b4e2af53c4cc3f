// GDN decode and how its operands lie; what one request may do to another; launches in graphs, from
// several threads and overlapping; many steps.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/rounding.h"
#include "tests/gpu/launches.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::PrefillArgs;
using gdn::StateLayout;
using gdn::StateLocation;

TEST_CASE("GdnDecode.TakesOperandsAsTheyLie", "[gpu]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      DecodeProblem problem = small_problem();
      problem.dtype = problem.output_dtype = dtype;
      problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
      problem.inputs.gate_mode = GateMode::kComputed;
      problem.states.location = StateLocation::kPool;
      CaseOptions options;
      options.placement = placement;
      options.write_indices = true;
      run_case(problem, 3, options);
      run_case(problem, 130, options);
    }
  }
}

TEST_CASE("GdnDecode.NonFiniteInputsStayInTheirRequestAndHead", "[gpu]") {
  DecodeProblem problem = small_problem();  // two value heads per key head
  problem.inputs.beta_mode = BetaMode::kGiven;
  expect_all_confined([&] { return DecodeCase(problem, 3, {.seed = seed()}); }, prepare(problem),
                      0);
}

// Each size has its fastest configuration: right, and the same from run to run.
TEST_CASE("GdnDecode.WithoutBatchInvariantEverySizeIsRightAndRepeats", "[gpu]") {
  DecodeProblem problem;
  problem.heads = {.q = 4, .k = 4, .v = 8};
  problem.inputs.use_qk_l2norm = true;
  const gdn::Decode decode = prepare(problem);
  std::set<std::string> configurations;
  for (const std::int64_t batch : {1, 8, 64}) {
    configurations.insert(decode.choice(batch).configuration);
    const DecodeCase c(problem, batch, {.seed = seed()});
    const GdnMemory first = run(c, decode);
    expect_good(c, first, "batch " + std::to_string(batch));
    CHECK(first_difference(run(c, decode), first) == "");
  }
  if (configurations.size() < 2) WARN("one configuration: " << *configurations.begin());
}

// With batch_invariant the bits of a request do not depend on the batch around it.
TEST_CASE("GdnDecode.BitsDoNotDependOnTheBatch", "[gpu][big]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
      DecodeProblem problem;
      problem.heads.q = problem.heads.k = 4;
      problem.heads.v = 8;
      problem.states.layout = layout;
      problem.states.dtype = state_dtype;
      problem.inputs.use_qk_l2norm = true;
      problem.batch_invariant = true;
      const std::int64_t batch = 257;
      const DecodeCase c(problem, batch, {.seed = seed()});
      const gdn::Decode decode = prepare(problem);
      std::set<std::string> kernels{decode.kernel(batch).info().canonical};
      std::vector<Part> parts;
      for (const std::int64_t first : {0, 100, 256}) {
        for (const std::int64_t count : {1, 2, 16, 64, 150}) {
          if (first + count > batch) continue;
          kernels.insert(decode.kernel(count).info().canonical);
          parts.push_back({first, count});
        }
      }
      expect_same_in_parts(c, decode, parts);
      if (kernels.size() < 2) WARN("only one kernel ran: " << *kernels.begin());
    }
  }
}

// 64 steps on one state against the reference chained in double; the budget is what naive float
// arithmetic, rounding the state after every step like the operator, loses over the same steps.
void run_chain(const DecodeProblem& problem, GateDistribution gates) {
  constexpr int kSteps = 64;
  constexpr std::int64_t kBatch = 3;
  const DecodeSteps steps(problem, kBatch, gates);
  const DecodeCase& first = steps.first();
  const std::int64_t heads = problem.heads.count();
  std::vector<std::vector<double>> state;
  std::vector<std::vector<float>> naive;
  for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
    state.push_back(first.initial_state<double>(unit / heads, unit % heads));
    naive.push_back(first.initial_state<float>(unit / heads, unit % heads));
  }
  Deviation outputs, states;
  for (int step = 0; step < kSteps; ++step) {
    const DecodeCase c = steps.run(step);
    const GdnMemory results = c.download();
    for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
      const std::int64_t n = unit / heads, h = unit % heads;
      std::vector<double> o(idx(problem.value_dim));
      std::vector<float> naive_o(o.size());
      gdn_prefill_ref(c.head<double>(n, h, 0, 1), state[idx(unit)].data(), o.data());
      gdn_prefill_ref(c.head<float>(n, h, 0, 1), naive[idx(unit)].data(), naive_o.data());
      for (float& value : naive[idx(unit)]) value = rounded(problem.states.dtype, value);
      const std::vector<float> actual =
          c.row_values(results, TensorId::kO, n, 0, h, problem.value_dim);
      for (std::int64_t d = 0; d < problem.value_dim; ++d) {
        outputs.add(actual[idx(d)], rounded(problem.output_dtype, naive_o[idx(d)]), o[idx(d)],
                    {n, h, step, d, 0});
      }
    }
  }
  const GdnMemory last = first.download();
  for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
    const std::int64_t n = unit / heads, h = unit % heads;
    const std::vector<double>& expected = state[idx(unit)];
    for (std::size_t e = 0; e < expected.size(); ++e) {
      states.add_naive(naive[idx(unit)][e], expected[e]);
    }
    first.compare_matrix(last, TensorId::kState, n, expected, {n, h}, &states);
  }
  INFO("problem " << problem.to_json() << ", " << kSteps << " steps, seed " << seed() << "\n"
                  << text(outputs, "o (token: step)") << "\n"
                  << text(states, "state"));
  CHECK(outputs.ok());
  CHECK(states.ok());
}

TEST_CASE("GdnDecode.ManySteps", "[gpu][slow]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
      for (const GateDistribution gates :
           {GateDistribution::kInit, GateDistribution::kUndecayed, GateDistribution::kQwen}) {
        DecodeProblem problem = small_problem();
        problem.states.layout = layout;
        problem.states.dtype = state_dtype;
        problem.output_dtype = DType::kF32;  // else its rounding hides what the state lost
        problem.inputs.use_qk_l2norm = true;
        run_chain(problem, gates);
      }
    }
  }
}

TEST_CASE("GdnDecode.GraphReplayEqualsEagerLaunch", "[gpu]") {
  for (const std::int64_t batch : {2, 130}) {
    const DecodeCase c(small_problem(), batch, {.seed = seed()});
    expect_same_in_graph(c, prepare(small_problem()), 1, 3);
  }
}

TEST_CASE("GdnDecode.LaunchWithPdlEqualsPlainLaunch", "[gpu]") {
  for (const std::int64_t batch : {1, 3, 130}) {
    DecodeProblem problem = small_problem();
    problem.states.location = StateLocation::kPool;
    const DecodeCase c(problem, batch, {.seed = seed(), .enable_pdl = true});
    const gdn::Decode decode = prepare(problem);
    if (!can_enable_pdl(c, decode)) return;
    expect_same_with_pdl(c, decode, 2);
    expect_same_with_pdl(c, decode, 40);
    expect_same_in_graph(c, decode, 3, 1);
  }
}

TEST_CASE("GdnDecode.LaunchesFromSeveralThreads", "[gpu]") {
  std::vector<std::unique_ptr<DecodeCase>> cases;
  for (int i = 0; i < 8; ++i) {
    const CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
    cases.push_back(std::make_unique<DecodeCase>(small_problem(), 1 + 20 * i, options));
  }
  expect_same_from_threads(cases, prepare(small_problem()), 50);
}

}  // namespace
}  // namespace cubinery::test
