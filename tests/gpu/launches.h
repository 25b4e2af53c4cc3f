// A case launched in other ways: step by step, and by every configuration.  And what must not
// change a bit, whichever the operator: the batch around a request, graphs, launches with PDL,
// threads, and numbers of other sequences and heads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/data.h"
#include "harness/rounding.h"
#include "runtime/operator/planner.h"
#include "runtime/operator/tuning_context.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/device_bits.h"

namespace cubinery::test {

// Requests first ... first + count - 1.
struct Part {
  std::int64_t first, count;
};

// A launch of each part alone has the bits of a launch of all requests.
template <class Case>
void expect_same_in_parts(const Case& one, const typename Case::Operator& prepared,
                          const std::vector<Part>& parts) {
  const GdnMemory all = run(one, prepared);
  for (const auto& [first, count] : parts) {
    const GdnMemory some = run(one, prepared, one.args(first, count));
    for (std::int64_t n = first; n < first + count; ++n) {
      INFO("request " << n << " of " << one.sequences() << " alone with " << count - 1
                      << " others, problem " << one.problem().to_json() << ", seed " << seed());
      CHECK(same_sequence(one, n, all, some));
    }
  }
}

// A prefill in every dtype, with every gate distribution, and with keys that resemble each other
// where little is forgotten.
inline void run_every_gate(gdn::PrefillProblem problem, const CaseShape& shape) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    problem.dtype = dtype;
    for (const GateDistribution gates : kGateDistributions) {
      run_case(problem, shape, {.seed = seed(), .gates = gates});
    }
    for (const double rho : {0.5, 0.9, 0.99}) {
      for (const GateDistribution gates : {GateDistribution::kUndecayed, GateDistribution::kInit}) {
        run_case(problem, shape, {.seed = seed(), .gates = gates, .key_correlation = rho});
      }
    }
  }
}

// Decode steps of a batch on one state, that of first().
class DecodeSteps {
 public:
  DecodeSteps(const gdn::DecodeProblem& problem, std::int64_t batch, GateDistribution gates)
      : problem_(problem), batch_(batch), gates_(gates) {}

  const DecodeCase& first() const { return first_; }
  // Launches step `step`; its operands and results.
  DecodeCase run(int step) const {
    DecodeCase one(problem_, batch_, options(step));
    gdn::DecodeArgs args = one.args();
    args.state = first_.args().state;
    REQUIRE(decode_.launch(stream_.get(), args).ok());
    stream_.synchronize().value();
    return one;
  }

 private:
  CaseOptions options(int step) const {
    return {
        .seed = seed() + static_cast<std::uint64_t>(step), .gates = gates_, .key_correlation = 0.9};
  }

  gdn::DecodeProblem problem_;
  std::int64_t batch_;
  GateDistribution gates_;
  DeviceStream stream_ = make_stream(gpu());
  gdn::Decode decode_ = prepare(problem_, {batch_});
  DecodeCase first_{problem_, batch_, options(0)};
};

// The configurations of a problem's whole space.
template <class Problem>
std::vector<Configuration> configurations_of(const Problem& problem) {
  const Target target = target_of(gpu().context());
  return Planner<Problem>::create(problem, target).value().space().configurations;
}

// Runs and checks the case by one configuration.
template <class Case>
GdnMemory run_good(const Case& one, const Configuration& configuration) {
  const auto& problem = one.problem();
  using Operator = typename std::decay_t<decltype(problem)>::Operator;
  const Target target = target_of(gpu().context());
  GdnMemory after =
      run(one, Operator::create(gpu().context(), problem, target, configuration.values).value());
  expect_good(one, after, to_text(configuration.values) + ", problem " + problem.to_json());
  return after;
}

// One of a problem's configurations.
template <class Problem>
struct Configured {
  Problem problem;
  Configuration configuration;
};

// Compiles them side by side; who runs them reports errors.
template <class Problem>
void prewarm(const std::vector<Configured<Problem>>& all) {
  const Target target = target_of(gpu().context());
  on_all_processors(all.size(), [&](std::size_t i) {
    (void)Problem::Operator::create(gpu().context(), all[i].problem, target,
                                    all[i].configuration.values);
  });
}

