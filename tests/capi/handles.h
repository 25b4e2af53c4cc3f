// Handles of the C ABI that go with the test, and errors as text.
#pragma once

#include <memory>
#include <string>

#include "cubinery/c_api.h"
#include "tests/catch.h"

namespace cubinery::test {

using OptionsHandle = std::unique_ptr<CubineryOptions, decltype(&cubinery_options_destroy)>;
using ContextHandle = std::unique_ptr<CubineryContext, decltype(&cubinery_context_destroy)>;

inline OptionsHandle new_options() {
  CubineryOptions* options = nullptr;
  REQUIRE(cubinery_options_create(&options) == CUBINERY_OK);
  return {options, cubinery_options_destroy};
}

inline void set(const OptionsHandle& options, const char* field, const std::string& value) {
  REQUIRE(cubinery_options_set(options.get(), field, value.c_str()) == CUBINERY_OK);
}

// A context for an architecture, without a device, whose cache is in `cache_dir`.
inline ContextHandle new_context(const OptionsHandle& options, const std::string& cache_dir) {
  set(options, "device", "-1");
  set(options, "arch", "sm_90a");
  set(options, "cache_dir", cache_dir);
  CubineryContext* context = nullptr;
  REQUIRE(cubinery_context_create(options.get(), &context) == CUBINERY_OK);
  return {context, cubinery_context_destroy};
}

// The message of a call that must have failed for a reason in its arguments.
inline std::string refused(int code) {
  CHECK(code == CUBINERY_INVALID_ARGUMENT);
  return cubinery_last_error();
}

// A text that a call returned, which this frees.
inline std::string taken(char* text) {
  REQUIRE(text != nullptr);
  std::string copy = text;
  cubinery_free_text(text);
  return copy;
}

}  // namespace cubinery::test
