#include "runtime/operator/keyed_path.h"

namespace cubinery {

bool set_tuned_fields(const std::vector<TunedValue>& values, std::string_view prefix,
                      const internal::Table& table, void* key) {
  return std::all_of(table.fields.begin(), table.fields.end(), [&](const internal::Field& field) {
    if (!field.is_tuned) return true;
    const std::string own = std::string(prefix).append(field.name);
    const auto is_named = [&](const TunedValue& value) {
      return value.name == own || value.name == field.name;
    };
    const auto found = std::find_if(values.begin(), values.end(), is_named);
    return found != values.end() && internal::parse_field(found->value, *field.type, field.of(key));
  });
}

std::string refusal_text(std::string_view rule, const std::vector<FieldText>& fields) {
  constexpr std::string_view kMust = " must be ", kOr = " or ";
  const std::size_t must = rule.find(kMust);
  const std::string_view name = rule.substr(0, must);
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const FieldText& one) { return one.name == name; });
  std::string text(rule);
  if (field == fields.end()) return text;
  text = text.substr(must + kMust.size());
  if (const std::size_t last = text.rfind(kOr); last != text.npos) {
    text.replace(last, kOr.size(), ", ");
  }
  return std::string(name).append(" = ").append(field->value).append("; accepted: ").append(text);
}

}  // namespace cubinery
