// What a fuzzing target is: a function of any bytes, which must end well.
//
//   CUBINERY_FUZZ_TARGET(entry) {  // std::string_view input
//     ...
//   }
//
// With CUBINERY_LIBFUZZER (preset fuzz) a target's file is a program of libFuzzer.  Without, all
// files are one test, which goes through the inputs kept in corpus/<target>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace cubinery::fuzz {

using Target = void (*)(std::string_view input);

// By name.
inline std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

// For what must hold whatever the input was.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace cubinery::fuzz

#ifdef CUBINERY_LIBFUZZER
#define CUBINERY_FUZZ_TARGET(name)                                                    \
  static void name##_target(std::string_view input);                                  \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    name##_target({reinterpret_cast<const char*>(data), size});                       \
    return 0;                                                                         \
  }                                                                                   \
  static void name##_target([[maybe_unused]] std::string_view input)
#else
#define CUBINERY_FUZZ_TARGET(name)                                     \
  static void name##_target(std::string_view input);                   \
  [[maybe_unused]] static const bool name##_is_known =                 \
      cubinery::fuzz::targets().emplace(#name, &name##_target).second; \
  static void name##_target([[maybe_unused]] std::string_view input)
#endif
