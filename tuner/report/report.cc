#include "tuner/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "codegen/nearest.h"
#include "results/shape.h"
#include "tuner/report/table.h"

namespace cubinery {
namespace {

bool comes_before(const ReportedSetting& a, const ReportedSetting& b) {
  const auto place = [](const Setting& s) {
    return std::tie(s.op, s.problem, s.gpu.name, s.gpu.arch, s.gpu.sm_count, s.gpu.mig, s.nvrtc);
  };
  if (place(a.setting) != place(b.setting)) return place(a.setting) < place(b.setting);
  const auto is_smaller = [](const ShapeSize& x, const ShapeSize& y) {
    return std::tie(x.name, x.value) < std::tie(y.name, y.value);
  };
  const Shape& x = a.setting.features;
  const Shape& y = b.setting.features;
  return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), is_smaller);
}

bool same_group(const Setting& a, const Setting& b) {
  return a.op == b.op && a.problem == b.problem && a.gpu.is_same(b.gpu) && a.nvrtc == b.nvrtc;
}

std::string gpu_text(const GpuIdentity& gpu) {
  return fmt::format("{} ({}, {} SMs{}{})", gpu.name.empty() ? "GPU" : gpu.name, gpu.arch,
                     gpu.sm_count, gpu.mig.empty() ? "" : ", MIG ", gpu.mig);
}

std::string state_text(const ReportedSetting& reported) {
  if (!reported.result) return "no result yet";
  if (!reported.stale) return "";
  return reported.stale->empty() ? "current" : "stale: " + *reported.stale;
}

// Cells that depend on a time: of the result or, where there is none yet, of the best so far.
void add_timing(std::vector<std::string>& row, const Timing& ms) {
  row.push_back(us_text(ms.median));
  row.push_back(ms.median > 0 ? percent_text((ms.p90 - ms.p10) / ms.median) : "-");
}

void add_rate(std::vector<std::string>& row, const Setting& setting, double ms, double copy_rate) {
  const std::optional<double> rate = rate_of(setting, ms);
  row.push_back(rate ? fmt::format("{:.0f}", *rate / 1e9) : "-");
  if (copy_rate > 0) row.push_back(rate ? percent_text(*rate / copy_rate) : "-");
}

std::vector<std::string> row_of(const ReportedSetting& reported, double copy_rate) {
  const Setting& setting = reported.setting;
  const std::optional<TuningResult>& result = reported.result;
  const Measurement* best = best_of(reported);
  std::vector<std::string> row = {setting.bucket};
  if (result) {
    row.push_back(to_text(result->configuration));
    add_timing(row, result->ms);
    row.insert(row.end(), {us_text(result->otherwise_ms.median), percent_text(gain_of(*result)),
                           result->runner_up.empty() ? "-" : percent_text(result->margin)});
    add_rate(row, setting, result->ms.median, copy_rate);
    row.insert(row.end(), {std::to_string(result->measured), std::to_string(result->rejected)});
  } else {
    row.push_back(best != nullptr ? to_text(best->configuration) : "-");
    add_timing(row, best != nullptr ? best->ms : Timing{});
    row.insert(row.end(), {"-", "-", "-"});
    add_rate(row, setting, best != nullptr ? best->ms.median : 0, copy_rate);
    const auto rejected =
        std::count_if(reported.measurements.begin(), reported.measurements.end(),
                      [](const Measurement& m) { return m.verdict != Verdict::kCorrect; });
    row.insert(row.end(), {std::to_string(reported.measurements.size()), std::to_string(rejected)});
  }
  row.push_back(state_text(reported));
  return row;
}

Table empty_table(double copy_rate) {
  std::vector<std::string> header = {"bucket",     "configuration", "us",       "spread %",
                                     "default us", "gain %",        "margin %", "GB/s"};
  if (copy_rate > 0) header.push_back("of copy %");
  header.insert(header.end(), {"measured", "rejected", "state"});
  return Table(std::move(header));
}

// Of "a=1;b=2" the fields that not all problems of the operator have alike; all of them where there
// is one problem.
std::string told_apart(const Setting& setting, const TuningReport& report) {
  std::string text;
  for (std::size_t begin = 0; begin < setting.problem.size();) {
    const std::size_t end = std::min(setting.problem.find(';', begin), setting.problem.size());
    const std::string field = setting.problem.substr(begin, end - begin);
    const bool is_of_all = std::all_of(
        report.settings.begin(), report.settings.end(), [&](const ReportedSetting& other) {
          return other.setting.op != setting.op ||
                 fmt::format(";{};", other.setting.problem).find(fmt::format(";{};", field)) !=
                     std::string::npos;
        });
    if (!is_of_all) text += (text.empty() ? "" : ";") + field;
    begin = end + 1;
  }
  return text.empty() ? setting.problem : text;
}

