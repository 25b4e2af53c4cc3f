// What the library says of itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>

#include "capi/last_error.h"
#include "cubinery/c_api.h"
#include "cubinery/context.h"
#include "cubinery/version.h"
#include "runtime/registry/describe.h"

int cubinery_c_api_version(void) { return CUBINERY_C_API_VERSION; }

const char* cubinery_version(void) { return CUBINERY_VERSION; }

const char* cubinery_architectures(void) {
  const char* names = "";
  cubinery::capi::guarded([&names] {
    static const std::string kNames =
        fmt::format("{}", fmt::join(cubinery::known_architectures(), ","));
    names = kNames.c_str();
    return cubinery::Status();
  });
  return names;
}

const char* cubinery_operators(void) {
  const char* operators = "[]";
  cubinery::capi::guarded([&operators] {
    static const std::string kJson = cubinery::operators_json();
    operators = kJson.c_str();
    return cubinery::Status();
  });
  return operators;
}

const char* cubinery_code_name(int code) {
  if (code == CUBINERY_INTERNAL) return "Internal";
  const char* const name = cubinery::to_string(static_cast<cubinery::Code>(code));
  return std::string_view(name) == "?" ? "Unknown" : name;
}

void cubinery_free_text(char* text) { delete[] text; }
