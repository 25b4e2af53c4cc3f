// GDN decode and how its operands lie; what one request may do to another; launches in graphs, from
// several threads and overlapping; many steps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/gpu/cases.h"
#include "tuner/gdn/rounding.h"

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
      problem.gate_dtype = problem.beta_dtype = DType::kBF16;
      problem.gate_mode = GateMode::kComputed;
      problem.state_location = StateLocation::kPool;
      CaseOptions options;
      options.placement = placement;
      options.write_indices = true;
      run_case(problem, 3, options);
      run_case(problem, 130, options);
    }
  }
}

bool finite_output(const DecodeCase& c, const GdnMemory& results, std::int64_t n, std::int64_t h) {
  const std::vector<float> row =
      c.row_values(results, &PrefillArgs::o, n, 0, h, c.problem().value_dim);
  return std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
}

// Puts `value` into one element that request 1 and only the `group` heads from `first` on use, and
// expects every other request and head to have the bits it has without.
void expect_confined(const DecodeProblem& problem, const char* what, float value, TensorOf tensor,
                     std::int64_t head, std::int64_t first, std::int64_t group) {
  const std::int64_t batch = 3;
  DecodeCase c(problem, batch, {.seed = seed()});
  const gdn::Decode decode = prepare(problem);
  const GdnMemory clean = run(c, decode);
  const bool in_state = tensor == &PrefillArgs::state;
  store((c.PrefillCase::args().*tensor).dtype,
        c.at(in_state ? c.matrix_at(tensor, 1, head) : c.row_at(tensor, 1, 0, head)), value);
  const GdnMemory results = run(c, decode);
  for (std::int64_t n = 0; n < batch; ++n) {
    for (std::int64_t h = 0; h < problem.heads(); ++h) {
      INFO(value << " in " << what << "; request " << n << ", head " << h << ", seed " << seed());
      if (n == 1 && h >= first && h < first + group) {
        CHECK(!finite_output(c, results, n, h));
      } else {
        CHECK(same_head(c, n, h, clean, results));
      }
    }
  }
}

TEST_CASE("GdnDecode.NonFiniteInputsStayInTheirRequestAndHead", "[gpu]") {
  DecodeProblem problem = small_problem();  // two value heads per key head
  problem.beta_mode = BetaMode::kGiven;
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    expect_confined(problem, "q", value, &PrefillArgs::q, 1, 2, 2);
    expect_confined(problem, "k", value, &PrefillArgs::k, 0, 0, 2);
    expect_confined(problem, "v", value, &PrefillArgs::v, 2, 2, 1);
    expect_confined(problem, "g", value, &PrefillArgs::g, 3, 3, 1);
    expect_confined(problem, "beta", value, &PrefillArgs::beta, 1, 1, 1);
    expect_confined(problem, "state", value, &PrefillArgs::state, 2, 2, 1);
  }
}

// The bits of a request must not depend on the batch around it.
TEST_CASE("GdnDecode.BitsDoNotDependOnTheBatch", "[gpu][big]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
      DecodeProblem problem;
      problem.q_heads = problem.k_heads = 4;
      problem.v_heads = 8;
      problem.state_layout = layout;
      problem.state_dtype = state_dtype;
      problem.use_qk_l2norm = true;
      const std::int64_t batch = 257;
      const DecodeCase c(problem, batch, {.seed = seed()});
      const gdn::Decode decode = prepare(problem);
      const GdnMemory all = run(c, decode);
      std::set<std::string> kernels{decode.kernel(batch).info().canonical};
      for (const std::int64_t first : {0, 100, 256}) {
        for (const std::int64_t count : {1, 2, 16, 64, 150}) {
          if (first + count > batch) continue;
          kernels.insert(decode.kernel(count).info().canonical);
          const GdnMemory some = run(c, decode, c.args(first, count));
          for (std::int64_t n = first; n < first + count; ++n) {
            INFO("request " << n << " of " << batch << " alone with " << count - 1
                            << " others, problem " << problem.to_json() << ", seed " << seed());
            CHECK(same_sequence(c, n, all, some));
          }
        }
      }
      if (kernels.size() < 2) WARN("only one kernel ran: " << *kernels.begin());
    }
  }
}

// 64 steps on one state against the reference chained in double; the budget is what naive float
// arithmetic, rounding the state after every step like the operator, loses over the same steps.
void run_chain(const DecodeProblem& problem, Gates gates) {
  constexpr int kSteps = 64;
  constexpr std::int64_t kBatch = 3;
  const DeviceStream stream = make_stream(gpu());
  const gdn::Decode decode = prepare(problem);
  const auto options = [&](int step) {
    return CaseOptions{
        .seed = seed() + static_cast<std::uint64_t>(step), .gates = gates, .key_correlation = 0.9};
  };
  const DecodeCase first(problem, kBatch, options(0));
  const std::int64_t heads = problem.heads();
  std::vector<std::vector<double>> state;
  std::vector<std::vector<float>> naive;
  for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
    state.push_back(first.initial_state<double>(unit / heads, unit % heads));
    naive.push_back(first.initial_state<float>(unit / heads, unit % heads));
  }
  Comparison outputs, states;
  for (int step = 0; step < kSteps; ++step) {
    const DecodeCase c(problem, kBatch, options(step));
    gdn::DecodeArgs args = c.args();
    args.state = first.args().state;
    REQUIRE(decode.launch(stream.get(), args).ok());
    stream.synchronize().value();
    const GdnMemory results = c.download();
    for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
      const std::int64_t n = unit / heads, h = unit % heads;
      std::vector<double> o(idx(problem.value_dim));
      std::vector<float> naive_o(o.size());
      gdn_prefill_ref(c.head<double>(n, h, 0, 1), state[idx(unit)].data(), o.data());
      gdn_prefill_ref(c.head<float>(n, h, 0, 1), naive[idx(unit)].data(), naive_o.data());
      for (float& value : naive[idx(unit)]) value = rounded(problem.state_dtype, value);
      const std::vector<float> actual =
          c.row_values(results, &PrefillArgs::o, n, 0, h, problem.value_dim);
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
    first.compare_matrix(last, &PrefillArgs::state, n, expected, {n, h}, &states);
  }
  INFO("problem " << problem.to_json() << ", " << kSteps << " steps, seed " << seed() << "\n"
                  << text(outputs, "o (token: step)") << "\n"
                  << text(states, "state"));
  CHECK(outputs.ok());
  CHECK(states.ok());
}