std::string heading(const Setting& setting, const TuningReport& report) {
  return fmt::format("{} on {}, NVRTC {}\n{}\n", setting.op, gpu_text(setting.gpu), setting.nvrtc,
                     told_apart(setting, report));
}

// A line for each operator and GPU.
std::string summary_text(const TuningReport& report) {
  std::string text;
  for (const GainSummary& summary : summaries(report)) {
    const Setting& setting = *summary.setting;
    text += fmt::format("{} on {}: {} of {} settings have a result", setting.op,
                        gpu_text(setting.gpu), summary.decided, summary.settings);
    if (summary.decided > 0) {
      text += fmt::format("; gain {} % in the median, at most {} %; {} keep the default",
                          percent_text(summary.median), percent_text(summary.greatest),
                          summary.keep_default);
    }
    text += "\n";
  }
  return text;
}

constexpr std::size_t kShownDigits = 12;  // of an id

// For messages that ask to choose: the first few.
std::string list_text(const std::vector<const ReportedSetting*>& settings) {
  constexpr std::size_t kMost = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, settings.size()); ++i) {
    const Setting& setting = settings[i]->setting;
    text += fmt::format("\n  {}  {} {} on {}", settings[i]->id.substr(0, kShownDigits), setting.op,
                        setting.bucket, gpu_text(setting.gpu));
  }
  if (settings.size() > kMost) text += fmt::format("\n  and {} more", settings.size() - kMost);
  return text;
}

std::vector<const ReportedSetting*> pointers(const std::vector<ReportedSetting>& settings) {
  std::vector<const ReportedSetting*> pointers;
  pointers.reserve(settings.size());
  for (const ReportedSetting& reported : settings) pointers.push_back(&reported);
  return pointers;
}

// A field of a request: what it asks for, and what a setting has.
struct Filter {
  const char* name;
  const std::string& value;
  std::function<std::string(const ReportedSetting&)> of;
  bool is_start = false;  // the value is the start of what a setting has
};

// Leaves those of `kept` that fit.
Status apply(const Filter& filter, bool of_command_line, std::vector<ReportedSetting*>* kept) {
  if (filter.value.empty()) return {};
  std::vector<std::string> known;
  for (const ReportedSetting* reported : *kept) {
    std::string name = filter.of(*reported);
    if (filter.is_start) name = name.substr(0, kShownDigits);
    if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }
  std::erase_if(*kept, [&](const ReportedSetting* reported) {
    const std::string name = filter.of(*reported);
    return filter.is_start ? !name.starts_with(filter.value) : name != filter.value;
  });
  if (!kept->empty()) return {};
  return Status(
      Code::kInvalidArgument,
      fmt::format("{}; accepted: {}{}{}",
                  of_command_line ? fmt::format("--{} {}", filter.name, filter.value)
                                  : fmt::format("request.{} = \"{}\"", filter.name, filter.value),
                  filter.is_start ? "the start of " : "", nearest_text(filter.value, known),
                  did_you_mean(filter.value, known)));
}

}  // namespace

TuningReport make_report(const std::vector<Measurements>& measurements,
                         const std::vector<TuningResults>& results) {
  TuningReport report;
  std::map<std::string, ReportedSetting> by_id;
  const auto add_damage = [&](const std::vector<DamagedLine>& damaged) {
    report.damaged.insert(report.damaged.end(), damaged.begin(), damaged.end());
  };
  for (const Measurements& file : measurements) {
    for (const auto& [id, setting] : file.settings) {
      by_id.try_emplace(id, ReportedSetting{.id = id, .setting = setting});
    }
    for (const Measurement& measurement : file.measurements) {
      by_id.at(measurement.setting).measurements.push_back(measurement);
    }
    add_damage(file.damaged);
  }
  for (const TuningResults& file : results) {
    for (const TuningResult& result : file.results) {
      const std::string id = id_of(result.setting);
      by_id.try_emplace(id, ReportedSetting{.id = id, .setting = result.setting})
          .first->second.result = result;
    }
    add_damage(file.damaged);
  }
  for (auto& [id, reported] : by_id) report.settings.push_back(std::move(reported));
  std::sort(report.settings.begin(), report.settings.end(), comes_before);
  return report;
}

