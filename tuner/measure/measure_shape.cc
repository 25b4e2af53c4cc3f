// Measuring the configurations of one shape: all quickly, then those that come close to the best.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tuner/measure/search.h"
#include "tuner/measure/tune_run.h"

namespace cubinery {
namespace {

// Configurations that a search of a large space is asked for at a time: few, because what it
// proposes depends on what it was told, and always as many, so that it proposes the same ones
// again.
constexpr std::size_t kSearchBatch = 8;

void reject(Measurement* measurement, Verdict verdict, std::string_view reason) {
  measurement->verdict = verdict;
  measurement->reason = reason;
  measurement->ms = {};
}

}  // namespace

Status TuneRun::measure(ShapeRun* shape) {
  CUBINERY_RETURN_IF_ERROR(search(shape));
  while (goes_on(*shape)) {
    const std::optional<std::size_t> close = to_confirm(*shape);
    if (!close) {
      shape->is_measured = true;
      break;
    }
    CUBINERY_RETURN_IF_ERROR(confirm(shape, *close));
  }
  return {};
}

Status TuneRun::search(ShapeRun* shape) {
  const std::size_t all = space_.configurations.size();
  // A search that was completed is not made again: it would hear of other times than it did.
  if (shape->to_measure < all &&
      journal_.at(shape->setting).measurements.size() >= shape->to_measure) {
    for (std::size_t i = 0; i < all; ++i) {
      if (known(*shape, i) == nullptr) continue;
      ++summary_.reused;
      count(shape, i);
    }
    return {};
  }
  Search search(space_.configurations, shape->tuned.otherwise, settings_.exhaustive_up_to,
                settings_.seed);
  std::size_t taken = 0;
  while (goes_on(*shape)) {
    const std::size_t batch_size = shape->to_measure == all ? all : kSearchBatch;
    std::vector<std::size_t> batch;
    while (batch.size() < batch_size && taken < shape->to_measure) {
      const std::optional<std::size_t> next = search.next();
      if (!next) break;
      batch.push_back(*next);
      ++taken;
    }
    if (batch.empty()) break;
    CUBINERY_RETURN_IF_ERROR(get_ready(shape, batch));
    for (const std::size_t configuration : batch) {
      if (goes_on(*shape)) CUBINERY_RETURN_IF_ERROR(measure_one(shape, configuration));
      search.tell(configuration, shape->ms[configuration]);
    }
  }
  return {};
}

// Operands, the setting's line and kernels for those of the configurations that are not measured.
Status TuneRun::get_ready(ShapeRun* shape, const std::vector<std::size_t>& configurations) {
  std::vector<std::size_t> missing;
  for (const std::size_t configuration : configurations) {
    if (known(*shape, configuration) == nullptr) missing.push_back(configuration);
  }
  if (missing.empty() || !go_on()) return {};
  CUBINERY_RETURN_IF_ERROR(allocate(shape));
  if (!goes_on(*shape)) return {};
  CUBINERY_RETURN_IF_ERROR(journal_.add(shape->setting));
  return candidates_.compile(missing, settings_.compile_threads, [&] {
    report(*shape, "compiling");
    return go_on();
  });
}

Status TuneRun::measure_one(ShapeRun* shape, std::size_t configuration) {
  if (known(*shape, configuration) != nullptr) {
    ++summary_.reused;
    count(shape, configuration);
    return {};
  }
  if (!go_on()) return {};
  Measurement measurement;
  measurement.setting = shape->id;
  measurement.configuration = space_.configurations[configuration].values;
  measurement.templates = templates_of(configuration);
  measurement.kernels = candidates_[configuration].kernels;
  Status lost = judge(shape, configuration, &measurement);
  if (lost.code() == Code::kIo) return lost;
  measurement.time = utc_now();
  // Also of one that took the context with it: the next call leaves it out.
  CUBINERY_RETURN_IF_ERROR(journal_.add(measurement));
  CUBINERY_RETURN_IF_ERROR(std::move(lost));
  ++summary_.measured;
  count(shape, configuration);
  return {};
}

// Fills in the verdict and what comes with it.  An error is one that ends everything.
Status TuneRun::judge(ShapeRun* shape, std::size_t configuration, Measurement* measurement) {
  if (const auto& rejection = candidates_[configuration].rejection) {
    reject(measurement, rejection->verdict, rejection->reason);
    return {};
  }
  const Measurement* judged = journal_.judged(texts_[configuration]);
  if (judged != nullptr) {
    measurement->check = judged->check;
    measurement->check_ms = judged->check_ms;
    if (judged->verdict != Verdict::kCorrect) {
      reject(measurement, judged->verdict, judged->reason);
      return {};
    }
  }
  CUBINERY_RETURN_IF_ERROR(prepare(configuration, measurement));
  if (judged == nullptr && measurement->verdict == Verdict::kCorrect) {
    report(*shape, "checking");
    CUBINERY_RETURN_IF_ERROR(check(configuration, measurement));
  }
  if (measurement->verdict != Verdict::kCorrect) return {};
  report(*shape, "timing");
  const double most_ms = shape->best ? *shape->ms[*shape->best] * (1 + kHopeless) : kNoLimit;
  return time(shape, configuration, kQuickReplays, most_ms, measurement);
}

Status TuneRun::prepare(std::size_t configuration, Measurement* measurement) {
  if (candidates_[configuration].is_prepared) return {};
  const Status prepared = tunable_.prepare(configuration);
  candidates_[configuration].is_prepared = prepared.ok();
  if (prepared.ok()) return {};
  reject(measurement, Verdict::kRuntime, prepared.message());
  return failed(prepared);
}

Status TuneRun::check(std::size_t configuration, Measurement* measurement) {
  const auto start = machine_.timer.now();
  const Result<Check> checked = tunable_.check(configuration);
  measurement->check_ms = Milliseconds(machine_.timer.now() - start).count();
  if (!checked) {
    reject(measurement, Verdict::kRuntime, checked.error().message());
    return failed(checked.error());
  }
  measurement->check = *checked;
  if (!checked->passed()) {
    reject(measurement, Verdict::kWrong,
           fmt::format("off by {:.3g}, allowed are {:.3g}: {}", checked->error, checked->limit,
                       checked->worst));
  }
  return {};
}

Status TuneRun::time(ShapeRun* shape, std::size_t configuration, int replays, double most_ms,
                     Measurement* measurement) {
  const auto start = machine_.timer.now();
  const Result<Timing> timing =
      machine_.timer.time(*shape->workload, configuration, replays, most_ms);
  measurement->timing_ms = Milliseconds(machine_.timer.now() - start).count();
  if (!timing) {
    reject(measurement, Verdict::kRuntime, timing.error().message());
    return failed(timing.error());
  }
  measurement->clocks = machine_.timer.clocks();
  measurement->ms = *timing;
  if (!(timing->median > 0)) reject(measurement, Verdict::kRuntime, "it takes no time at all");
  return {};
}

// The next one to be timed in full: of those that come close to the best, and the default.
// nullopt: all have been.
std::optional<std::size_t> TuneRun::to_confirm(const ShapeRun& shape) const {
  if (!shape.best) return std::nullopt;
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < shape.ms.size(); ++i) {
    if (shape.ms[i] && *shape.ms[i] <= *shape.ms[*shape.best] * (1 + kClose)) close.push_back(i);
  }
  std::stable_sort(close.begin(), close.end(),
                   [&](std::size_t a, std::size_t b) { return *shape.ms[a] < *shape.ms[b]; });
  close.resize(std::min(close.size(), kMostClose));
  if (shape.ms[shape.tuned.otherwise]) close.push_back(shape.tuned.otherwise);
  for (const std::size_t configuration : close) {
    if (known(shape, configuration)->ms.samples < kFullReplays) return configuration;
  }
  return std::nullopt;
}

