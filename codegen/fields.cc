// What field tables say of keys, once for all tables.
#include "cubinery/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "codegen/nearest.h"
#include "codegen/read_json.h"

namespace cubinery {
namespace internal {
namespace {

template <class Number>
long long read_as(const void* value) {
  Number number;
  std::memcpy(&number, value, sizeof number);
  return static_cast<long long>(number);
}

// A number of the type; unsigned ones of eight bytes as their bits.
void set_number(const FieldType& type, long long number, void* value) {
  switch (type.size) {
    case 1:
      return void(std::memcpy(value, &number, 1));
    case 2:
      return void(std::memcpy(value, &number, 2));
    case 4:
      return void(std::memcpy(value, &number, 4));
    default:
      std::memcpy(value, &number, sizeof number);
  }
}

std::string number_text(const FieldType& type, long long number) {
  return type.is_signed ? std::to_string(number)
                        : std::to_string(static_cast<unsigned long long>(number));
}

template <class Number>
bool parse_number(std::string_view text, const FieldType& type, void* value) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return false;
  const auto bits = static_cast<long long>(number);
  unsigned char kept[sizeof bits];
  set_number(type, bits, kept);
  if (number_of(type, kept) != bits) return false;  // out of range
  set_number(type, bits, value);
  return true;
}

bool is_same(const FieldType& a, const FieldType& b) {
  if (a.name != nullptr && b.name != nullptr) return std::strcmp(a.name, b.name) == 0;
  return a.name == b.name && a.size == b.size && a.is_bool == b.is_bool &&
         a.is_signed == b.is_signed;
}

Status no_such_field(std::string_view kernel, std::string_view field, const Table& table) {
  std::vector<std::string> names;
  for (const Field& known : table.fields) names.emplace_back(known.name);
  return Status(Code::kInvalidKey,
                fmt::format("{} has no field \"{}\"; accepted: {}{}", kernel, excerpt(field),
                            fmt::join(names, ", "), did_you_mean(field, names)));
}

}  // namespace

long long number_of(const FieldType& type, const void* value) {
  switch (type.size) {
    case 1:
      return type.is_signed ? read_as<signed char>(value) : read_as<unsigned char>(value);
    case 2:
      return type.is_signed ? read_as<short>(value) : read_as<unsigned short>(value);
    case 4:
      return type.is_signed ? read_as<int>(value) : read_as<unsigned>(value);
    default:
      return read_as<long long>(value);
  }
}

const void* value_of(const Field& field, const void* key) {
  return field.of(const_cast<void*>(key));
}

FieldText field_text(std::string_view name, const FieldType& type, const void* value,
                     bool is_tuned) {
  const long long number = number_of(type, value);
  if (type.is_bool) {
    const char* const text = number != 0 ? "true" : "false";
    return {name, text, text, false, is_tuned};
  }
  if (type.name == nullptr) {
    const std::string text = number_text(type, number);
    return {name, text, text, false, is_tuned};
  }
  for (const EnumText& entry : type.values) {
    if (entry.value == number) {
      return {name, entry.text, std::string(type.name).append("::").append(entry.enumerator), true,
              is_tuned};
    }
  }
  // A value outside its enumeration: printed as a number, which no parser accepts back.
  return {name, std::to_string(number).insert(0, 1, '?'), "?", true, is_tuned};
}

bool parse_field(std::string_view text, const FieldType& type, void* value) {
  if (type.name != nullptr) {
    for (const EnumText& entry : type.values) {
      if (text == entry.text) return set_number(type, entry.value, value), true;
    }
    return false;
  }
  if (type.is_bool) {
    set_number(type, text == "true" ? 1 : 0, value);
    return text == "true" || text == "false";
  }
  return type.is_signed ? parse_number<long long>(text, type, value)
                        : parse_number<unsigned long long>(text, type, value);
}

bool accepts(const Field& field, long long value) {
  const auto* accepted = static_cast<const unsigned char*>(field.accepted);
  for (std::size_t i = 0; i < field.accepted_count; ++i) {
    if (number_of(*field.type, accepted + i * field.type->size) == value) return true;
  }
  return field.accepted_count == 0;
}

std::string accepted_values(const Field& field) {
  if (field.type->name == nullptr) return field.type->is_bool ? "true, false" : "an integer";
  std::string text;
  for (const EnumText& entry : field.type->values) {
    if (!accepts(field, entry.value)) continue;
    if (!text.empty()) text += ", ";
    text += entry.text;
  }
  return text;
}

std::vector<FieldText> field_texts(const Table& table, const void* key) {
  std::vector<FieldText> texts;
  texts.reserve(table.fields.size());
  for (const Field& field : table.fields) {
    texts.push_back(field_text(field.name, *field.type, value_of(field, key), field.is_tuned));
    texts.back().changes_bits = field.changes_bits;
    texts.back().member_name = field.member_name;
  }
  return texts;
}

Status set_fields(std::string_view kernel, const Table& table, std::string_view json, void* key) {
  const auto pairs = parse_flat_json(kernel, json);
  if (!pairs) return pairs.error().clone();
  for (const auto& [name, value] : *pairs) {
    const auto is_it = [&name = name](const Field& field) { return name == field.name; };
    const auto field = std::find_if(table.fields.begin(), table.fields.end(), is_it);
    if (field == table.fields.end()) return no_such_field(kernel, name, table);
    if (!parse_field(value, *field->type, field->of(key))) {
      return bad_field(kernel, name, value, accepted_values(*field));
    }
  }
  return {};
}

void copy_fields(const Table& from, const void* source, const Table& to, void* key) {
  for (const Field& field : to.fields) {
    if (field.is_tuned) continue;
    const auto is_it = [&](const Field& other) {
      return is_same(*other.type, *field.type) && std::strcmp(other.name, field.name) == 0;
    };
    const auto found = std::find_if(from.fields.begin(), from.fields.end(), is_it);
    if (found == from.fields.end()) continue;
    std::memcpy(field.of(key), value_of(*found, source), field.type->size);
  }
}

bool same_fields(const Table& table, const void* a, const void* b) {
  return std::all_of(table.fields.begin(), table.fields.end(), [&](const Field& field) {
    return std::memcmp(value_of(field, a), value_of(field, b), field.type->size) == 0;
  });
}

void set_first_choices(const Table& table, void* key) {
  for (const Field& field : table.fields) {
    if (field.choice_count == 0) continue;
    set_number(*field.type, table.choices[field.choice], field.of(key));
  }
}

Choices::Choices(const Table& table, void* key) {
  for (const Field& field : table.fields) {
    if (!field.is_tuned) continue;
    has_any_ = has_any_ && field.choice_count > 0;
    wheels_.push_back(
        {field.type, field.of(key), {table.choices + field.choice, field.choice_count}});
  }
  if (has_any_) set_first_choices(table, key);
}

bool Choices::next() {
  for (auto wheel = wheels_.rbegin(); wheel != wheels_.rend(); ++wheel) {
    const bool turned = ++wheel->at < wheel->choices.size();
    if (!turned) wheel->at = 0;
    set_number(*wheel->type, wheel->choices[wheel->at], wheel->value);
    if (turned) return true;
  }
  return false;
}

}  // namespace internal
}  // namespace cubinery
