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

}  // namespace cubinery
