// Lines as records; records.cc writes them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

#include "cache/paths.h"
#include "codegen/read_json.h"
#include "results/records.h"
#include "results/shape.h"

namespace cubinery {
namespace {

// What reads a record looks through its members once for each name.
constexpr JsonLimits kRecordLimits{.depth = 8, .members = 256, .values = 1 << 14};

enum class Need : int { kOptional, kRequired };

// Reads members of one object and keeps the first thing that is wrong.  What is missing and
// optional leaves its target alone.
class Members {
 public:
  Members(const Json* object, std::string where, std::string* wrong)
      : object_(object), where_(std::move(where)), wrong_(wrong) {}

  // Without members where there is no such object.
  Members object(const char* name, Need need) const {
    const Json* json = find(name, need);
    if (json != nullptr && !json->is_object()) json = refuse(name, "is not an object");
    return {json, fmt::format("{}{}.", where_, name), wrong_};
  }

  void read(const char* name, std::string* text, Need need = Need::kOptional) const {
    const Json* json = find(name, need);
    if (json == nullptr) return;
    if (!json->is_string()) return (void)refuse(name, "is not a text");
    *text = json->get<std::string>();
  }

  template <std::integral T>
  void read(const char* name, T* number) const {
    const Json* json = find(name, Need::kOptional);
    if (json == nullptr) return;
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    if (!json->is_number_unsigned() || json->get<std::uint64_t>() > kMost) {
      return (void)refuse(name, fmt::format("is not an integer from 0 to {}", kMost));
    }
    *number = json->get<T>();
  }

  // A time or a share: not negative.
  void read(const char* name, double* number, Need need = Need::kOptional) const {
    const Json* json = find(name, need);
    if (json == nullptr) return;
    if (!json->is_number() || !std::isfinite(json->get<double>()) || json->get<double>() < 0) {
      return (void)refuse(name, "is not a number of at least 0");
    }
    *number = json->get<double>();
  }

  void read_or_nan(const char* name, double* number) const {
    const Json* json = find(name, Need::kOptional);
    if (json == nullptr) return;
    if (!json->is_number() && !json->is_null()) return (void)refuse(name, "is not a number");
    *number = json->is_null() ? std::numeric_limits<double>::quiet_NaN() : json->get<double>();
  }

  void read(const char* name, Shape* shape) const {
    const Members sizes = object(name, Need::kRequired);
    if (sizes.object_ == nullptr) return;
    for (const auto& [size, value] : sizes.object_->items()) {
      shape->push_back({size, 0});
      sizes.read(size.c_str(), &shape->back().value);
    }
    const Status status = check_shape(name, *shape);
    if (!status.ok()) refuse(name, fmt::format("is no shape: {}", status.message()));
  }

  // `bits`: names of the fields that change bits.
  void read(const char* name, const std::vector<std::string>& bits, std::vector<TunedValue>* values,
            Need need = Need::kOptional) const {
    const Members fields = object(name, need);
    if (fields.object_ == nullptr) return;
    for (const auto& [field, value] : fields.object_->items()) {
      if (!value.is_string() && !value.is_number() && !value.is_boolean()) {
        return (void)fields.refuse(field, "is not a text, a number or a boolean");
      }
      const bool changes_bits = std::find(bits.begin(), bits.end(), field) != bits.end();
      values->push_back({field, value.is_string() ? value.get<std::string>() : value.dump(),
                         value.is_string(), changes_bits});
    }
  }

  void read(const char* name, std::vector<std::string>* texts) const {
    const Json* json = array(name);
    if (json == nullptr) return;
    for (const Json& text : *json) {
      if (!text.is_string()) return (void)refuse(name, "has an element that is not a text");
      texts->push_back(text.get<std::string>());
    }
  }

  // nullptr: none.
  const Json* array(const char* name) const {
    const Json* json = find(name, Need::kOptional);
    return json == nullptr || json->is_array() ? json : refuse(name, "is not an array");
  }

  std::nullptr_t refuse(std::string_view name, std::string_view what) const {
    if (wrong_->empty()) *wrong_ = fmt::format("{}{} {}", where_, excerpt(name), what);
    return nullptr;
  }

