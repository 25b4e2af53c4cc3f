// A problem's fields for people and other languages: what help texts, Python's classes and the
// documents' tables are printed from.  Pure functions.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/fields.h"

namespace cubinery {

struct FieldDescription {
  std::string_view name;
  std::string_view type;  // "integer", "boolean" or "string"
  std::string default_value;
  std::string accepted;                   // "f32, bf16, f16", "true, false", "an integer"
  std::vector<std::string_view> choices;  // of a string
  std::string_view help;
};

namespace internal {

constexpr bool has_help(const Table& table) {
  return std::all_of(table.fields.begin(), table.fields.end(),
                     [](const Field& field) { return !std::string_view(field.help).empty(); });
}

// `plain`: the problem with its defaults.
std::vector<FieldDescription> describe_fields(const Table& table, const void* plain);

}  // namespace internal

template <class Problem>
std::vector<FieldDescription> describe_fields() {
  constexpr internal::Table kTable = internal::table_of<Problem>();
  static_assert(internal::has_help(kTable), "every field of a problem must have a line of help");
  const Problem plain{};
  return internal::describe_fields(kTable, &plain);
}

}  // namespace cubinery
