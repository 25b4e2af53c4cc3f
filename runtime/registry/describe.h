// What the operators take, for help texts, other languages and documents.  Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/describe.h"
#include "runtime/registry/operators.h"

namespace cubinery {

struct OperatorDescription {
  std::string_view name;
  std::string_view help;
  std::vector<FieldDescription> fields;  // of its problem
  std::vector<Form> forms;               // in which a model needs it
};
// In the order of operator_names().
const std::vector<OperatorDescription>& operator_descriptions();

// A JSON array of {"op", "help", "fields": [{"name", "type", "default", "choices", "help"}],
// "forms": [{"name", "help"}]}; "type" is "integer", "boolean" or "string", and strings have
// "choices".
std::string operators_json();

}  // namespace cubinery