Status TuneRun::confirm(ShapeRun* shape, std::size_t configuration) {
  if (!go_on()) return {};
  CUBINERY_RETURN_IF_ERROR(allocate(shape));
  if (!goes_on(*shape)) return {};
  report(*shape, "timing");
  Measurement measurement = *known(*shape, configuration);
  // NOTE: a measurement of an earlier call has left its kernels in the cache, or prepare()
  // compiles.
  Status lost = prepare(configuration, &measurement);
  if (lost.ok() && measurement.verdict == Verdict::kCorrect) {
    lost = time(shape, configuration, kFullReplays, kNoLimit, &measurement);
  }
  if (lost.code() == Code::kIo) return lost;
  measurement.time = utc_now();
  CUBINERY_RETURN_IF_ERROR(journal_.add(measurement));
  CUBINERY_RETURN_IF_ERROR(std::move(lost));
  if (measurement.verdict != Verdict::kCorrect) ++shape->rejected;
  take_over(shape, configuration);
  return {};
}

// A measurement that the journal now has, for the first time in this call.
void TuneRun::count(ShapeRun* shape, std::size_t configuration) const {
  ++shape->done;
  if (known(*shape, configuration)->verdict != Verdict::kCorrect) ++shape->rejected;
  take_over(shape, configuration);
}

void TuneRun::take_over(ShapeRun* shape, std::size_t configuration) const {
  const Measurement& measurement = *known(*shape, configuration);
  shape->ms[configuration] = measurement.verdict == Verdict::kCorrect
                                 ? std::optional(measurement.ms.median)
                                 : std::nullopt;
  shape->best.reset();
  for (std::size_t i = 0; i < shape->ms.size(); ++i) {
    if (shape->ms[i] && (!shape->best || *shape->ms[i] < *shape->ms[*shape->best])) shape->best = i;
  }
  report(*shape, "timing");
}

}  // namespace cubinery
