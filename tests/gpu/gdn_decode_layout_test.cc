// GDN decode and how its operands lie; what one request may do to another; launches in graphs, from
// several threads and overlapping; many steps.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "tests/gpu/decode_runs.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::StateLayout;
using gdn::StateLocation;

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

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

// Compares the bytes of request n, head h of o and of the state's slot n.
bool same_head(const DecodeCase& c, const Results& a, const Results& b, std::int64_t n,
               std::int64_t h) {
  const DecodeProblem& p = c.problem();
  const std::size_t row = idx(p.value_dim) * idx(size_of(p.output_dtype));
  const std::size_t matrix = idx(p.key_dim) * idx(p.value_dim) * idx(size_of(p.state_dtype));
  return std::memcmp(a.o.data() + c.o().offset(n, h), b.o.data() + c.o().offset(n, h), row) == 0 &&
         std::memcmp(a.state.data() + c.state().offset(n, h),
                     b.state.data() + c.state().offset(n, h), matrix) == 0;
}

bool finite_output(const DecodeCase& c, const Results& results, std::int64_t n, std::int64_t h) {
  for (std::int64_t d = 0; d < c.problem().value_dim; ++d) {
    if (!std::isfinite(load(c.o().view.dtype, results.o.data() + c.o().offset(n, h, d))))
      return false;
  }
  return true;
}

// Puts `value` into one element that request 1 and only the `group` heads from `first` on use, and
// expects every other request and head to have the bits it has without.
void expect_confined(const DecodeProblem& problem, const char* what, float value,
                     const Operand& (DecodeCase::*operand)() const, std::int64_t head,
                     std::int64_t first, std::int64_t group) {
  const std::int64_t batch = 3;
  DecodeCase c(gpu(), problem, batch, {.seed = seed()});
  const gdn::Decode decode = prepare(problem);
  const Results clean = run(c, decode);
  const Operand& poisoned = (c.*operand)();
  store(poisoned.view.dtype, poisoned.at(1, head, 0), value);
  const Results results = run(c, decode);
  for (std::int64_t n = 0; n < batch; ++n) {
    for (std::int64_t h = 0; h < problem.heads(); ++h) {
      INFO(value << " in " << what << "; request " << n << ", head " << h << ", seed " << seed());
      if (n == 1 && h >= first && h < first + group) {
        CHECK(!finite_output(c, results, n, h));
      } else {
        CHECK(same_head(c, clean, results, n, h));
      }
    }
  }
}

