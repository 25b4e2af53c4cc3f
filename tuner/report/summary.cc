// What follows from all settings together: the gain by operator and GPU, and why a configuration
// was chosen.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "results/space.h"
#include "tuner/report/report.h"
#include "tuner/report/table.h"

namespace cubinery {
namespace {

bool same_place(const Setting& a, const Setting& b) {
  return a.op == b.op && a.gpu.is_same(b.gpu) && a.gpu.name == b.gpu.name && a.nvrtc == b.nvrtc;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The other results of the problem, on this GPU and with this toolchain.
std::vector<const TuningResult*> siblings_of(const ReportedSetting& reported,
                                             const TuningReport& report) {
  std::vector<const TuningResult*> siblings;
  for (const ReportedSetting& other : report.settings) {
    if (other.id != reported.id && other.result &&
        other.setting.problem == reported.setting.problem &&
        same_place(other.setting, reported.setting)) {
      siblings.push_back(&*other.result);
    }
  }
  return siblings;
}

// The correct measurements, the fastest first.
std::vector<const Measurement*> by_time(const ReportedSetting& reported) {
  std::vector<const Measurement*> correct;
  for (const Measurement& measurement : reported.measurements) {
    if (measurement.verdict == Verdict::kCorrect) correct.push_back(&measurement);
  }
  std::stable_sort(correct.begin(), correct.end(),
                   [](const auto* a, const auto* b) { return a->ms.median < b->ms.median; });
  return correct;
}

std::string percent(double share) { return percent_text(share) + " %"; }

std::string run_off_text(const TuningResult& result) {
  const bool has_runner_up = !result.runner_up.empty();
  if (to_text(result.configuration) == to_text(result.otherwise)) {
    if (!has_runner_up) return "The default: no other configuration is correct.";
    return result.margin > 0
               ? fmt::format("The default stays: the runner-up took {} more.",
                             percent(result.margin))
               : "The default stays: the runner-up was not faster by more than the noise.";
  }
  std::string text =
      result.otherwise_ms.median > 0
          ? fmt::format("It took {} less than the default in the run-off", percent(gain_of(result)))
          : "The default did not run";
  if (has_runner_up && to_text(result.runner_up) != to_text(result.otherwise)) {
    text += result.margin > 0
                ? fmt::format("; the runner-up took {} more than it", percent(result.margin))
                : "; the runner-up was not faster by more than the noise";
  }
  return text + ".";
}

// "k_lanes=8;vec_bytes=16": what all of these results agree in; empty: they do not.
std::string common_bits(const TuningResult& result,
                        const std::vector<const TuningResult*>& siblings) {
  const std::string bits = to_text(bits_of(result.configuration));
  const bool agree = std::all_of(siblings.begin(), siblings.end(), [&](const TuningResult* other) {
    return to_text(bits_of(other->configuration)) == bits;
  });
  return agree ? bits : "";
}

// Why it is not the fastest of the search, though some were faster there.
std::string not_fastest_text(const TuningResult& result,
                             const std::vector<const Measurement*>& faster,
                             const std::vector<const TuningResult*>& siblings) {
  if (to_text(faster[0]->configuration) == to_text(result.runner_up)) {
    return ", which is the runner-up of the run-off";
  }
  const std::string bits = common_bits(result, siblings);
  const bool other_bits = to_text(bits_of(faster[0]->configuration)) != bits;
  if (!bits.empty() && !siblings.empty() && other_bits) {
    return fmt::format(", with other last bits: all settings of this problem agree on {}", bits);
  }
  return ", which did not meet it in the run-off";
}

std::string search_text(const ReportedSetting& reported,
                        const std::vector<const TuningResult*>& siblings) {
  const std::vector<const Measurement*> correct = by_time(reported);
  const std::string chosen = to_text(reported.result->configuration);
  const auto place = std::find_if(correct.begin(), correct.end(), [&](const auto* measurement) {
    return to_text(measurement->configuration) == chosen;
  });
  if (place == correct.end()) return "";
  const std::vector<const Measurement*> faster(correct.begin(), place);
  if (faster.empty()) {
    return fmt::format(" It was the fastest of {} in the search.", correct.size());
  }
  return fmt::format(" In the search {} of {} {} {}{}.", faster.size(), correct.size(),
                     faster.size() == 1 ? "was faster, by" : "were faster, the best by",
                     percent(1 - faster[0]->ms.median / (*place)->ms.median),
                     not_fastest_text(*reported.result, faster, siblings));
}

}  // namespace

std::vector<GainSummary> summaries(const TuningReport& report) {
  std::vector<GainSummary> summaries;
  std::vector<std::vector<double>> gains;
  for (const ReportedSetting& reported : report.settings) {
    auto found = std::find_if(summaries.begin(), summaries.end(), [&](const GainSummary& one) {
      return same_place(*one.setting, reported.setting);
    });
    if (found == summaries.end()) {
      found = summaries.insert(found, GainSummary{.setting = &reported.setting});
      gains.emplace_back();
    }
    ++found->settings;
    if (!reported.result) continue;
    const TuningResult& result = *reported.result;
    ++found->decided;
    found->keep_default += to_text(result.configuration) == to_text(result.otherwise) ? 1 : 0;
    found->greatest = std::max(found->greatest, gain_of(result));
    gains[static_cast<std::size_t>(found - summaries.begin())].push_back(gain_of(result));
  }
  for (std::size_t i = 0; i < summaries.size(); ++i) summaries[i].median = median_of(gains[i]);
  return summaries;
}

std::string why_chosen(const ReportedSetting& reported, const TuningReport& report) {
  if (!reported.result) return "";
  const TuningResult& result = *reported.result;
  const std::vector<const TuningResult*> siblings = siblings_of(reported, report);
  std::string text = run_off_text(result) + search_text(reported, siblings);
  const auto same = std::count_if(siblings.begin(), siblings.end(), [&](const auto* other) {
    return to_text(other->configuration) == to_text(result.configuration);
  });
  if (same > 0) {
    text += fmt::format(" {} of {} other settings of this problem launch it too.", same,
                        siblings.size());
  }
  return text;
}

}  // namespace cubinery
