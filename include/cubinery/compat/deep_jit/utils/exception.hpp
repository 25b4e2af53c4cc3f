// Errors are exceptions.
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <version>

#include "cubinery/status.h"

#if defined(__cpp_lib_format)
#include <format>
#endif

namespace deep_jit {

namespace exception {

class Exception final : public std::exception {
 public:
  std::string message;

  Exception(const char* name, const char* file, int line, const std::string& error)
      : message(std::string(name) + " error (" + file + ":" + std::to_string(line) +
                "): " + error) {}
  // Of cubinery: its code's name, what it says, and the compiler's log.
  Exception(const cubinery::Status& status, const std::string& what_for)
      : message(std::string(cubinery::to_string(status.code())) + " error (" + what_for +
                "): " + std::string(status.message()) + (status.log().empty() ? "" : "\n") +
                std::string(status.log())) {}
  const char* what() const noexcept override { return message.c_str(); }
};

}  // namespace exception

namespace internal {

#if defined(__cpp_lib_format)
using std::format;
#else
// Of std::format what the macros below need: "{}".
template <typename... Args>
std::string format(std::string_view text, const Args&... args) {
  std::ostringstream out;
  [[maybe_unused]] const auto put = [&](const auto& value) {
    const std::size_t place = text.find("{}");
    out << text.substr(0, place);
    if (place != text.npos) out << value;
    text.remove_prefix(place == text.npos ? text.size() : place + 2);
  };
  (put(args), ...);
  out << text;
  return out.str();
}
#endif

template <typename T>
T value_of(cubinery::Result<T> result, const std::string& what_for) {
  if (!result) throw exception::Exception(result.error(), what_for);
  return *std::move(result);
}

}  // namespace internal

}  // namespace deep_jit

#ifndef DJ_STATIC_ASSERT
#define DJ_STATIC_ASSERT(cond, ...) static_assert(cond, "" __VA_ARGS__)
#endif
#ifndef DJ_HOST_ASSERT
#define DJ_HOST_ASSERT(cond, ...)                                                  \
  do {                                                                             \
    if (!(cond)) {                                                                 \
      throw ::deep_jit::exception::Exception(                                      \
          "Assertion", __FILE__, __LINE__,                                         \
          #cond __VA_OPT__(": ") +                                                 \
              std::string(__VA_OPT__(::deep_jit::internal::format(__VA_ARGS__)))); \
    }                                                                              \
  } while (false)
#endif
#ifndef DJ_PANIC
#define DJ_PANIC(...)                                                 \
  throw ::deep_jit::exception::Exception("Panic", __FILE__, __LINE__, \
                                         ::deep_jit::internal::format(__VA_ARGS__))
#endif