TEST_CASE("GdnDecode.NonFiniteInputsStayInTheirRequestAndHead", "[gpu]") {
  DecodeProblem problem = small_problem();  // two value heads per key head
  problem.beta_mode = BetaMode::kGiven;
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    expect_confined(problem, "q", value, &DecodeCase::q, 1, 2, 2);
    expect_confined(problem, "k", value, &DecodeCase::k, 0, 0, 2);
    expect_confined(problem, "v", value, &DecodeCase::v, 2, 2, 1);
    expect_confined(problem, "g", value, &DecodeCase::gate, 3, 3, 1);
    expect_confined(problem, "beta", value, &DecodeCase::beta, 1, 1, 1);
    expect_confined(problem, "state", value, &DecodeCase::state, 2, 2, 1);
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
      const DecodeCase c(gpu(), problem, batch, {.seed = seed()});
      const gdn::Decode decode = prepare(problem);
      const Results all = run(c, decode);
      std::set<std::string> kernels{decode.kernel(batch).info().canonical};
      for (const std::int64_t first : {0, 100, 256}) {
        for (const std::int64_t count : {1, 2, 16, 64, 150}) {
          if (first + count > batch) continue;
          kernels.insert(decode.kernel(count).info().canonical);
          const Results some = run(c, decode, c.args(first, count));
          for (std::int64_t n = first; n < first + count; ++n) {
            bool same = true;
            for (std::int64_t h = 0; h < problem.heads(); ++h)
              same = same && same_head(c, all, some, n, h);
            INFO("request " << n << " of " << batch << " alone with " << count - 1
                            << " others, problem " << problem.to_json() << ", seed " << seed());
            CHECK(same);
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
  const TestStream stream(gpu());
  const gdn::Decode decode = prepare(problem);
  const auto options = [&](int step) {
    return CaseOptions{
        .seed = seed() + static_cast<std::uint64_t>(step), .gates = gates, .key_correlation = 0.9};
  };
  const DecodeCase first(gpu(), problem, kBatch, options(0));
  const std::int64_t heads = problem.heads();
  std::vector<std::vector<double>> state;
  std::vector<std::vector<float>> naive;
  for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
    state.push_back(first.states().initial<double>(unit / heads, unit % heads));
    naive.push_back(first.states().initial<float>(unit / heads, unit % heads));
  }
  Comparison outputs, states;
  for (int step = 0; step < kSteps; ++step) {
    const DecodeCase c(gpu(), problem, kBatch, options(step));
    gdn::DecodeArgs args = c.args();
    args.state = first.args().state;
    REQUIRE(decode.launch(stream.get(), args).ok());
    stream.synchronize();
    const Results results = c.download();
    for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
      const std::int64_t n = unit / heads, h = unit % heads;
      std::vector<double> o(idx(problem.value_dim));
      std::vector<float> naive_o(o.size());
      gdn_decode_ref(c.head<double>(n, h), state[idx(unit)].data(), o.data());
      gdn_decode_ref(c.head<float>(n, h), naive[idx(unit)].data(), naive_o.data());
      for (float& value : naive[idx(unit)]) value = rounded(problem.state_dtype, value);
      for (std::int64_t d = 0; d < problem.value_dim; ++d) {
        outputs.add(load(problem.output_dtype, results.o.data() + c.o().offset(n, h, d)),
                    rounded(problem.output_dtype, naive_o[idx(d)]), o[idx(d)], {n, h, step, d, 0});
      }
    }
  }
  const Results last = first.download();
  for (std::int64_t unit = 0; unit < kBatch * heads; ++unit) {
    const std::int64_t n = unit / heads, h = unit % heads;
    first.states().compare(first.state(), last.state, n, naive[idx(unit)], state[idx(unit)], {n, h},
                           &states);
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
Results run_repeatedly(const DecodeCase& c, const gdn::Decode& decode, bool programmatic,
                       int launches) {
  const TestStream stream(gpu());
  c.upload();
  gdn::DecodeArgs args = c.args();
  args.programmatic = programmatic;
  for (int i = 0; i < launches; ++i) REQUIRE(decode.launch(stream.get(), args).ok());
  stream.synchronize();
  return c.download();
}

TEST_CASE("GdnDecode.GraphReplayEqualsEagerLaunch", "[gpu]") {
  for (const std::int64_t batch : {2, 130}) {
    const DecodeCase c(gpu(), small_problem(), batch, {.seed = seed()});
    const gdn::Decode decode = prepare(small_problem());
    const Results eager = run_repeatedly(c, decode, false, 3);
    const TestStream stream(gpu());
    const Graph graph(gpu(), stream, [&] { return decode.launch(stream.get(), c.args()); });
    c.upload();
    for (int i = 0; i < 3; ++i) graph.launch();
    stream.synchronize();
    CHECK(c.download() == eager);
  }
}

TEST_CASE("GdnDecode.ProgrammaticLaunchEqualsPlainLaunch", "[gpu]") {
  for (const std::int64_t batch : {1, 3, 130}) {
    DecodeProblem problem = small_problem();
    problem.state_location = StateLocation::kPool;
    CaseOptions options{.seed = seed(), .programmatic = true};
    const DecodeCase c(gpu(), problem, batch, options);
    const gdn::Decode decode = prepare(problem);
    {
      const TestStream stream(gpu());
      const Status status = decode.launch(stream.get(), c.args());
      stream.synchronize();
      if (status.code() == Code::kUnsupported)
        return skip_test("no programmatic launch on this device");
      REQUIRE(status.ok());
    }
    CHECK(run_repeatedly(c, decode, true, 2) == run_repeatedly(c, decode, false, 2));
    CHECK(run_repeatedly(c, decode, true, 40) == run_repeatedly(c, decode, false, 40));
    // In a graph, too.
    const TestStream stream(gpu());
    const Graph graph(gpu(), stream, [&] {
      for (int i = 0; i < 3; ++i) CUBINERY_RETURN_IF_ERROR(decode.launch(stream.get(), c.args()));
      return Status();
    });
    c.upload();
    graph.launch();
    stream.synchronize();
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
  std::vector<std::unique_ptr<TestStream>> streams;
  std::vector<Results> expected;
  for (int i = 0; i < kThreads; ++i) {
    const CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
    cases.push_back(std::make_unique<DecodeCase>(gpu(), small_problem(), 1 + 20 * i, options));
    streams.push_back(std::make_unique<TestStream>(gpu()));
    expected.push_back(run_repeatedly(*cases.back(), decode, false, kLaunches));
    cases.back()->upload();
  }
  const std::vector<int> failures = launch_from_threads(kThreads, kLaunches, [&](std::size_t t) {
    return decode.launch(streams[t]->get(), cases[t]->args());
  });
  for (int i = 0; i < kThreads; ++i) {
    INFO("thread " << i << ", seed " << seed());
    CHECK(failures[idx(i)] == 0);
    CHECK(cases[idx(i)]->download() == expected[idx(i)]);
  }
}

}  // namespace
}  // namespace cubinery::test
