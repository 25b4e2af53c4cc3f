// A problem's fields for people and other languages: what help texts, Python's classes and the
// documents' tables are printed from.  Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
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

template <class Problem>
constexpr bool has_help() {
  return std::apply(
      [](const auto&... field) { return (!std::string_view(field.help).empty() && ...); },
      Fields<Problem>::kList);
}

}  // namespace internal

template <class Problem>
std::vector<FieldDescription> describe_fields() {
  static_assert(internal::has_help<Problem>(), "every field of a problem must have a line of help");
  const Problem plain{};
  std::vector<FieldDescription> descriptions;
  internal::for_each_field<Problem>([&](const auto& field) {
    using T = typename std::decay_t<decltype(field)>::Type;
    FieldDescription description{
        .name = field.name,
        .type = std::is_same_v<T, bool> ? "boolean" : "integer",
        .default_value = internal::field_text(field.name, field.of(plain), field.kTuned).value,
        .accepted = internal::accepted_values(field.accepted),
        .choices = {},
        .help = field.help};
    if constexpr (std::is_enum_v<T>) {
      description.type = "string";
      for (const EnumName<T>& entry : EnumNames<T>::kNames) {
        if (internal::accepts(field.accepted, entry.value)) {
          description.choices.emplace_back(entry.text);
        }
      }
    }
    descriptions.push_back(std::move(description));
  });
  return descriptions;
}

}  // namespace cubinery
