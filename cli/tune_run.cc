#include "cli/tune_run.h"

#include <unistd.h>

#include <chrono>

#include "cli/interrupt.h"
#include "cli/tune_progress.h"
#include "tuner/measure/gdn_tunables.h"

namespace cubinery {
namespace {

using Clock = std::chrono::steady_clock;

Result<std::unique_ptr<Tunable>> tunable_of(const Context& context, const Problem& problem) {
  return std::visit([&](const auto& one) { return make_tunable(context, one); }, problem);
}

// One call of tune(): its buckets go to `space`, its counts to `run`.
Status tune_space(const Context& context, const TuneSettings& settings, TunedSpace* space,
                  TuneOutcome* run) {
  const Result<std::unique_ptr<Tunable>> tunable = tunable_of(context, space->plan.problem);
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
  for (std::size_t i = 0; i < summary->shapes.size(); ++i) {
    const TunedShape& tuned = summary->shapes[i];
    space->buckets.push_back(
        {space->plan.buckets[i], tuned, text_of(tuned.chosen), text_of(tuned.otherwise)});
  }
  run->measured += summary->measured;
  run->reused += summary->reused;
  run->rejected += summary->rejected;
  run->stopped = run->stopped || summary->stopped;
  run->directory = summary->directory;
  return {};
}

std::size_t count_buckets(const std::vector<TuneSpace>& plan) {
  std::size_t count = 0;
  for (const TuneSpace& space : plan) count += space.buckets.size();
  return count;
}

// This much of what is left of the budget, in proportion to the buckets.
std::chrono::milliseconds share(std::chrono::milliseconds left, std::size_t buckets,
                                std::size_t buckets_left) {
  return std::max(left, std::chrono::milliseconds(0)) * static_cast<std::int64_t>(buckets) /
         static_cast<std::int64_t>(buckets_left);
}

}  // namespace

TuneOutcome run_tuning(const Context& context, std::vector<TuneSpace> plan,
                       const TuneSettings& settings) {
  const Clock::time_point end = Clock::now() + settings.budget;
  std::size_t buckets_left = count_buckets(plan);
  const InterruptNote note;
  TuneProgressLine line(stderr, isatty(STDERR_FILENO) == 1, buckets_left);
  TuneSettings call = settings;
  call.should_stop = was_interrupted;
  call.progress = [&](const TuneProgress& at) { line.update(at); };

  TuneOutcome run;
  for (TuneSpace& space : plan) run.spaces.push_back({std::move(space), {}});
  for (TunedSpace& space : run.spaces) {
    const std::size_t buckets = space.plan.buckets.size();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    call.budget = share(left, buckets, buckets_left);
    buckets_left -= buckets;
    line.start_call();
    run.error = tune_space(context, call, &space, &run);
    if (!run.error.ok() || was_interrupted()) return run;
  }
  return run;
}

}  // namespace cubinery
