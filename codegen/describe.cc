#include "codegen/describe.h"

namespace cubinery::internal {

std::vector<FieldDescription> describe_fields(const Table& table, const void* plain) {
  std::vector<FieldDescription> descriptions;
  for (const Field& field : table.fields) {
    const FieldType& type = *field.type;
    FieldDescription description{
        .name = field.name,
        .type = type.is_bool ? "boolean" : "integer",
        .default_value = field_text(field.name, type, value_of(field, plain), false).value,
        .accepted = accepted_values(field),
        .choices = {},
        .help = field.help};
    if (type.name != nullptr) description.type = "string";
    for (const EnumText& entry : type.values) {
      if (accepts(field, entry.value)) description.choices.emplace_back(entry.text);
    }
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

}  // namespace cubinery::internal
