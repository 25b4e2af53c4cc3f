// What the operators take, for help texts, other languages and documents.  Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/describe.h"
#include "runtime/registry/operators.h"

namespace cubinery {

// One of the arguments of a launch.
struct TensorDescription {
  std::string_view name;
  std::string_view part;    // of the arguments, where it is not among them itself
  std::string shape;        // "[B, T, heads, value_dim]", of dense tokens
  std::string packed;       // of varlen; empty: the same
  std::string_view dtype;   // a field of the problem, or the dtype
  std::string_view access;  // "read", "written" or "both"
  bool optional = false;
  std::string_view optional_where;  // "gate_mode is lower_bound": only there
  bool per_channel = false;         // with decay channel it has one dimension more, of key_dim
  std::vector<std::string_view> absent_where;
  std::string_view doc;
};
struct NumberDescription {
  std::string_view name;
  std::string_view type;    // "float", "integer" or "boolean"
  std::string_view absent;  // what it is then; empty: it is never absent
  bool optional = false;    // an integer that has no value for that
  std::string_view doc;
};
struct ArgsDescription {
  std::vector<TensorDescription> tensors;
  std::vector<NumberDescription> numbers;
  std::vector<NumberDescription> sizes;  // what choices take
  std::size_t positional = 0;            // so many tensors Python takes without a name
  std::string_view instead;              // the tensor that may stand in for the first, if any
  bool has_workspace = false;
};

struct OperatorDescription {
  std::string_view name;
  std::string_view help;
  std::vector<FieldDescription> fields;  // of its problem
  std::vector<Form> forms;               // in which a model needs it
  ArgsDescription args;
};
// In the order of operator_names().
const std::vector<OperatorDescription>& operator_descriptions();

// A JSON array of {"op", "help", "fields": [{"name", "type", "default", "choices", "help"}],
// "forms": [{"name", "help"}], "tensors": [{"name", "part", "shape", "packed", "dtype", "access",
// "optional", "per_channel", "absent_where", "doc"}], "numbers": [{"name", "type", "absent",
// "optional", "doc"}], "sizes": as numbers, "positional", "workspace"}; a field's "type" is
// "integer", "boolean" or "string", and strings have "choices"; of tensors and numbers what is
// empty is not there.
std::string operators_json();

}  // namespace cubinery
