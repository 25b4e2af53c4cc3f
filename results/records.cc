// Records as lines; parse_records.cc reads them.
#include "results/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <concepts>

#include "codegen/identity.h"
#include "codegen/read_json.h"
#include "results/record_members.h"
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

// Objects and arrays, member by member.
Json written(const auto& record);

Json written(const std::string& text) { return text; }
Json written(const std::integral auto& number) { return number; }
Json written(const double& number) { return shortened(number); }
Json written(const OrNan<const double>& number) { return shortened(number.value); }
Json written(const Verdict& verdict) { return to_string(verdict); }

Json written(const Shape& shape) {
  Json json = Json::object();
  for (const ShapeSize& size : shape) json[size.name] = size.value;
  return json;
}

Json written(const std::vector<TunedValue>& values) {
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
Json written(const BitsOf& configurations) {
  Json names = Json::array();
  for (const std::vector<TunedValue>* values : configurations) {
    for (const TunedValue& value : *values) {
      const bool is_new = std::find(names.begin(), names.end(), value.name) == names.end();
      if (value.changes_bits && is_new) names.push_back(value.name);
    }
  }
  return names;
}

Json written(const std::vector<MeasuredKernel>& kernels) {
  Json json = Json::array();
  for (const MeasuredKernel& kernel : kernels) json.push_back(written(kernel));
  return json;
}

void write_members(const auto& record, Json* json) {
  const auto visit = [&](const char* name, const auto& member, Need need = Need::kOptional) {
    if (need != Need::kUnwritten) (*json)[name] = written(member);
  };
  members_of(visit, record);
}

Json written(const auto& record) {
  Json json = Json::object();
  write_members(record, &json);
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
  write_members(setting, &json);
  return json;
}

Json json_of(const Measurement& measurement) {
  Json json = {{"measurement", kRecordFormat}};
  write_members(measurement, &json);
  return json;
}

Json json_of(const TuningResult& result) {
  Json json = {{"result", kRecordFormat}};
  write_members(result, &json);
  return json;
}

std::string to_line(const Setting& setting) { return line_of(json_of(setting)); }

std::string to_line(const Measurement& measurement) { return line_of(json_of(measurement)); }

std::string to_line(const TuningResult& result) { return line_of(json_of(result)); }

}  // namespace cubinery
