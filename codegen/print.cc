// The views of a key that are printed from its field table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "codegen/nearest.h"
#include "cubinery/fields.h"

namespace cubinery::internal {

std::string initializer_text(const std::vector<FieldText>& fields) {
  // A part's members stand together, where the first of them does.
  std::vector<std::pair<std::string_view, std::string>> members;
  for (const FieldText& field : fields) {
    const std::size_t dot = field.member_name.find('.');
    const std::string_view member = field.member_name.substr(0, dot);
    if (dot == field.member_name.npos) {
      members.emplace_back(member, field.initializer);
      continue;
    }
    const auto same = [&](const auto& other) { return other.first == member; };
    auto part = std::find_if(members.begin(), members.end(), same);
    if (part == members.end()) part = members.insert(part, {member, ""});
    part->second.append(part->second.empty() ? "{." : ",.").append(field.member_name, dot + 1);
    part->second.append("=").append(field.initializer);
  }
  std::string text;
  for (const auto& [member, value] : members) {
    text.append(text.empty() ? "{." : ",.").append(member).append("=").append(value);
    if (value.front() == '{') text += '}';
  }
  return text.empty() ? "{}" : text + "}";
}

std::string canonical_text(std::string_view kernel, const std::vector<FieldText>& fields) {
  std::string text(kernel);
  for (const FieldText& field : fields) {
    text.append(";").append(field.name).append("=").append(field.value);
  }
  return text;
}

std::string json_text(const std::vector<FieldText>& fields) {
  std::string text;
  for (const FieldText& field : fields) {
    const char* quote = field.quoted ? "\"" : "";
    text += fmt::format("{}\"{}\":{}{}{}", text.empty() ? "{" : ",", field.name, quote, field.value,
                        quote);
  }
  return text.empty() ? "{}" : text + "}";
}

Status bad_field(std::string_view kernel, std::string_view field, std::string_view value,
                 std::string_view accepted) {
  return Status(Code::kInvalidKey,
                fmt::format("{}: field {} = {}; accepted: {}", kernel, field, value, accepted));
}

Status no_such_field(std::string_view kernel, std::string_view field,
                     const std::vector<FieldText>& fields) {
  std::vector<std::string> names;
  for (const FieldText& known : fields) names.emplace_back(known.name);
  return Status(Code::kInvalidKey,
                fmt::format("{} has no field \"{}\"; accepted: {}{}", kernel, field,
                            fmt::join(names, ", "), did_you_mean(field, names)));
}

Result<std::vector<std::pair<std::string, std::string>>> parse_flat_json(std::string_view kernel,
                                                                         std::string_view json) {
  // Duplicate names are lost in a parsed object, and a deeply nested one overflows the stack when
  // it is printed or destroyed: both are caught on the way.
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::string> names;
  std::string duplicate;
  std::string nested;
  const auto on_event = [&](int depth, Event event, const nlohmann::json& value) {
    if (depth > 0 && (event == Event::object_start || event == Event::array_start)) {
      if (nested.empty() && !names.empty()) nested = names.back();
      return false;
    }
    if (event != Event::key || depth != 1) return true;
    std::string name = value.get<std::string>();
    if (std::find(names.begin(), names.end(), name) != names.end()) duplicate = name;
    names.push_back(std::move(name));
    return true;
  };
  const nlohmann::json object = nlohmann::json::parse(json, on_event, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return Status(Code::kInvalidKey,
                  fmt::format("{}: not a JSON object: {}", kernel, json.substr(0, 80)));
  }
  constexpr std::string_view kScalar = "a string, a number or a boolean";
  if (!nested.empty()) return bad_field(kernel, nested, "a nested value", kScalar);
  if (!duplicate.empty()) {
    return bad_field(kernel, duplicate, object[duplicate].dump(), "each field once");
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) return bad_field(kernel, name, "null", kScalar);
    pairs.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return pairs;
}

}  // namespace cubinery::internal
