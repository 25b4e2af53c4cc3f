#include "codegen/kernel_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "codegen/nearest.h"
#include "codegen/source_name.h"

namespace cubinery {
namespace {

template <class T>
struct SourceField {
  const char* name;
  T KernelSource::*member;
};
template <class T>
SourceField(const char*, T KernelSource::*) -> SourceField<T>;

// The one list of them: printer, reader and messages go through it.  Names are persistent.
constexpr std::tuple kSourceFields{
    SourceField{"name", &KernelSource::name},
    SourceField{"source", &KernelSource::source},
    SourceField{"includes", &KernelSource::includes},
    SourceField{"options", &KernelSource::options},
    SourceField{"allow_spills", &KernelSource::allow_spills},
    SourceField{"compiler", &KernelSource::compiler},
    SourceField{"share_headers", &KernelSource::share_headers},
};

template <class Function>
void for_each_source_field(Function&& function) {
  std::apply([&](const auto&... field) { (function(field), ...); }, kSourceFields);
}

template <class T>
const T& json_of_field(const T& value) {
  return value;
}
const char* json_of_field(Compiler compiler) { return to_string(compiler); }

// Each sets *field to what the value says, or returns what is accepted.
const char* set_source_field(const Json& value, std::string* field) {
  if (!value.is_string()) return "a string";
  *field = value.get<std::string>();
  return nullptr;
}

const char* set_source_field(const Json& value, bool* field) {
  if (!value.is_boolean()) return "true, false";
  *field = value.get<bool>();
  return nullptr;
}

const char* set_source_field(const Json& value, std::vector<std::string>* field) {
  constexpr const char* kAccepted = "an array of strings";
  if (!value.is_array()) return kAccepted;
  for (const Json& one : value) {
    if (set_source_field(one, &field->emplace_back()) != nullptr) return kAccepted;
  }
  return nullptr;
}

const char* set_source_field(const Json& value, Compiler* field) {
  const std::optional<Compiler> compiler =
      compiler_called(value.is_string() ? value.get<std::string>() : "");
  if (!compiler) return "nvrtc, nvcc";
  *field = *compiler;
  return nullptr;
}

Status bad_source(std::string message) {
  return Status(Code::kInvalidArgument, "source: " + std::move(message));
}

}  // namespace

std::string to_json(const KernelSource& source) {
  const KernelSource defaults;
  Json object = Json::object();
  for_each_source_field([&](const auto& field) {
    const auto& value = source.*field.member;
    if (value != defaults.*field.member) object[field.name] = json_of_field(value);
  });
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<KernelSource> read_kernel_source(const Json& value, std::string_view also) {
  if (!value.is_object()) {
    return bad_source(fmt::format("{}; accepted: an object", json_excerpt(value)));
  }
  std::vector<std::string> names;
  for_each_source_field([&](const auto& field) { names.emplace_back(field.name); });
  if (!also.empty()) names.emplace_back(also);
  KernelSource source;
  for (const auto& [name, given] : value.items()) {
    bool is_known = false;
    const char* accepted = nullptr;
    for_each_source_field([&, &name = name, &given = given](const auto& field) {
      if (name != field.name) return;
      is_known = true;
      accepted = set_source_field(given, &(source.*field.member));
    });
    if (!is_known) {
      return bad_source(fmt::format("no field \"{}\"; accepted: {}{}", excerpt(name),
                                    fmt::join(names, ", "), did_you_mean(name, names)));
    }
    if (accepted != nullptr) {
      return bad_source(fmt::format("{} = {}; accepted: {}", name, json_excerpt(given), accepted));
    }
  }
  return source;
}

Result<KernelSource> kernel_source_from_json(std::string_view json) {
  const Result<Json> value = read_json("source", json);
  return value ? read_kernel_source(*value) : value.error().clone();
}

}  // namespace cubinery
