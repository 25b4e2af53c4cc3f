// The views of a key that are printed from its field table.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/nearest.h"
#include "codegen/read_json.h"
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

std::string about_key(std::string_view sentence, std::string_view canonical) {
  return fmt::format("{}; key: {}", sentence, canonical);
}

Status key_error(Code code, std::string_view sentence, std::string_view canonical,
                 std::string_view log) {
  return Status(code, about_key(sentence, canonical), std::string(log));
}

std::string_view without_key(std::string_view message, std::string_view canonical) {
  const std::string key = about_key("", canonical);
  if (message.ends_with(key)) message.remove_suffix(key.size());
  return message;
}

Status bad_field(std::string_view kernel, std::string_view field, std::string_view value,
                 std::string_view accepted) {
  return Status(Code::kInvalidKey, fmt::format("{}: field {} = {}; accepted: {}", kernel,
                                               excerpt(field), excerpt(value), accepted));
}

Result<std::vector<std::pair<std::string, std::string>>> parse_flat_json(std::string_view kernel,
                                                                         std::string_view json) {
  const Result<Json> object = read_json(kernel, json);
  if (!object) return Status(Code::kInvalidKey, std::string(object.error().message()));
  if (!object->is_object()) {
    return Status(Code::kInvalidKey,
                  fmt::format("{}: not a JSON object: {}", kernel, json_excerpt(*object)));
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [name, value] : object->items()) {
    if (value.is_structured() || value.is_null()) {
      return bad_field(kernel, name, json_excerpt(value), "a string, a number or a boolean");
    }
    pairs.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return pairs;
}

}  // namespace cubinery::internal
