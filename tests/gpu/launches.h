// What must not change a bit, whichever the operator: graphs, programmatic launches, threads, and
// numbers of other sequences and heads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tests/gpu/cases.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::test {

// `launches` launches in place on one stream, one after the other.
template <class Case>
GdnMemory run_repeatedly(const Case& one, const typename Case::Operator& prepared,
                         bool programmatic, int launches) {
  auto args = one.args();
  args.programmatic = programmatic;
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

// False, and the test case is skipped, where the device has no programmatic launch.
template <class Case>
bool can_be_programmatic(const Case& one, const typename Case::Operator& prepared) {
  auto args = one.args();
  args.programmatic = true;
  const Session<Case> session(one, prepared, args);
  const Status status = session.launch(args);
  session.finish();
  if (status.code() == Code::kUnsupported) {
    skip_test("no programmatic launch on this device");
    return false;
  }
  REQUIRE(status.ok());
  return true;
}

template <class Case>
void expect_same_programmatic(const Case& one, const typename Case::Operator& prepared,
                              int launches) {
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
// token t or in the state, and expects every other sequence and head to have the bits it has
// without.
template <class Case>
void expect_confined(Case one, const typename Case::Operator& prepared, float value,
                     GdnTensor tensor, std::int64_t t, std::int64_t head, std::int64_t first,
                     std::int64_t group) {
  const gdn::PrefillProblem& p = one.PrefillCase::problem();
  const GdnMemory clean = run(one, prepared);
  const bool in_state = tensor == GdnTensor::kState;
  store(tensor_of(one.PrefillCase::args(), tensor).dtype,
        one.at(in_state ? one.matrix_at(tensor, 1, head) : one.row_at(tensor, 1, t, head)), value);
  const GdnMemory results = run(one, prepared);
  for (std::int64_t n = 0; n < one.sequences(); ++n) {
    for (std::int64_t h = 0; h < p.heads.count(); ++h) {
      const char* const name = kTensors[static_cast<std::size_t>(tensor)].name;
      INFO(value << " in " << name << "; sequence " << n << ", head " << h << ", problem "
                 << one.problem().to_json() << ", seed " << seed());
      if (n == 1 && h >= first && h < first + group) {
        const std::vector<float> row =
            one.row_values(results, GdnTensor::kO, n, in_state ? 0 : t, h, p.value_dim);
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
    expect_confined(make(), prepared, value, GdnTensor::kQ, t, 1, 2, 2);
    expect_confined(make(), prepared, value, GdnTensor::kK, t, 0, 0, 2);
    expect_confined(make(), prepared, value, GdnTensor::kV, t, 2, 2, 1);
    expect_confined(make(), prepared, value, GdnTensor::kG, t, 3, 3, 1);
    expect_confined(make(), prepared, value, GdnTensor::kBeta, t, 1, 1, 1);
    expect_confined(make(), prepared, value, GdnTensor::kState, t, 2, 2, 1);
  }
}

}  // namespace cubinery::test