TEST_CASE("GdnDecode.ManySteps", "[gpu]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
      for (const Gates gates : {Gates::kInit, Gates::kUndecayed, Gates::kQwen}) {
        DecodeProblem problem = small_problem();
        problem.state_layout = layout;
        problem.state_dtype = state_dtype;
        problem.output_dtype = DType::kF32;  // else its rounding hides what the state lost
        problem.use_qk_l2norm = true;
        run_chain(problem, gates);
      }
    }
  }
}

// `launches` launches in place on one stream, one after the other.
GdnMemory run_repeatedly(const DecodeCase& c, const gdn::Decode& decode, bool programmatic,
                         int launches) {
  const DeviceStream stream = make_stream(gpu());
  c.upload();
  gdn::DecodeArgs args = c.args();
  args.programmatic = programmatic;
  for (int i = 0; i < launches; ++i) REQUIRE(decode.launch(stream.get(), args).ok());
  stream.synchronize().value();
  return c.download();
}

TEST_CASE("GdnDecode.GraphReplayEqualsEagerLaunch", "[gpu]") {
  for (const std::int64_t batch : {2, 130}) {
    const DecodeCase c(small_problem(), batch, {.seed = seed()});
    const gdn::Decode decode = prepare(small_problem());
    const GdnMemory eager = run_repeatedly(c, decode, false, 3);
    const DeviceStream stream = make_stream(gpu());
    const DeviceGraph graph =
        DeviceGraph::capture(stream, [&] { return decode.launch(stream.get(), c.args()); }).value();
    c.upload();
    for (int i = 0; i < 3; ++i) graph.launch(stream).value();
    stream.synchronize().value();
    CHECK(c.download() == eager);
  }
}

TEST_CASE("GdnDecode.ProgrammaticLaunchEqualsPlainLaunch", "[gpu]") {
  for (const std::int64_t batch : {1, 3, 130}) {
    DecodeProblem problem = small_problem();
    problem.state_location = StateLocation::kPool;
    CaseOptions options{.seed = seed(), .programmatic = true};
    const DecodeCase c(problem, batch, options);
    const gdn::Decode decode = prepare(problem);
    {
      const DeviceStream stream = make_stream(gpu());
      const Status status = decode.launch(stream.get(), c.args());
      stream.synchronize().value();
      if (status.code() == Code::kUnsupported)
        return skip_test("no programmatic launch on this device");
      REQUIRE(status.ok());
    }
    CHECK(run_repeatedly(c, decode, true, 2) == run_repeatedly(c, decode, false, 2));
    CHECK(run_repeatedly(c, decode, true, 40) == run_repeatedly(c, decode, false, 40));
    // In a graph, too.
    const DeviceStream stream = make_stream(gpu());
    const DeviceGraph graph = DeviceGraph::capture(stream, [&] {
                                for (int i = 0; i < 3; ++i)
                                  CUBINERY_RETURN_IF_ERROR(decode.launch(stream.get(), c.args()));
                                return Status();
                              }).value();
    c.upload();
    graph.launch(stream).value();
    stream.synchronize().value();
    CHECK(c.download() == run_repeatedly(c, decode, false, 3));
  }
}

// One operator, eight threads, eight streams.  The threads have no current CUDA context: launch()
// needs none.
TEST_CASE("GdnDecode.LaunchesFromSeveralThreads", "[gpu]") {
  constexpr int kThreads = 8;
  constexpr int kLaunches = 50;
  const gdn::Decode decode = prepare(small_problem());
  std::vector<std::unique_ptr<DecodeCase>> cases;
  std::vector<DeviceStream> streams;
  std::vector<GdnMemory> expected;
  for (int i = 0; i < kThreads; ++i) {
    const CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
    cases.push_back(std::make_unique<DecodeCase>(small_problem(), 1 + 20 * i, options));
    streams.push_back(make_stream(gpu()));
    expected.push_back(run_repeatedly(*cases.back(), decode, false, kLaunches));
    cases.back()->upload();
  }
  const std::vector<int> failures = launch_from_threads(kThreads, kLaunches, [&](std::size_t t) {
    return decode.launch(streams[t].get(), cases[t]->args());
  });
  for (int i = 0; i < kThreads; ++i) {
    INFO("thread " << i << ", seed " << seed());
    CHECK(failures[idx(i)] == 0);
    CHECK(cases[idx(i)]->download() == expected[idx(i)]);
  }
}

}  // namespace
}  // namespace cubinery::test
