// The environment, as a library has it.
#pragma once

#include <stdlib.h>

#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "cubinery/compat/deep_jit/utils/exception.hpp"

namespace deep_jit {

namespace internal {

// A privileged process reads nothing of the environment.
inline std::string variable(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace internal

template <typename T>
T parse_integer(const char* raw, const std::string& name) {
  T value{};
  const std::string_view text(raw);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    DJ_PANIC("invalid value for {}: {}", name, raw);
  }
  return value;
}

template <typename T>
T get_env(const std::string& name, const T& default_value = T()) {
  const char* const raw = ::secure_getenv(name.c_str());
  if (raw == nullptr) return default_value;
  if constexpr (std::is_same_v<T, std::string>) {
    return raw;
  } else if constexpr (std::is_same_v<T, bool>) {
    std::string word(raw);
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (word == "true" || word == "yes") return true;
    if (word == "false" || word == "no") return false;
    return parse_integer<long long>(raw, name) != 0;
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(parse_integer<std::underlying_type_t<T>>(raw, name));
  } else {
    static_assert(std::is_integral_v<T>, "of strings, bool, integers and enumerations");
    return parse_integer<T>(raw, name);
  }
}

// Variables of a library, PREFIX_<suffix>, and behind them those of all, DJ_<suffix>.
class Env {
 public:
  std::string prefix;

  explicit Env(std::string name) : prefix(std::move(name)) {
    DJ_HOST_ASSERT(!prefix.empty(), "environment variable prefix must not be empty");
    DJ_HOST_ASSERT(prefix != "DJ", "DJ is reserved for global environment variables");
  }

  template <typename T>
  std::optional<T> get(std::string_view suffix) const {
    if (std::optional<T> own = get_with_prefix<T>(prefix, suffix)) return own;
    return get_with_prefix<T>("DJ", suffix);
  }
  template <typename T>
  T get(std::string_view suffix, const T& default_value) const {
    return get<T>(suffix).value_or(default_value);
  }
  template <typename T>
  static std::optional<T> get_with_prefix(std::string_view before, std::string_view suffix) {
    const std::string name = std::string(before) + "_" + std::string(suffix);
    if (::secure_getenv(name.c_str()) == nullptr) return std::nullopt;
    return get_env<T>(name);
  }
};

}  // namespace deep_jit
