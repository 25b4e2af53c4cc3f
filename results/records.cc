// Records as lines; parse_records.cc reads them.
#include "results/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "codegen/identity.h"
#include "codegen/read_json.h"
#include "results/records_json.h"

namespace cubinery {
namespace {

// Bytes that are not UTF-8 (an operating system's message) must not cost the record.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_of(const Json& json) { return dump(json) + '\n'; }

// Six significant digits are more than any clock has.  NaN and infinity become null.
double shortened(double value) {
  const std::string text = fmt::format("{:.6g}", value);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Json json_of(const Shape& shape) {
  Json json = Json::object();
  for (const ShapeSize& size : shape) json[size.name] = size.value;
  return json;
}

Json json_of(const std::vector<TunedValue>& values) {
  Json json = Json::object();
  for (const TunedValue& value : values) {
    const Result<Json> typed = read_json("", value.value);
    const bool is_typed = !value.is_text && typed && (typed->is_number() || typed->is_boolean()) &&
                          typed->dump() == value.value;
    json[value.name] = is_typed ? *typed : Json(value.value);
  }
  return json;
}

// Each once: configurations of several paths have different fields.
Json bit_names(std::initializer_list<const std::vector<TunedValue>*> configurations) {
  Json names = Json::array();
  for (const std::vector<TunedValue>* values : configurations) {
    for (const TunedValue& value : *values) {
      const bool is_new = std::find(names.begin(), names.end(), value.name) == names.end();
      if (value.changes_bits && is_new) names.push_back(value.name);
    }
  }
  return names;
}

Json json_of(const GpuIdentity& gpu) {
  return {{"arch", gpu.arch},
          {"capability", gpu.capability},
          {"sm_count", gpu.sm_count},
          {"l2_bytes", gpu.l2_bytes},
          {"shared_bytes_per_sm", gpu.shared_bytes_per_sm},
          {"mig", gpu.mig},
          {"name", gpu.name}};
}

void add_setting(const Setting& setting, Json* json) {
  (*json)["op"] = setting.op;
  (*json)["problem"] = setting.problem;
  (*json)["shape"] = json_of(setting.shape);
  (*json)["features"] = json_of(setting.features);
  (*json)["bucket"] = setting.bucket;
  (*json)["gpu"] = json_of(setting.gpu);
  (*json)["nvrtc"] = setting.nvrtc;
  (*json)["driver"] = setting.driver;
  (*json)["bytes"] = setting.bytes;
}

Json json_of(const Timing& timing) {
  return {{"median", shortened(timing.median)},
          {"p10", shortened(timing.p10)},
          {"p90", shortened(timing.p90)},
          {"samples", timing.samples}};
}

Json json_of(const Check& check) {
  return {
      {"error", shortened(check.error)}, {"limit", shortened(check.limit)}, {"worst", check.worst}};
}

Json json_of(const Clocks& clocks) {
  return {{"sm_mhz", clocks.sm_mhz}, {"memory_mhz", clocks.memory_mhz}};
}

Json json_of(const std::vector<MeasuredKernel>& kernels) {
  Json json = Json::array();
  for (const MeasuredKernel& kernel : kernels) {
    json.push_back({{"kernel", kernel.kernel},
                    {"registers", kernel.registers},
                    {"shared_bytes", kernel.shared_bytes},
                    {"spill_bytes", kernel.spill_bytes},
                    {"compile_ms", shortened(kernel.compile_ms)}});
  }
  return json;
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCorrect:
      return "correct";
    case Verdict::kConstraints:
      return "constraints";
    case Verdict::kCompile:
      return "compile";
    case Verdict::kSpills:
      return "spills";
    case Verdict::kRuntime:
      return "runtime";
    case Verdict::kWrong:
      return "wrong";
  }
  return "unknown";
}

std::string id_of(const Setting& setting) {
  const GpuIdentity& gpu = setting.gpu;
  const Json parts = {setting.op,     setting.problem, setting.bucket, gpu.arch,
                      gpu.capability, gpu.sm_count,    gpu.l2_bytes,   gpu.shared_bytes_per_sm,
                      gpu.mig,        setting.nvrtc};
  return digest_of(dump(parts));
}

Decision decision_of(const TuningResult& result, bool batch_invariant) {
  if (batch_invariant && !result.agreed.empty()) {
    return {result.agreed, result.agreed_ms, result.agreed_templates};
  }
  return {result.configuration, result.ms, result.templates};
}

Json json_of(const Setting& setting) {
  Json json = {{"setting", kRecordFormat}, {"id", id_of(setting)}};
  add_setting(setting, &json);
  return json;
}

Json json_of(const Measurement& measurement) {
  Json json = {{"measurement", kRecordFormat}, {"of", measurement.setting}};
  json["configuration"] = json_of(measurement.configuration);
  json["bits"] = bit_names({&measurement.configuration});
  json["templates"] = measurement.templates;
  json["verdict"] = to_string(measurement.verdict);
  if (!measurement.reason.empty()) json["reason"] = measurement.reason;
  if (measurement.verdict == Verdict::kCorrect) json["ms"] = json_of(measurement.ms);
  json["check"] = json_of(measurement.check);
  json["kernels"] = json_of(measurement.kernels);
  json["clocks"] = json_of(measurement.clocks);
  json["check_ms"] = shortened(measurement.check_ms);
  json["timing_ms"] = shortened(measurement.timing_ms);
  json["time"] = measurement.time;
  return json;
}

Json json_of(const TuningResult& result) {
  Json json = {{"result", kRecordFormat}};
  add_setting(result.setting, &json);
  json["configuration"] = json_of(result.configuration);
  json["bits"] =
      bit_names({&result.configuration, &result.agreed, &result.otherwise, &result.runner_up});
  json["ms"] = json_of(result.ms);
  json["templates"] = result.templates;
  if (!result.agreed.empty()) {
    json["agreed"] = json_of(result.agreed);
    json["agreed_ms"] = json_of(result.agreed_ms);
    json["agreed_templates"] = result.agreed_templates;
  }
  json["otherwise"] = json_of(result.otherwise);
  json["otherwise_ms"] = json_of(result.otherwise_ms);
  json["runner_up"] = json_of(result.runner_up);
  json["margin"] = shortened(result.margin);
  json["uncertainty"] = shortened(result.uncertainty);
  json["clocks"] = json_of(result.clocks);
  json["candidates"] = result.candidates;
  json["measured"] = result.measured;
  json["rejected"] = result.rejected;
  json["time"] = result.time;
  return json;
}

std::string to_line(const Setting& setting) { return line_of(json_of(setting)); }

std::string to_line(const Measurement& measurement) { return line_of(json_of(measurement)); }

std::string to_line(const TuningResult& result) { return line_of(json_of(result)); }

}  // namespace cubinery