// A cover of pairs of the tuned fields: every configuration is right, and has the bits of those
// with the same values of the fields that change them.  So many different bits there may be.
template <class Case>
std::size_t expect_agreeing_configurations(const Case& one) {
  std::map<std::string, GdnMemory> first;
  using Operator = typename Case::Operator;
  using Problem = std::decay_t<decltype(std::declval<const Operator&>().problem())>;
  const std::vector<Configuration> all = configurations_of<Problem>(one.problem());
  std::vector<Configured<Problem>> chosen;
  for (const std::size_t i : cover(all)) chosen.push_back({one.problem(), all[i]});
  prewarm(chosen);
  for (const auto& [problem, configuration] : chosen) {
    const GdnMemory after = run_good(one, configuration);
    std::string bits;
    for (const TunedValue& value : configuration.values) {
      if (value.changes_bits) bits += value.value + " ";
    }
    const auto [same, is_new] = first.emplace(bits, after);
    INFO(to_text(configuration.values));
    if (!is_new) CHECK(first_difference(after, same->second) == "");
  }
  return first.size();
}

// A cover of pairs of the problems' and the tuned fields, of the configurations that takes(problem,
// configuration) is true of: of each problem more than `least`.
template <class Problem, class Takes>
std::vector<Configured<Problem>> cover_configurations(const std::vector<Problem>& problems,
                                                      std::size_t least, const Takes& takes) {
  std::vector<Configured<Problem>> all, chosen;
  std::vector<std::vector<std::string>> rows;
  for (const Problem& problem : problems) {
    std::size_t count = 0;
    for (const Configuration& configuration : configurations_of(problem)) {
      if (!takes(problem, configuration)) continue;
      ++count;
      all.push_back({problem, configuration});
      std::vector<std::string>& row = rows.emplace_back(row_of(problem.to_json()));
      for (const TunedValue& value : configuration.values) row.push_back(value.value);
    }
    CHECK(count > least);
  }
  for (const std::size_t i : cover(rows)) chosen.push_back(all[i]);
  prewarm(chosen);
  return chosen;
}

// Every number of columns that a warp of the WY form may have, and may hold, in blocks of two
// warps: a cover of pairs with the problems' fields.
template <class Case, class Problem, class ShapeOf>
void run_with_all_columns(const std::vector<Problem>& problems, const ShapeOf& shape_of) {
  const auto takes = [](const Problem&, const Configuration& configuration) {
    const std::string text = to_text(configuration.values);
    return text.find("path=wy") != std::string::npos && text.find("warps=2") != std::string::npos;
  };
  for (const auto& [problem, configuration] : cover_configurations(problems, 1, takes)) {
    run_good(Case(problem, shape_of(problem), {.seed = seed()}), configuration);
  }
}

// `launches` launches in place on one stream, one after the other.
template <class Case>
GdnMemory run_repeatedly(const Case& one, const typename Case::Operator& prepared, bool enable_pdl,
                         int launches) {
  auto args = one.args();
  args.enable_pdl = enable_pdl;
  const Session<Case> session(one, prepared, args);
  one.upload();
  for (int i = 0; i < launches; ++i) REQUIRE(session.launch(args).ok());
  return session.finish();
}

// A graph of `launches` launches, replayed; each launch as the case's options say.
template <class Case>
void expect_same_in_graph(const Case& one, const typename Case::Operator& prepared, int launches,
                          int replays) {
  const GdnMemory eager = run_repeatedly(one, prepared, false, launches * replays);
  const Session<Case> session(one, prepared, one.args());
  const auto body = [&] {
    for (int i = 0; i < launches; ++i) CUBINERY_RETURN_IF_ERROR(session.launch(one.args()));
    return Status();
  };
  const DeviceGraph graph = DeviceGraph::capture(session.stream(), body).value();
  one.upload();
  for (int i = 0; i < replays; ++i) graph.launch(session.stream()).value();
  CHECK(first_difference(session.finish(), eager) == "");
}

// False, and the test case is skipped, where the device has no launch with PDL.
template <class Case>
bool can_enable_pdl(const Case& one, const typename Case::Operator& prepared) {
  auto args = one.args();
  args.enable_pdl = true;
  const Session<Case> session(one, prepared, args);
  const Status status = session.launch(args);
  session.finish();
  if (status.code() == Code::kUnsupported) {
    skip_test("no launch with PDL on this device");
    return false;
  }
  REQUIRE(status.ok());
  return true;
}

template <class Case>
void expect_same_with_pdl(const Case& one, const typename Case::Operator& prepared, int launches) {
  CHECK(first_difference(run_repeatedly(one, prepared, true, launches),
                         run_repeatedly(one, prepared, false, launches)) == "");
}

