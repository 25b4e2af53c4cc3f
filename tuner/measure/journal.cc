#include "tuner/measure/journal.h"

#include <utility>

#include "results/record_file.h"

namespace cubinery {
namespace {

bool is_of(const Setting& setting, const Setting& space) {
  return setting.op == space.op && setting.problem == space.problem &&
         setting.gpu.is_same(space.gpu) && setting.nvrtc == space.nvrtc;
}

bool is_current(const std::vector<TunedValue>& configuration, const std::string& templates,
                const Toolchain& toolchain) {
  const auto ours = toolchain.templates.find(path_of(configuration));
  return ours != toolchain.templates.end() && ours->second == templates;
}

bool is_current(const TuningResult& result, const Toolchain& toolchain) {
  const Decision agreed = decision_of(result, /*batch_invariant=*/true);
  return is_current(result.configuration, result.templates, toolchain) &&
         is_current(agreed.configuration, agreed.templates, toolchain);
}

}  // namespace

const Timing* KnownSetting::time_of(const std::string& configuration) const {
  const auto found = measurements.find(configuration);
  const bool is_correct = found != measurements.end() && found->second.verdict == Verdict::kCorrect;
  return is_correct ? &found->second.ms : nullptr;
}

Result<Journal> Journal::open(const std::string& directory, const Setting& space,
                              const Toolchain& toolchain, bool again, const Trust& trust) {
  Journal journal;
  journal.trust_ = trust;
  journal.measurements_path_ = measurements_path(directory, space.op);
  journal.results_path_ = results_path(directory, space.op);
  const Result<Measurements> measured = read_measurements(journal.measurements_path_, trust);
  if (!measured) return measured.error().clone();
  const Result<TuningResults> results = read_results(journal.results_path_, trust);
  if (!results) return results.error().clone();
  for (const auto& [id, setting] : measured->settings) {
    if (is_of(setting, space)) journal.at(setting).has_line = true;
  }
  for (const Measurement& measurement : measured->measurements) {
    const auto known = journal.settings_.find(measurement.setting);
    if (known == journal.settings_.end()) continue;
    if (!is_current(measurement.configuration, measurement.templates, toolchain)) continue;
    known->second.measurements[to_text(measurement.configuration)] = measurement;
    if (!again) journal.judge(measurement);
  }
  for (const TuningResult& result : results->results) {
    if (!is_of(result.setting, space) || !is_current(result, toolchain)) continue;
    journal.at(result.setting).result = result;
  }
  return journal;
}

KnownSetting& Journal::at(const Setting& setting) {
  KnownSetting& known = settings_[id_of(setting)];
  if (known.setting.op.empty()) known.setting = setting;
  return known;
}

const Measurement* Journal::judged(const std::string& configuration) const {
  const auto found = judged_.find(configuration);
  return found == judged_.end() ? nullptr : &found->second;
}

void Journal::forget(const Setting& setting) {
  KnownSetting& known = at(setting);
  known.measurements.clear();
  known.result.reset();
}

void Journal::judge(const Measurement& measurement) {
  const bool failed =
      measurement.verdict == Verdict::kWrong || measurement.verdict == Verdict::kRuntime;
  if (!failed && measurement.verdict != Verdict::kCorrect) return;
  const auto [place, is_new] = judged_.try_emplace(to_text(measurement.configuration), measurement);
  if (!is_new && failed) place->second = measurement;
}

Status Journal::add(const Setting& setting) {
  KnownSetting& known = at(setting);
  if (known.has_line) return {};
  known.setting = setting;
  CUBINERY_RETURN_IF_ERROR(append_lines(measurements_path_, to_line(setting), trust_));
  known.has_line = true;
  return {};
}

Status Journal::add(const Measurement& measurement) {
  const std::string line = to_line(measurement);
  // What the line says, whose times have fewer digits: a later call then decides alike.
  Result<Measurement> said = parse_measurement(line);
  if (!said) return std::move(said).error();
  CUBINERY_RETURN_IF_ERROR(append_lines(measurements_path_, line, trust_));
  judge(*said);
  const std::string configuration = to_text(said->configuration);
  settings_[measurement.setting].measurements[configuration] = *std::move(said);
  return {};
}

Status Journal::add(const TuningResult& result) {
  const std::string line = to_line(result);
  Result<TuningResult> said = parse_result(line);
  if (!said) return std::move(said).error();
  CUBINERY_RETURN_IF_ERROR(append_lines(results_path_, line, trust_));
  at(result.setting).result = *std::move(said);
  return {};
}

}  // namespace cubinery
