// From measurements to results: one selection for all shapes of the space, then a run-off of each.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "results/choose.h"
#include "results/space.h"
#include "runtime/operator/tuning_context.h"
#include "tuner/measure/tune_run.h"

namespace cubinery {
namespace {

double spread(const Timing& timing) { return (timing.p90 - timing.p10) / timing.median; }

// By more than the noise, and by more than `least`.
bool is_faster(const Timing& a, const Timing& b, double least = 0) {
  return a.median * (1 + std::max(noise(a, b), least)) < b.median;
}

// The other one of the best two; of a default that won, the one that it won against.
std::optional<std::size_t> runner_up_of(const Finalists& finalists, std::size_t chosen) {
  if (chosen != finalists.best) return finalists.best;
  return finalists.runner_up;
}

// Who meets in a run-off: the best, the runner-up, the default and the agreed one, each once.
std::vector<std::size_t> contenders_of(const Finalists& finalists) {
  std::vector<std::size_t> contenders{finalists.best};
  if (finalists.runner_up) contenders.push_back(*finalists.runner_up);
  for (const std::size_t contender : {finalists.otherwise, finalists.agreed}) {
    if (std::find(contenders.begin(), contenders.end(), contender) == contenders.end()) {
      contenders.push_back(contender);
    }
  }
  return contenders;
}

}  // namespace

double noise(const Timing& a, const Timing& b) {
  return std::max(kWorth, std::max(spread(a), spread(b)) / 4);
}

double uncertainty(const Timing& here, const Timing* earlier) {
  const double of_rounds = noise(here, here);
  if (earlier == nullptr || earlier->samples < kFullReplays) return of_rounds;
  const double ratio = earlier->median / here.median;
  return std::max(of_rounds, std::max(ratio, 1 / ratio) - 1);
}

std::size_t decide(const Finalists& finalists, const TimeOf& time_of) {
  std::size_t chosen = finalists.best;
  const auto runner_up = finalists.runner_up;
  if (runner_up && is_faster(*time_of(*runner_up), *time_of(chosen), kWorthAnother)) {
    chosen = *runner_up;
  }
  const Timing* otherwise = time_of(finalists.otherwise);
  if (otherwise == nullptr || is_faster(*time_of(chosen), *otherwise)) return chosen;
  return finalists.otherwise;
}

std::size_t decide_agreed(const Finalists& finalists,
                          const std::function<bool(std::size_t)>& agrees, const TimeOf& time_of) {
  const std::size_t chosen = decide(finalists, time_of);
  if (agrees(chosen)) return chosen;
  const Timing* otherwise = time_of(finalists.otherwise);
  if (!agrees(finalists.otherwise) || otherwise == nullptr) return finalists.agreed;
  return is_faster(*time_of(finalists.agreed), *otherwise) ? finalists.agreed : finalists.otherwise;
}

bool TuneRun::agrees(std::size_t configuration, const std::vector<TunedValue>& bits) const {
  return bits_of(space_.configurations[configuration].values) == bits;
}

// Settings of earlier calls that have a result.
std::vector<std::string> TuneRun::other_settings() const {
  std::vector<std::string> ids;
  for (const auto& [id, known] : journal_.settings()) {
    const auto is_it = [&id = id](const ShapeRun& shape) {
      return shape.is_measured && shape.id == id;
    };
    const bool is_ours = std::any_of(shapes_.begin(), shapes_.end(), is_it);
    if (!is_ours && known.result && !known.measurements.empty()) ids.push_back(id);
  }
  return ids;
}

ShapeTimes TuneRun::times_of(const KnownSetting& known) const {
  ShapeTimes times;
  for (const std::string& text : texts_) {
    const Timing* time = known.time_of(text);
    times.ms.push_back(time != nullptr ? std::optional(time->median) : std::nullopt);
  }
  times.otherwise = tunable_.default_configuration(known.setting.shape);
  return times;
}

// Configurations that results for this problem on other GPUs of the architecture choose: a cache
// that serves both GPUs has their kernels anyway.
std::set<std::size_t> TuneRun::used_elsewhere() const {
  std::set<std::size_t> used;
  for (const TuningResult& result : tuning_results(machine_.context, wanted_of(space_))) {
    const GpuIdentity& gpu = result.setting.gpu;
    if (gpu.arch != machine_.gpu.arch || gpu.is_same(machine_.gpu)) continue;
    for (const bool batch_invariant : {false, true}) {
      const Decision decision = decision_of(result, batch_invariant);
      if (stale(result.setting, decision, toolchain_)) continue;
      const std::size_t index = index_of(space_, decision.configuration);
      if (index < space_.configurations.size()) used.insert(index);
    }
  }
  return used;
}

Status TuneRun::finish() {
  std::vector<ShapeRun*> ours;
  std::vector<ShapeTimes> times;
  for (ShapeRun& shape : shapes_) {
    if (!shape.is_measured) continue;
    if (!shape.best) {
      shape.tuned.why = "no configuration runs and is right";
      continue;
    }
    ours.push_back(&shape);
    times.push_back({shape.ms, shape.tuned.otherwise});
  }
  if (ours.empty()) return {};
  std::vector<std::string> others = other_settings();
  for (const std::string& id : others) times.push_back(times_of(journal_.settings().at(id)));
  const Fewness few{.worth = kWorthAnother, .in_use = used_elsewhere()};
  const auto selected = [&] {
    return select(space_.configurations, times, kWorth, few, space_.agreed_path);
  };
  std::optional<Selection> selection = selected();
  if (!selection) {
    // Those of earlier calls have measured too little in common with these.
    others.clear();
    times.resize(ours.size());
    selection = selected();
  }
  if (!selection) {
    for (ShapeRun* shape : ours) {
      shape->tuned.why = "no values of the fields that change bits are right for all shapes";
    }
    return {};
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CUBINERY_RETURN_IF_ERROR(run_off(ours[i], selection->finalists[i], selection->bits));
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    const KnownSetting known = journal_.settings().at(others[i]);
    const Decision agreed = decision_of(*known.result, /*batch_invariant=*/true);
    if (bits_of(agreed.configuration) == selection->bits) continue;
    CUBINERY_RETURN_IF_ERROR(write_agreed(known, selection->finalists[ours.size() + i].agreed));
  }
  return {};
}

// Whether a result came from these finalists, or would have.
bool TuneRun::is_settled(const TuningResult& result, const Finalists& finalists) const {
  const Decision agreed = decision_of(result, /*batch_invariant=*/true);
  if (agreed.ms.samples < kRunOffRounds) return false;  // of medians, without a run-off
  const std::string agreed_text = to_text(agreed.configuration);
  if (agreed_text != texts_[finalists.agreed] && agreed_text != texts_[finalists.otherwise] &&
      agreed_text != to_text(result.configuration)) {
    return false;
  }
  if (to_text(result.otherwise) != texts_[finalists.otherwise]) return false;
  const std::string chosen = to_text(result.configuration);
  const std::string runner_up = to_text(result.runner_up);
  const auto text_of = [&](std::optional<std::size_t> configuration) {
    return configuration ? texts_[*configuration] : std::string();
  };
  if (chosen == texts_[finalists.best]) return runner_up == text_of(finalists.runner_up);
  if (runner_up != texts_[finalists.best]) return false;
  if (chosen == texts_[finalists.otherwise]) return true;
  // It may have been the best of its time: only beyond the noise does it beat today's.
  return chosen == text_of(finalists.runner_up) && result.margin > noise(result.ms, result.ms);
}

Status TuneRun::run_off(ShapeRun* shape, const Finalists& finalists,
                        const std::vector<TunedValue>& bits) {
  KnownSetting& known = journal_.at(shape->setting);
  if (known.result && is_settled(*known.result, finalists)) {
    settle(shape);
    return {};
  }
  report(*shape, "run-off");
  std::vector<std::size_t> contenders = contenders_of(finalists);
  // The default may not have run, or have been wrong.
  std::erase_if(contenders, [&](std::size_t contender) { return !shape->ms[contender]; });
  CUBINERY_RETURN_IF_ERROR(meet(shape, contenders));
  shape->workload.reset();
  if (!shape->tuned.why.empty()) return {};
  CUBINERY_RETURN_IF_ERROR(
      write(known, finalists, bits, [&](std::size_t configuration) -> const Timing* {
        const auto found = shape->met.find(configuration);
        return found == shape->met.end() ? nullptr : &found->second;
      }));
  settle(shape);
  return {};
}

// Times the contenders, interleaved; shape->tuned.why where that fails.
Status TuneRun::meet(ShapeRun* shape, const std::vector<std::size_t>& contenders) {
  CUBINERY_RETURN_IF_ERROR(allocate(shape));
  if (!shape->tuned.why.empty()) return {};
  for (const std::size_t configuration : contenders) {
    Measurement unused;
    CUBINERY_RETURN_IF_ERROR(prepare(configuration, &unused));
    shape->tuned.why = unused.reason;
    if (!shape->tuned.why.empty()) return {};
  }
  const Result<std::vector<Timing>> timings =
      machine_.timer.run_off(*shape->workload, contenders, kRunOffRounds);
  if (!timings) {
    shape->tuned.why = timings.error().message();
    return failed(timings.error());
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    shape->met[contenders[i]] = (*timings)[i];
  }
  return {};
}

// Of the finalist whose times are the least certain.
double TuneRun::uncertainty(const KnownSetting& known, const Finalists& finalists,
                            const TimeOf& time_of) const {
  double most = kWorth;
  for (const std::size_t configuration : contenders_of(finalists)) {
    const Timing* here = time_of(configuration);
    if (here == nullptr) continue;
    const Timing* earlier = known.time_of(texts_[configuration]);
    most = std::max(most, cubinery::uncertainty(*here, earlier));
  }
  return most;
}

// Decides and writes the result of a setting.
Status TuneRun::write(const KnownSetting& known, const Finalists& finalists,
                      const std::vector<TunedValue>& bits, const TimeOf& time_of) {
  const std::size_t chosen = decide(finalists, time_of);
  const std::size_t agreed = decide_agreed(
      finalists, [&](std::size_t configuration) { return agrees(configuration, bits); }, time_of);
  const auto values_of = [&](std::size_t configuration) {
    return space_.configurations[configuration].values;
  };
  TuningResult result;
  result.setting = known.setting;
  result.configuration = values_of(chosen);
  result.ms = *time_of(chosen);
  result.templates = templates_of(chosen);
  if (agreed != chosen) set_agreed(agreed, *time_of(agreed), &result);
  result.otherwise = values_of(finalists.otherwise);
  result.candidates = static_cast<int>(texts_.size());
  result.measured = static_cast<int>(known.measurements.size());
  result.time = utc_now();
  if (const Timing* otherwise = time_of(finalists.otherwise)) result.otherwise_ms = *otherwise;
  if (const auto runner_up = runner_up_of(finalists, chosen)) {
    result.runner_up = values_of(*runner_up);
    result.margin = std::max(0.0, time_of(*runner_up)->median / result.ms.median - 1);
  }
  result.uncertainty = uncertainty(known, finalists, time_of);
  const auto measured = known.measurements.find(texts_[chosen]);
  if (measured != known.measurements.end()) result.clocks = measured->second.clocks;
  for (const auto& [text, measurement] : known.measurements) {
    if (measurement.verdict != Verdict::kCorrect) ++result.rejected;
  }
  return journal_.add(result);
}

void TuneRun::set_agreed(std::size_t configuration, const Timing& ms, TuningResult* result) const {
  result->agreed = space_.configurations[configuration].values;
  result->agreed_ms = ms;
  result->agreed_templates = templates_of(configuration);
}

// The result of an earlier call, of which all shapes together have changed the agreed part: without
// a run-off, from its measurement.
Status TuneRun::write_agreed(const KnownSetting& known, std::size_t configuration) {
  TuningResult result = *known.result;
  set_agreed(configuration, *known.time_of(texts_[configuration]), &result);
  result.time = utc_now();
  return journal_.add(result);
}

// Takes the result of the journal over into the shape.
void TuneRun::settle(ShapeRun* shape) const {
  const TuningResult& result = *journal_.settings().at(shape->id).result;
  shape->tuned.chosen = index_of(space_, result.configuration);
  shape->tuned.chosen_ms = result.ms;
  const Decision agreed = decision_of(result, /*batch_invariant=*/true);
  shape->tuned.agreed = index_of(space_, agreed.configuration);
  shape->tuned.agreed_ms = agreed.ms;
  shape->tuned.otherwise_ms = result.otherwise_ms;
  shape->tuned.margin = result.margin;
  shape->tuned.uncertainty = result.uncertainty;
  shape->tuned.complete = true;
  report(*shape, "run-off");
}

}  // namespace cubinery