// One operator, and for each case a thread, a stream and a workspace.  The threads have no current
// CUDA context: launch() needs none.
template <class Case>
void expect_same_from_threads(const std::vector<std::unique_ptr<Case>>& cases,
                              const typename Case::Operator& prepared, int launches) {
  std::vector<std::unique_ptr<Session<Case>>> sessions;
  std::vector<GdnMemory> expected;
  for (const std::unique_ptr<Case>& one : cases) {
    sessions.push_back(std::make_unique<Session<Case>>(*one, prepared, one->args()));
    expected.push_back(run_repeatedly(*one, prepared, false, launches));
    one->upload();
  }
  const std::vector<int> failures = failures_in_threads(
      static_cast<int>(cases.size()), launches,
      [&](std::size_t t) { return sessions[t]->launch(cases[t]->args()).ok(); });
  for (std::size_t t = 0; t < cases.size(); ++t) {
    INFO("thread " << t << ", seed " << seed());
    CHECK(failures[t] == 0);
    CHECK(first_difference(sessions[t]->finish(), expected[t]) == "");
  }
}

// Puts `value` into one element that sequence 1 and only the `group` heads from `first` on use, at
// token t or in a state (of a convolution: of channel `head`), and expects every other sequence and
// head to have the bits it has without.
template <class Case>
void expect_confined(Case one, const typename Case::Operator& prepared, float value,
                     TensorId tensor, std::int64_t t, std::int64_t head, std::int64_t first,
                     std::int64_t group) {
  const gdn::PrefillProblem& p = one.PrefillCase::problem();
  const GdnMemory clean = run(one, prepared);
  const bool in_conv = tensor == TensorId::kConvState;
  const bool in_state = in_conv || tensor == TensorId::kState;
  store(tensor_of(one.PrefillCase::args(), tensor).dtype,
        one.at(in_conv    ? one.conv_state_at(tensor, 1, head, 0)
               : in_state ? one.matrix_at(tensor, 1, head)
                          : one.row_at(tensor, 1, t, head)),
        value);
  const GdnMemory results = run(one, prepared);
  for (std::int64_t n = 0; n < one.sequences(); ++n) {
    if (n != 1) CHECK(same_conv_state(one, n, clean, results));
    for (std::int64_t h = 0; h < p.heads.count(); ++h) {
      const std::string_view name = kTensors[static_cast<std::size_t>(tensor)].name;
      INFO(value << " in " << name << "; sequence " << n << ", head " << h << ", problem "
                 << one.problem().to_json() << ", seed " << seed());
      if (n == 1 && h >= first && h < first + group) {
        const std::vector<float> row =
            one.row_values(results, TensorId::kO, n, in_state ? 0 : t, h, p.value_dim);
        CHECK(!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }));
      } else {
        CHECK(same_head(one, n, h, clean, results));
      }
    }
  }
}

// Any operand of a case of three sequences, with two value heads per key head.
template <class MakeCase, class Operator>
void expect_all_confined(const MakeCase& make, const Operator& prepared, std::int64_t t) {
  using gdn::PrefillArgs;
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    expect_confined(make(), prepared, value, TensorId::kQ, t, 1, 2, 2);
    expect_confined(make(), prepared, value, TensorId::kK, t, 0, 0, 2);
    expect_confined(make(), prepared, value, TensorId::kV, t, 2, 2, 1);
    expect_confined(make(), prepared, value, TensorId::kG, t, 3, 3, 1);
    expect_confined(make(), prepared, value, TensorId::kBeta, t, 1, 1, 1);
    expect_confined(make(), prepared, value, TensorId::kState, t, 2, 2, 1);
  }
}

// Every launch leaves the same bits.  From threads with data of their own, so that launches meet on
// the device in many ways.
inline void expect_same_bits(const gdn::PrefillProblem& problem, const gdn::Prefill& prefill,
                             const CaseShape& shape, int threads, int launches) {
  struct Repeated {
    Repeated(const gdn::PrefillProblem& problem, const gdn::Prefill& prefill,
             const CaseShape& shape)
        : one(problem, shape, {.seed = seed()}), session(one, prefill, one.args()) {}

    PrefillCase one;
    Session<PrefillCase> session;
    std::uint32_t done = 0;
    std::optional<DeviceBits> bits{};
  };
  std::vector<std::unique_ptr<Repeated>> all;
  for (int t = 0; t < threads; ++t) {
    all.push_back(std::make_unique<Repeated>(problem, prefill, shape));
  }
  const GdnMemory first = run(all[0]->one, prefill);
  for (const auto& each : all) each->bits.emplace(each->one.addresses(), each->one.memory(), first);
  const std::vector<int> failures =
      failures_in_threads(threads, launches / threads, [&](std::size_t t) {
        Repeated& each = *all[t];
        const Stream stream = each.session.stream().get();
        return each.bits->renew(stream).ok() && each.session.launch(each.one.args()).ok() &&
               each.bits->compare(stream, each.done++).ok();
      });
  CHECK(failures == std::vector<int>(failures.size()));
  for (const auto& each : all) {
    CHECK(first_difference(each->session.finish(), first) == "");  // guard bands too
    CHECK(each->bits->first_difference() == "");
  }
}

}  // namespace cubinery::test
