// Structs of the library whose fields callers give by name and as text.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/nearest.h"
#include "cubinery/status.h"

namespace cubinery::capi {

template <class Struct, class T>
struct Field {
  const char* name;
  T Struct::*member;
};
template <class Struct, class T>
Field(const char*, T Struct::*) -> Field<Struct, T>;

// As messages have it: {"Options", "::", "arch", "\"sm_1\""}.
struct GivenField {
  std::string_view owner, separator, name, value;
};

// Sets the field of this name among `fields`, a tuple of Field.  set(field) sets *field, or returns
// what is accepted; then the object is left as it was.
template <class Struct, class Fields, class Set>
Status set_field(const GivenField& given, const Fields& fields, Struct* object, Set set) {
  std::vector<std::string> names;
  bool is_known = false;
  const char* accepted = nullptr;
  const auto offer = [&](const auto& field) {
    names.emplace_back(field.name);
    if (given.name != field.name) return;
    is_known = true;
    auto value = object->*field.member;
    accepted = set(&value);
    if (accepted == nullptr) object->*field.member = std::move(value);
  };
  std::apply([&](const auto&... field) { (offer(field), ...); }, fields);
  if (!is_known) {
    return {Code::kInvalidArgument,
            fmt::format("{} has no field \"{}\"; accepted: {}{}", given.owner, given.name,
                        fmt::join(names, ", "), did_you_mean(given.name, names))};
  }
  if (accepted == nullptr) return {};
  return {Code::kInvalidArgument, fmt::format("{}{}{} = {}; accepted: {}", given.owner,
                                              given.separator, given.name, given.value, accepted)};
}

}  // namespace cubinery::capi
