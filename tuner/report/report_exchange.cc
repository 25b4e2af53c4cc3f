// One setting's measurements in the formats that other autotuners read.  docs/reports.md says how
// ours map to theirs.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cubinery/version.h"
#include "results/records_json.h"
#include "tuner/report/report.h"
#include "tuner/report/report_json.h"

namespace cubinery {
namespace {

const char* t4_invalidity(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCorrect:
      return "correct";
    case Verdict::kConstraints:
    case Verdict::kSpills:  // would run: it is our rules that say no
      return "constraints";
    case Verdict::kCompile:
      return "compile";
    case Verdict::kRuntime:
      return "runtime";
    case Verdict::kWrong:
      return "correctness";
  }
  return "runtime";
}

const char* kernel_tuner_error(Verdict verdict) {
  switch (verdict) {
    case Verdict::kConstraints:
    case Verdict::kSpills:
      return "InvalidConfig";
    case Verdict::kCompile:
      return "CompilationFailedConfig";
    default:
      return "RuntimeFailedConfig";
  }
}

// Of all kernels, one after the other.
double compile_ms(const Measurement& measurement) {
  double sum = 0;
  for (const MeasuredKernel& kernel : measurement.kernels) sum += kernel.compile_ms;
  return sum;
}

struct Quantity {
  std::string name;
  const char* unit;
  Json value;
};

// What was measured, the objective first.
std::vector<Quantity> quantities(const Setting& setting, const Measurement& measurement) {
  std::vector<Quantity> all;
  if (measurement.verdict == Verdict::kCorrect) {
    const Timing& ms = measurement.ms;
    all = {{"time", "ms", ms.median},
           {"time_p10", "ms", ms.p10},
           {"time_p90", "ms", ms.p90},
           {"samples", "", ms.samples}};
    if (const std::optional<double> rate = rate_of(setting, ms.median)) {
      all.push_back({"GB/s", "GB/s", *rate / 1e9});
    }
    all.push_back({"error", "", measurement.check.error});
    all.push_back({"error_limit", "", measurement.check.limit});
    all.push_back({"sm_clock", "MHz", measurement.clocks.sm_mhz});
    all.push_back({"memory_clock", "MHz", measurement.clocks.memory_mhz});
  }
  for (const MeasuredKernel& kernel : measurement.kernels) {
    all.push_back({kernel.kernel + ".registers", "", kernel.registers});
    all.push_back({kernel.kernel + ".shared_bytes", "B", kernel.shared_bytes});
    all.push_back({kernel.kernel + ".spill_bytes", "B", kernel.spill_bytes});
  }
  return all;
}

// Single runs are not kept: the median stands for them.
Json runtimes(const Measurement& measurement) {
  Json list = Json::array();
  if (measurement.verdict == Verdict::kCorrect) list.push_back(measurement.ms.median);
  return list;
}

Json t4_result(const Setting& setting, const Measurement& measurement) {
  const Json record = members_of(json_of(measurement));
  const double compiled = compile_ms(measurement);
  Json measured = Json::array();
  for (const Quantity& quantity : quantities(setting, measurement)) {
    measured.push_back({{"name", quantity.name},
                        {"value", quantity.value},
                        {"unit", quantity.unit},
                        {"type", quantity.value.is_number_float() ? "double" : "int"}});
  }
  const bool correct = measurement.verdict == Verdict::kCorrect;
  Json result = {{"timestamp", measurement.time},
                 {"configuration", record["configuration"]},
                 {"objectives", Json::array({"time"})},
                 // Some readers know the compilation by its first name, some by its second.
                 {"times",
                  {{"compilation", compiled},
                   {"compilation_time", compiled},
                   {"benchmark", measurement.timing_ms},
                   {"framework", 0.0},
                   {"search_algorithm", 0.0},
                   {"validation", measurement.check_ms},
                   {"runtimes", runtimes(measurement)}}},
                 {"invalidity", t4_invalidity(measurement.verdict)},
                 {"correctness", correct ? 1 : 0},
                 {"measurements", std::move(measured)},
                 {"compilation_data", record["kernels"]}};
  if (!correct) result["reason"] = measurement.reason;
  return result;
}

Json t4_metadata(const ReportedSetting& reported) {
  const Setting& setting = reported.setting;
  std::string last;
  for (const Measurement& one : reported.measurements) last = std::max(last, one.time);
  Json metadata = {{"timeunit", "milliseconds"},
                   {"device", setting.gpu.name},
                   {"compute_api", "CUDA"},
                   {"autotuner", "cubinery"},
                   {"autotuner_version", CUBINERY_VERSION},
                   {"timestamp", last}};
  metadata.update(members_of(json_of(setting)));
  if (reported.result) {
    const Json result = members_of(json_of(*reported.result));
    for (const char* name : {"configuration", "otherwise", "runner_up", "margin"}) {
      metadata[name] = result[name];
    }
  }
  return metadata;
}

// As Python prints it: Kernel Tuner joins the values so to the name of an entry.
std::string python_text(const Json& value) {
  if (value.is_boolean()) return value == true ? "True" : "False";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string entry_name(const Json& configuration) {
  std::string name;
  for (const auto& [field, value] : configuration.items()) {
    if (!name.empty()) name += ',';
    name += python_text(value);
  }
  return name;
}

Json kernel_tuner_entry(const Setting& setting, const Measurement& measurement,
                        const Json& configuration) {
  Json entry = configuration;
  if (measurement.verdict != Verdict::kCorrect) {
    entry["time"] = kernel_tuner_error(measurement.verdict);
    entry["reason"] = measurement.reason;
  }
  for (const Quantity& quantity : quantities(setting, measurement)) {
    entry[quantity.name] = quantity.value;
  }
  entry["times"] = runtimes(measurement);
  entry["compile_time"] = compile_ms(measurement);
  entry["verification_time"] = measurement.check_ms;
  entry["benchmark_time"] = measurement.timing_ms;
  entry["strategy_time"] = 0.0;
  entry["framework_time"] = 0.0;
  entry["timestamp"] = measurement.time;
  return entry;
}

// The values that each field takes, smallest first, by the fields' names in their order.
void add_values(const Json& configuration, Json* fields) {
  for (const auto& [name, value] : configuration.items()) {
    Json& values = fields->emplace(name, Json::array()).first.value();
    const auto place = std::lower_bound(values.begin(), values.end(), value);
    if (place == values.end() || *place != value) values.insert(place, value);
  }
}

}  // namespace

std::string report_t4(const ReportedSetting& reported) {
  Json document = {{"schema_version", "1.0.0"}, {"metadata", t4_metadata(reported)}};
  document["results"] = Json::array();
  for (const Measurement& measurement : reported.measurements) {
    document["results"].push_back(t4_result(reported.setting, measurement));
  }
  return printed(document);
}

std::string report_kernel_tuner(const ReportedSetting& reported) {
  const Setting& setting = reported.setting;
  Json fields = Json::object();
  Json cache = Json::object();
  for (const Measurement& measurement : reported.measurements) {
    const Json configuration = members_of(json_of(measurement))["configuration"];
    add_values(configuration, &fields);
    cache[entry_name(configuration)] = kernel_tuner_entry(setting, measurement, configuration);
  }
  Json document = {{"schema_version", "1.1.0"},
                   {"device_name", setting.gpu.name},
                   {"kernel_name", setting.op},
                   {"problem_size", Json::array()},
                   {"tune_params_keys", Json::array()},
                   {"tune_params", fields},
                   {"objective", "time"},
                   {"cache", std::move(cache)}};
  for (const ShapeSize& size : setting.shape) document["problem_size"].push_back(size.value);
  for (const auto& [name, values] : fields.items()) document["tune_params_keys"].push_back(name);
  // Without indentation: Kernel Tuner looks whether the text ends in "}", a line break and "}".
  return document.dump(0, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cubinery
