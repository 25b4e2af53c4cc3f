// Which launches of a sweep are made, and with which kernels.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/gdn/verify/operator.h"
#include "runtime/operator/operator.h"
#include "runtime/operator/tuning_context.h"
#include "tests/gpu/cases.h"
#include "tests/pairwise.h"

namespace cubinery::test {
namespace {

using gdn::DecodeProblem;
using gdn::PrefillProblem;

// What context().prepare(problem) would launch, and its planner.
template <class Problem>
struct Planned {
  Planner<Problem> planner;
  Plan plan;
};
template <class Problem>
Result<Planned<Problem>> planned(const Problem& problem) {
  const Context& context = gpu().context();
  Result<Planner<Problem>> planner =
      Planner<Problem>::create(problem, target_of(context), path_options(context));
  if (!planner) return std::move(planner).error();
  const Ladder ladder = ladder_of(context, planner->wanted(), path_kernels<Problem>());
  Plan plan = planner->plan(&ladder);
  return Planned<Problem>{*std::move(planner), std::move(plan)};
}

// Without the candidates that none of these sizes has; other sizes get the first of the rest.
void keep_sizes(const std::vector<Point>& sizes, Plan* plan) {
  std::vector<std::uint16_t> kept;
  const auto place = [&](std::uint16_t candidate) {
    return std::find(kept.begin(), kept.end(), candidate) - kept.begin();
  };
  for (const Point& at : sizes) {
    const std::uint16_t candidate = plan->cell(at).candidate;
    if (place(candidate) == std::ssize(kept)) kept.push_back(candidate);
  }
  Candidates candidates;
  for (const std::uint16_t candidate : kept) candidates.push_back(plan->candidates[candidate]);
  for (Plan::Cell& cell : plan->cells) {
    const auto found = place(cell.candidate);
    cell.candidate = static_cast<std::uint16_t>(found == std::ssize(kept) ? 0 : found);
  }
  plan->candidates = std::move(candidates);
}

template <class Problem, class Size>
Result<typename Problem::Operator> try_prepare(const Problem& problem,
                                               const std::vector<Size>& sizes) {
  Result<Planned<Problem>> found = planned(problem);
  if (!found) return std::move(found).error();
  std::vector<Point> points;
  for (const Size& size : sizes) points.push_back(point_of(problem, size));
  keep_sizes(points, &found->plan);
  return made(found->planner.load(gpu().context(), std::move(found->plan)));
}

template <class Problem, class Size>
typename Problem::Operator prepare_at(const Problem& problem, const std::vector<Size>& sizes) {
  Result<typename Problem::Operator> prepared = try_prepare(problem, sizes);
  if (!prepared) fail_to_prepare(problem.to_json(), prepared.error());
  return *prepared;
}

// The first power of two that runs another kernel than a batch of one; 64 when none does.
std::int64_t large_batch(const DecodeProblem& problem) {
  const Result<Planned<DecodeProblem>> found = planned(problem);
  if (!found) return 64;  // prepare() reports it
  const auto candidate = [&](std::int64_t batch) {
    return found->plan.cell(point_of(problem, batch)).candidate;
  };
  for (std::int64_t batch = 2; batch <= 4096; batch *= 2) {
    if (candidate(batch) != candidate(1)) return batch;
  }
  return 64;
}

// A default configuration of a path, and a name that those of other problems share.
struct Default {
  std::string name;
  std::vector<TunedValue> values;
};
template <class Problem>
std::vector<Default> defaults_of(const Problem& problem) {
  const Target target = target_of(gpu().context());
  std::vector<Default> all;
  for (const auto* path : OperatorOf<Problem>::paths()) {
    if (path->why_not(problem, target)) continue;
    // Where there is one of what others have two of, it is the last.
    const auto defaults = path->defaults(problem, target);
    std::size_t behind = defaults.size();
    for (const auto& candidate : defaults) {
      all.push_back({std::string(path->name()) + std::to_string(--behind), candidate->values()});
    }
  }
  return all;
}

template <class Problem>
auto by_values(const Problem& problem, const std::vector<TunedValue>& values) {
  return Problem::Operator::create(gpu().context(), problem, target_of(gpu().context()), values);
}

// The operator on each path that computes the problem, by its default configurations.
template <class Problem>
auto by_defaults(const Problem& problem) {
  const std::vector<Default> all = defaults_of(problem);
  on_all_processors(all.size(), [&](std::size_t i) { (void)by_values(problem, all[i].values); });
  std::vector<typename Problem::Operator> made;
  for (const Default& one : all) made.push_back(by_values(problem, one.values).value());
  return made;
}

// The case of an operator.
template <class Problem>
using CaseOf =
    std::conditional_t<std::is_same_v<Problem, gdn::VerifyProblem>, VerifyCase, CommitCase>;

// Runs the case by each of these, and checks it.
template <class Problem>
void run_by(const Problem& problem, const CaseShape& shape, CaseOptions options,
            const std::vector<typename Problem::Operator>& operators) {
  options.seed += seed();
  if constexpr (requires { problem.round_each_token; }) {
    options.round_each_token = problem.round_each_token;
  }
  const CaseOf<Problem> one(problem, shape, options);
  for (const auto& prepared : operators) {
    const auto choice = prepared.choice({.requests = std::ssize(shape.lengths)});
    expect_good(one, run(one, prepared),
                choice.configuration + ", problem " + problem.to_json() + "\n" + shape.text());
  }
}

// Pairs of the problem's fields, its shape and its configuration, of those by default.
template <class Problem>
void run_cover(const std::vector<Problem>& problems, const std::vector<CaseShape>& shapes,
               const CaseOptions& options) {
  struct Launched {
    const Problem& problem;
    const CaseShape& shape;
    std::vector<TunedValue> values;
  };
  std::vector<Launched> all, chosen;
  std::vector<std::vector<std::string>> rows;
  for (const Problem& problem : problems) {
    for (const Default& one : defaults_of(problem)) {
      for (const CaseShape& shape : shapes) {
        all.push_back({problem, shape, one.values});
        rows.push_back(row_of(problem.to_json(), {one.name, shape.text()}));
      }
    }
  }
  for (const std::size_t i : cover(rows)) chosen.push_back(all[i]);
  on_all_processors(chosen.size(),
                    [&](std::size_t i) { (void)by_values(chosen[i].problem, chosen[i].values); });
  for (const auto& [problem, shape, values] : chosen) {
    run_by(problem, shape, options, {by_values(problem, values).value()});
  }
}

}  // namespace

gdn::Decode prepare(const DecodeProblem& problem, const std::vector<std::int64_t>& batches) {
  return prepare_at(problem, batches);
}
gdn::Prefill prepare(const PrefillProblem& problem, const std::vector<gdn::PrefillSize>& sizes) {
  return prepare_at(problem, sizes);
}
gdn::Conv prepare(const gdn::ConvProblem& problem, const std::vector<gdn::ConvSize>& sizes) {
  return prepare_at(problem, sizes);
}
void prewarm(const gdn::ConvProblem& problem, const std::vector<gdn::ConvSize>& sizes) {
  (void)try_prepare(problem, sizes);
}

gdn::PrefillSize size_of(const CaseShape& shape) {
  return {.tokens =
              std::accumulate(shape.lengths.begin(), shape.lengths.end(), shape.lead + shape.tail),
          .sequences = std::ssize(shape.lengths)};
}

void run_case(const DecodeProblem& problem, std::int64_t batch, CaseOptions options) {
  options.seed += seed();
  const gdn::Decode decode = prepare(problem, {batch});
  const DecodeCase decode_case(problem, batch, options);
  expect_good(decode_case, run(decode_case, decode),
              "problem " + problem.to_json() + "\nkernel " + decode.kernel(batch).info().canonical +
                  "\nbatch " + std::to_string(batch));
}

void run_case(const PrefillProblem& problem, const CaseShape& shape, CaseOptions options) {
  options.seed += seed();
  const gdn::Prefill prefill = prepare(problem, {size_of(shape)});
  expect_good(PrefillCase(problem, shape, options), prefill, shape);
}

std::vector<gdn::Prefill> on_every_path(const PrefillProblem& problem) {
  return by_defaults(problem);
}

std::vector<gdn::Verify> on_every_path(const gdn::VerifyProblem& problem) {
  return by_defaults(problem);
}

std::vector<gdn::Commit> on_every_path(const gdn::CommitProblem& problem) {
  return by_defaults(problem);
}

void run_case(const gdn::VerifyProblem& problem, const CaseShape& shape, CaseOptions options) {
  run_by(problem, shape, std::move(options), on_every_path(problem));
}

void run_case(const gdn::CommitProblem& problem, const CaseShape& shape, CaseOptions options) {
  run_by(problem, shape, std::move(options), on_every_path(problem));
}

std::vector<std::size_t> cover(const std::vector<std::vector<std::string>>& rows) {
  if (std::getenv("CUBINERY_TEST_FULL") == nullptr) return pairwise(rows);
  std::vector<std::size_t> all(rows.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

std::vector<std::size_t> cover(const std::vector<Configuration>& configurations) {
  std::vector<std::vector<std::string>> rows;
  for (const Configuration& configuration : configurations) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const TunedValue& value : configuration.values) row.push_back(value.value);
  }
  return cover(rows);
}

std::vector<std::string> row_of(const std::string& json, const std::vector<std::string>& more) {
  std::vector<std::string> row = more;
  std::istringstream fields(json);
  for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
  return row;
}

void run_cases(const std::vector<DecodeProblem>& problems, std::int64_t batch,
               const CaseOptions& options) {
  const std::vector<DecodeProblem> chosen = cover(problems);
  on_all_processors(chosen.size(), [&](std::size_t i) {
    (void)try_prepare(chosen[i], std::vector{batch});  // run_case() reports errors
  });
  for (const DecodeProblem& problem : chosen) run_case(problem, batch, options);
}

void run_cases(const std::vector<PrefillProblem>& problems, const CaseShape& shape,
               const CaseOptions& options) {
  const std::vector<PrefillProblem> chosen = cover(problems);
  on_all_processors(chosen.size(), [&](std::size_t i) {
    (void)try_prepare(chosen[i], std::vector{size_of(shape)});  // run_case() reports errors
  });
  for (const PrefillProblem& problem : chosen) run_case(problem, shape, options);
}

void run_cases(const std::vector<gdn::VerifyProblem>& problems,
               const std::vector<CaseShape>& shapes, const CaseOptions& options) {
  run_cover(problems, shapes, options);
}

void run_cases(const std::vector<gdn::CommitProblem>& problems,
               const std::vector<CaseShape>& shapes, const CaseOptions& options) {
  run_cover(problems, shapes, options);
}

void run_both_kernels(const std::vector<DecodeProblem>& problems, const CaseOptions& options) {
  std::vector<std::vector<std::string>> rows;
  for (const DecodeProblem& problem : problems) {
    for (const char* const batch : {"few", "many"}) {
      rows.push_back(row_of(problem.to_json(), {batch}));
    }
  }
  struct Chosen {
    const DecodeProblem& problem;
    std::int64_t batch;
  };
  std::vector<Chosen> chosen;
  for (const std::size_t i : cover(rows)) {
    const DecodeProblem& problem = problems[i / 2];
    chosen.push_back({problem, i % 2 == 0 ? 3 : large_batch(problem)});
  }
  on_all_processors(chosen.size(), [&](std::size_t i) {
    (void)try_prepare(chosen[i].problem, std::vector{chosen[i].batch});
  });
  for (const auto& [problem, batch] : chosen) run_case(problem, batch, options);
}

}  // namespace cubinery::test
