// Lines as records; records.cc writes them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <utility>

#include "cache/paths.h"
#include "codegen/read_json.h"
#include "results/record_members.h"
#include "results/shape.h"

namespace cubinery {
namespace {

// What reads a record looks through its members once for each name.
constexpr JsonLimits kRecordLimits{.depth = 8, .members = 256, .values = 1 << 14};

// Reads members of one object and keeps the first thing that is wrong.  What is missing and not
// required leaves its target alone.
class Reader {
 public:
  // `bits`: names of the fields that change bits, of the configurations inside.
  Reader(const Json* object, std::string where, const std::vector<std::string>* bits,
         std::string* wrong)
      : object_(object), where_(std::move(where)), bits_(bits), wrong_(wrong) {}

  void operator()(const char* name, auto&& member, Need need = Need::kOptional) const {
    const Json* json = find(name, need);
    if (json != nullptr) read(name, *json, &member);
    if constexpr (requires { member.median; }) {  // times that are needed
      if (need != Need::kRequired || member.median > 0) return;
      const bool is_there = json != nullptr && json->contains("median");
      refuse(fmt::format("{}.median", name), is_there ? "is not above 0" : "is missing");
    }
  }

  std::nullptr_t refuse(std::string_view name, std::string_view what) const {
    if (wrong_->empty()) *wrong_ = fmt::format("{}{} {}", where_, excerpt(name), what);
    return nullptr;
  }

 private:
  const Json* find(const char* name, Need need) const {
    const auto member = object_->find(name);
    if (member != object_->end()) return &*member;
    return need == Need::kRequired ? refuse(name, "is missing") : nullptr;
  }

  void read(const char* name, const Json& json, std::string* text) const {
    if (!json.is_string()) return (void)refuse(name, "is not a text");
    *text = json.get<std::string>();
  }

  template <std::integral T>
  void read(const char* name, const Json& json, T* number) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMost) {
      return (void)refuse(name, fmt::format("is not an integer from 0 to {}", kMost));
    }
    *number = json.get<T>();
  }

  // A time or a share: not negative.
  void read(const char* name, const Json& json, double* number) const {
    if (!json.is_number() || !std::isfinite(json.get<double>()) || json.get<double>() < 0) {
      return (void)refuse(name, "is not a number of at least 0");
    }
    *number = json.get<double>();
  }

  void read(const char* name, const Json& json, OrNan<double>* number) const {
    if (!json.is_number() && !json.is_null()) return (void)refuse(name, "is not a number");
    number->value = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
  }

  void read(const char* name, const Json& json, Verdict* verdict) const {
    std::string text;
    read(name, json, &text);
    for (const Verdict known : {Verdict::kCorrect, Verdict::kConstraints, Verdict::kCompile,
                                Verdict::kSpills, Verdict::kRuntime, Verdict::kWrong}) {
      if (text == to_string(known)) return (void)(*verdict = known);
    }
    refuse(name, fmt::format("is unknown: \"{}\"", excerpt(text)));
  }

  void read(const char* name, const Json& json, Shape* shape) const {
    const std::optional<Reader> sizes = object(name, json);
    if (!sizes) return;
    for (const auto& [size, value] : json.items()) {
      shape->push_back({size, 0});
      sizes->read(size.c_str(), value, &shape->back().value);
    }
    const Status status = check_shape(name, *shape);
    if (!status.ok()) refuse(name, fmt::format("is no shape: {}", status.message()));
  }

  void read(const char* name, const Json& json, std::vector<TunedValue>* values) const {
    const std::optional<Reader> fields = object(name, json);
    if (!fields) return;
    for (const auto& [field, value] : json.items()) {
      if (!value.is_string() && !value.is_number() && !value.is_boolean()) {
        return (void)fields->refuse(field, "is not a text, a number or a boolean");
      }
      const bool changes_bits = std::find(bits_->begin(), bits_->end(), field) != bits_->end();
      values->push_back({field, value.is_string() ? value.get<std::string>() : value.dump(),
                         value.is_string(), changes_bits});
    }
  }

  // Read before all others: see parse_record().
  void read(const char*, const Json&, BitsOf*) const {}

  void read(const char* name, const Json& json, std::vector<MeasuredKernel>* kernels) const {
    if (!json.is_array()) return (void)refuse(name, "is not an array");
    for (const Json& kernel : json) {
      if (!kernel.is_object()) return (void)refuse(name, "has an element that is not an object");
      read(name, kernel, &kernels->emplace_back());
    }
  }

  template <class Record>
  void read(const char* name, const Json& json, Record* record) const {
    if (const std::optional<Reader> reader = object(name, json)) members_of(*reader, *record);
  }

  std::optional<Reader> object(const char* name, const Json& json) const {
    if (json.is_object()) return Reader(&json, fmt::format("{}{}.", where_, name), bits_, wrong_);
    refuse(name, "is not an object");
    return std::nullopt;
  }

  const Json* object_;
  std::string where_;
  const std::vector<std::string>* bits_;
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

// What members alone do not say.
void check_setting(const Reader& reader, const Setting& setting) {
  if (!paths::is_kernel_name(setting.op)) reader.refuse("op", "is not of letters, digits and _");
  const std::string bucket = bucket_of(setting.features);
  if (setting.bucket != bucket) {
    reader.refuse("bucket", fmt::format("is not that of the features, {}", bucket));
  }
}
void check(const Reader& reader, const TuningResult& result) {
  check_setting(reader, result.setting);
}
void check(const Reader&, const Measurement&) {}
void check(const Reader& reader, const Setting& setting) {
  check_setting(reader, setting);
  std::string id = id_of(setting);
  reader("id", id);
  if (id != id_of(setting)) reader.refuse("id", "is not that of the other members");
}

template <class Record>
Result<Record> parse_record(std::string_view line, std::string_view kind) {
  const Result<Json> json = parse_line(line, kind);
  if (!json) return json.error().clone();
  std::string wrong;
  std::vector<std::string> bits;
  const Reader reader(&*json, "", &bits, &wrong);
  if (const auto names = json->find("bits"); names != json->end()) {
    if (!names->is_array()) reader.refuse("bits", "is not an array");
    for (const Json& name : *names) {
      if (name.is_string()) bits.push_back(name.get<std::string>());
      if (!name.is_string()) reader.refuse("bits", "has an element that is not a text");
    }
  }
  Record record;
  members_of(reader, record);
  check(reader, record);
  if (!wrong.empty()) return Status(Code::kInvalidArgument, std::move(wrong));
  return record;
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
  return parse_record<Setting>(line, "setting");
}

Result<Measurement> parse_measurement(std::string_view line) {
  return parse_record<Measurement>(line, "measurement");
}

Result<TuningResult> parse_result(std::string_view line) {
  return parse_record<TuningResult>(line, "result");
}

}  // namespace cubinery