 private:
  const Json* find(const char* name, Need need) const {
    if (object_ != nullptr) {
      const auto member = object_->find(name);
      if (member != object_->end()) return &*member;
    }
    return need == Need::kRequired ? refuse(name, "is missing") : nullptr;
  }

  const Json* object_;
  std::string where_;
  std::string* wrong_;
};

// The object of a line whose first member, a format number, is named `kind`.
Result<Json> parse_line(std::string_view line, std::string_view kind) {
  const auto wrong = [](std::string what) {
    return Status(Code::kInvalidArgument, std::move(what));
  };
  Result<Json> json = read_json("", line, kRecordLimits);
  if (!json) return json;
  if (!json->is_object() || json->empty() || json->begin().key() != kind) {
    return wrong(fmt::format("not a {}", kind));
  }
  const Json& format = json->front();
  if (!format.is_number_unsigned() || format.get<std::uint64_t>() < 1) {
    return wrong(fmt::format("{} is not a format number", kind));
  }
  if (const auto found = format.get<std::uint64_t>(); found > kRecordFormat) {
    return wrong(
        fmt::format("newer format {}, of which this version knows {}", found, kRecordFormat));
  }
  return json;
}

template <class Record>
Result<Record> record_or(Record record, std::string wrong) {
  if (!wrong.empty()) return Status(Code::kInvalidArgument, std::move(wrong));
  return record;
}

void read_gpu(const Members& members, GpuIdentity* gpu) {
  members.read("arch", &gpu->arch, Need::kRequired);
  members.read("capability", &gpu->capability);
  members.read("sm_count", &gpu->sm_count);
  members.read("l2_bytes", &gpu->l2_bytes);
  members.read("shared_bytes_per_sm", &gpu->shared_bytes_per_sm);
  members.read("mig", &gpu->mig);
  members.read("name", &gpu->name);
}

Setting read_setting(const Members& members) {
  Setting setting;
  members.read("op", &setting.op, Need::kRequired);
  if (!paths::is_kernel_name(setting.op)) {
    members.refuse("op", "is not of letters, digits and _");
  }
  members.read("problem", &setting.problem, Need::kRequired);
  members.read("shape", &setting.shape);
  members.read("features", &setting.features);
  members.read("bucket", &setting.bucket, Need::kRequired);
  if (setting.bucket != bucket_of(setting.features)) {
    members.refuse("bucket",
                   fmt::format("is not that of the features, {}", bucket_of(setting.features)));
  }
  read_gpu(members.object("gpu", Need::kRequired), &setting.gpu);
  members.read("nvrtc", &setting.nvrtc, Need::kRequired);
  members.read("driver", &setting.driver);
  members.read("bytes", &setting.bytes);
  return setting;
}

Timing read_timing(const Members& members, const char* name, Need need) {
  const Members times = members.object(name, need);
  Timing timing;
  times.read("median", &timing.median, need);
  times.read("p10", &timing.p10);
  times.read("p90", &timing.p90);
  times.read("samples", &timing.samples);
  if (need == Need::kRequired && timing.median <= 0) times.refuse("median", "is not above 0");
  return timing;
}

Clocks read_clocks(const Members& members) {
  const Members object = members.object("clocks", Need::kOptional);
  Clocks clocks;
  object.read("sm_mhz", &clocks.sm_mhz);
  object.read("memory_mhz", &clocks.memory_mhz);
  return clocks;
}

Check read_check(const Members& members) {
  const Members object = members.object("check", Need::kOptional);
  Check check;
  object.read_or_nan("error", &check.error);
  object.read_or_nan("limit", &check.limit);
  object.read("worst", &check.worst);
  return check;
}

std::vector<MeasuredKernel> read_kernels(const Members& members, std::string* wrong) {
  std::vector<MeasuredKernel> kernels;
  const Json* array = members.array("kernels");
  if (array == nullptr) return kernels;
  for (const Json& json : *array) {
    if (!json.is_object()) {
      members.refuse("kernels", "has an element that is not an object");
      break;
    }
    const Members object(&json, "kernels.", wrong);
    MeasuredKernel& kernel = kernels.emplace_back();
    object.read("kernel", &kernel.kernel);
    object.read("registers", &kernel.registers);
    object.read("shared_bytes", &kernel.shared_bytes);
    object.read("spill_bytes", &kernel.spill_bytes);
    object.read("compile_ms", &kernel.compile_ms);
  }
  return kernels;
}

Verdict read_verdict(const Members& members) {
  std::string text;
  members.read("verdict", &text, Need::kRequired);
  for (const Verdict verdict : {Verdict::kCorrect, Verdict::kConstraints, Verdict::kCompile,
                                Verdict::kSpills, Verdict::kRuntime, Verdict::kWrong}) {
    if (text == to_string(verdict)) return verdict;
  }
  members.refuse("verdict", fmt::format("is unknown: \"{}\"", excerpt(text)));
  return Verdict::kWrong;
}

}  // namespace

RecordKind kind_of(std::string_view line) {
  const auto skip = [&line](std::string_view token) {
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    const bool found = line.starts_with(token);
    if (found) line.remove_prefix(token.size());
    return found;
  };
  if (!skip("{")) return RecordKind::kOther;
  constexpr std::array<std::pair<std::string_view, RecordKind>, 3> kKinds{
      {{"\"setting\"", RecordKind::kSetting},
       {"\"measurement\"", RecordKind::kMeasurement},
       {"\"result\"", RecordKind::kResult}}};
  for (const auto& [name, kind] : kKinds) {
    if (skip(name)) return kind;
  }
  return RecordKind::kOther;
}

Result<Setting> parse_setting(std::string_view line) {
  const Result<Json> json = parse_line(line, "setting");
  if (!json) return json.error().clone();
  std::string wrong;
  const Members members(&*json, "", &wrong);
  const Setting setting = read_setting(members);
  std::string id = id_of(setting);
  members.read("id", &id);
  if (id != id_of(setting)) members.refuse("id", "is not that of the other members");
  return record_or(setting, std::move(wrong));
}

Result<Measurement> parse_measurement(std::string_view line) {
  const Result<Json> json = parse_line(line, "measurement");
  if (!json) return json.error().clone();
  std::string wrong;
  const Members members(&*json, "", &wrong);
  Measurement measurement;
  std::vector<std::string> bits;
  members.read("of", &measurement.setting, Need::kRequired);
  members.read("bits", &bits);
  members.read("configuration", bits, &measurement.configuration, Need::kRequired);
  members.read("templates", &measurement.templates);
  measurement.verdict = read_verdict(members);
  members.read("reason", &measurement.reason);
  const bool is_timed = measurement.verdict == Verdict::kCorrect;
  measurement.ms = read_timing(members, "ms", is_timed ? Need::kRequired : Need::kOptional);
  measurement.check = read_check(members);
  measurement.kernels = read_kernels(members, &wrong);
  measurement.clocks = read_clocks(members);
  members.read("check_ms", &measurement.check_ms);
  members.read("timing_ms", &measurement.timing_ms);
  members.read("time", &measurement.time);
  return record_or(std::move(measurement), std::move(wrong));
}

Result<TuningResult> parse_result(std::string_view line) {
  const Result<Json> json = parse_line(line, "result");
  if (!json) return json.error().clone();
  std::string wrong;
  const Members members(&*json, "", &wrong);
  TuningResult result;
  std::vector<std::string> bits;
  result.setting = read_setting(members);
  members.read("bits", &bits);
  members.read("configuration", bits, &result.configuration, Need::kRequired);
  result.ms = read_timing(members, "ms", Need::kRequired);
  members.read("templates", &result.templates);
  members.read("agreed", bits, &result.agreed);
  const Need agreed = result.agreed.empty() ? Need::kOptional : Need::kRequired;
  result.agreed_ms = read_timing(members, "agreed_ms", agreed);
  members.read("agreed_templates", &result.agreed_templates);
  members.read("otherwise", bits, &result.otherwise);
  result.otherwise_ms = read_timing(members, "otherwise_ms", Need::kOptional);
  members.read("runner_up", bits, &result.runner_up);
  members.read("margin", &result.margin);
  members.read("uncertainty", &result.uncertainty);
  result.clocks = read_clocks(members);
  members.read("candidates", &result.candidates);
  members.read("measured", &result.measured);
  members.read("rejected", &result.rejected);
  members.read("time", &result.time);
  return record_or(std::move(result), std::move(wrong));
}

}  // namespace cubinery
