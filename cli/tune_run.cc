#include "cli/tune_run.h"

#include <unistd.h>

#include "cli/budget.h"
#include "cli/interrupt.h"
#include "cli/tune_progress.h"
#include "harness/tunable.h"

namespace cubinery {
namespace {

// One call of tune(), the first one for the space or one that goes on.
Status tune_space(const Context& context, const TuneSettings& settings, TunedSpace* space,
                  std::string* directory) {
  const Result<std::unique_ptr<Tunable>> tunable = make_tunable(context, space->plan.problem);
  if (!tunable) return tunable.error().clone();
  std::vector<Shape> shapes;
  for (const PlannedShape& planned : space->plan.buckets) shapes.push_back(planned.shape);
  Result<TuneSummary> summary = tune(context, **tunable, shapes, settings);
  if (!summary) return std::move(summary).error();

  const std::vector<Configuration>& configurations = (*tunable)->space().configurations;
  const auto text_of = [&](std::size_t configuration) {
    return configuration < configurations.size() ? to_text(configurations[configuration].values)
                                                 : std::string();
  };
  const bool is_first = space->buckets.empty();
  space->buckets.clear();
  for (std::size_t i = 0; i < summary->shapes.size(); ++i) {
    const TunedShape& tuned = summary->shapes[i];
    space->buckets.push_back(
        {space->plan.buckets[i], tuned, text_of(tuned.chosen), text_of(tuned.otherwise)});
  }
  space->measured += summary->measured;
  if (is_first) space->reused = summary->reused;
  space->rejected = summary->rejected;
  space->stopped = summary->stopped;
  *directory = summary->directory;
  return {};
}

}  // namespace

TuneOutcome run_tuning(const Context& context, std::vector<TuneSpace> plan,
                       const TuneSettings& settings) {
  std::vector<std::size_t> buckets;
  buckets.reserve(plan.size());
  for (const TuneSpace& space : plan) buckets.push_back(space.buckets.size());
  const InterruptNote note;
  TuneProgressLine line(stderr, isatty(STDERR_FILENO) == 1, buckets);
  TuneSettings call = settings;
  call.should_stop = was_interrupted;
  call.progress = [&](const TuneProgress& at) { line.update(at); };

  TuneOutcome run;
  for (TuneSpace& space : plan) run.spaces.push_back({std::move(space), {}});
  share_budget(settings.budget, buckets, [&](std::size_t i, std::chrono::milliseconds time) {
    call.budget = time;
    line.start_call(i);
    run.error = tune_space(context, call, &run.spaces[i], &run.directory);
    if (!run.error.ok() || was_interrupted()) return ShareState::kEndsAll;
    return run.spaces[i].stopped ? ShareState::kOutOfTime : ShareState::kDone;
  });
  return run;
}

}  // namespace cubinery
