// What the C functions do with their arguments before and their results after.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "cubinery/status.h"

namespace cubinery::capi {

inline Status not_null(std::string_view name, const void* argument) {
  if (argument != nullptr) return {};
  return Status(Code::kInvalidArgument, fmt::format("{} is NULL; accepted: a pointer", name));
}

// The place of a result, which errors leave NULL.
template <class T>
Status cleared(std::string_view name, T** result) {
  CUBINERY_RETURN_IF_ERROR(not_null(name, result));
  *result = nullptr;
  return {};
}

// The size that the caller gave a struct; it may be older than the library's and shorter.
template <class T>
Status check_size(std::string_view name, const T* given) {
  static_assert(std::has_unique_object_representations_v<T>,
                "a field added in place of padding would be garbage from older callers");
  CUBINERY_RETURN_IF_ERROR(not_null(name, given));
  const std::size_t size = given->struct_size;
  if (size >= sizeof(size) && size <= sizeof(T) && size % sizeof(size) == 0) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("{}->struct_size is {}; accepted: multiples of {} up to {}, its size "
                            "in this library",
                            name, size, sizeof(size), sizeof(T)));
}

// The caller's struct as the library knows it: fields that it lacks are zero.
template <class T>
Status read_struct(std::string_view name, const T* given, T* whole) {
  CUBINERY_RETURN_IF_ERROR(check_size(name, given));
  *whole = {};
  std::memcpy(whole, given, given->struct_size);
  return {};
}

// For cubinery_free_text().
inline char* new_text(std::string_view text) {
  char* const copy = new char[text.size() + 1];
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace cubinery::capi