Result<TuningReport> read_report(const std::string& directory) {
  const Result<std::vector<std::string>> ops = tuned_operators(directory);
  if (!ops) return ops.error().clone();
  std::vector<Measurements> measurements;
  std::vector<TuningResults> results;
  for (const std::string& op : *ops) {
    Result<Measurements> measured = read_measurements(measurements_path(directory, op));
    if (!measured) return std::move(measured).error();
    measurements.push_back(*std::move(measured));
    Result<TuningResults> decided = read_results(results_path(directory, op));
    if (!decided) return std::move(decided).error();
    results.push_back(*std::move(decided));
  }
  return make_report(measurements, results);
}

Status narrow(TuningReport& report, const ReportRequest& request, bool of_command_line) {
  if (report.settings.empty()) return Status(Code::kInvalidArgument, "there are no settings");
  std::vector<ReportedSetting*> kept;
  for (ReportedSetting& reported : report.settings) kept.push_back(&reported);
  const Filter filters[] = {
      {"op", request.op, [](const ReportedSetting& one) { return one.setting.op; }},
      {"bucket", request.bucket, [](const ReportedSetting& one) { return one.setting.bucket; }},
      {"setting", request.setting, [](const ReportedSetting& one) { return one.id; }, true},
  };
  for (const Filter& filter : filters) {
    CUBINERY_RETURN_IF_ERROR(apply(filter, of_command_line, &kept));
  }
  std::vector<ReportedSetting> fitting;
  fitting.reserve(kept.size());
  for (ReportedSetting* reported : kept) fitting.push_back(std::move(*reported));
  report.settings = std::move(fitting);
  report.copy_rate = request.copy_rate;
  return {};
}

Result<const ReportedSetting*> only_setting(const TuningReport& report) {
  std::vector<const ReportedSetting*> measured = pointers(report.settings);
  std::erase_if(measured,
                [](const ReportedSetting* reported) { return reported->measurements.empty(); });
  if (measured.empty()) {
    return Status(Code::kInvalidArgument, "this format prints measurements, and there are none");
  }
  if (measured.size() > 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("this format describes one setting, and here are {}: choose one by "
                              "its id or bucket{}",
                              measured.size(), list_text(measured)));
  }
  return measured[0];
}

const Measurement* best_of(const ReportedSetting& reported) {
  const Measurement* best = nullptr;
  for (const Measurement& measurement : reported.measurements) {
    if (measurement.verdict != Verdict::kCorrect) continue;
    if (best == nullptr || measurement.ms.median < best->ms.median) best = &measurement;
  }
  return best;
}

std::optional<double> rate_of(const Setting& setting, double ms) {
  if (setting.bytes <= 0 || !(ms > 0)) return std::nullopt;
  return static_cast<double>(setting.bytes) / (ms * 1e-3);
}

double gain_of(const TuningResult& result) {
  return result.otherwise_ms.median > 0 ? 1 - result.ms.median / result.otherwise_ms.median : 0;
}

std::string report_table(const TuningReport& report) {
  std::string text;
  for (auto first = report.settings.begin(); first != report.settings.end();) {
    const auto last = std::find_if_not(
        first, report.settings.end(),
        [&](const ReportedSetting& other) { return same_group(first->setting, other.setting); });
    if (!text.empty()) text += '\n';
    text += heading(first->setting, report);
    Table table = empty_table(report.copy_rate);
    for (; first != last; ++first) table.add(row_of(*first, report.copy_rate));
    text += table.text();
  }
  if (!text.empty()) text += "\n" + summary_text(report);
  for (const DamagedLine& line : report.damaged) text += "damaged: " + line.text() + "\n";
  return text;
}

Result<std::string> tuning_report(const std::string& directory, const ReportRequest& request) {
  Result<TuningReport> report = read_report(directory);
  if (!report) return std::move(report).error();
  CUBINERY_RETURN_IF_ERROR(narrow(*report, request));
  if (request.format == ReportFormat::kTable) return report_table(*report);
  if (request.format == ReportFormat::kJson) return report_json(*report);
  const Result<const ReportedSetting*> only = only_setting(*report);
  if (!only) return only.error().clone();
  return request.format == ReportFormat::kT4 ? report_t4(**only) : report_kernel_tuner(**only);
}

}  // namespace cubinery
