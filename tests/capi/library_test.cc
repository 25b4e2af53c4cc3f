// Codes, versions and errors of the C ABI.
#include <stdexcept>
#include <string>
#include <thread>

#include "capi/last_error.h"
#include "cubinery/context.h"
#include "cubinery/options.h"
#include "cubinery/version.h"
#include "runtime/registry/describe.h"
#include "tests/capi/handles.h"

namespace cubinery {
namespace {

using test::refused;

static_assert(CUBINERY_OK == static_cast<int>(Code::kOk));
static_assert(CUBINERY_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(CUBINERY_INVALID_KEY == static_cast<int>(Code::kInvalidKey));
static_assert(CUBINERY_COMPILE_FAILED == static_cast<int>(Code::kCompileFailed));
static_assert(CUBINERY_NOT_CACHED == static_cast<int>(Code::kNotCached));
static_assert(CUBINERY_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(CUBINERY_DRIVER == static_cast<int>(Code::kDriver));
static_assert(CUBINERY_IO == static_cast<int>(Code::kIo));
static_assert(static_cast<int>(LogLevel::kInfo) == 0 && static_cast<int>(LogLevel::kWarning) == 1);

TEST_CASE("CodesHaveTheNamesOfTheCppApi", "[cpu]") {
  for (int code = CUBINERY_OK; code <= CUBINERY_IO; ++code) {
    CHECK(std::string(cubinery_code_name(code)) == to_string(static_cast<Code>(code)));
  }
  CHECK(std::string(cubinery_code_name(CUBINERY_INTERNAL)) == "Internal");
  for (const int code : {-1, CUBINERY_IO + 1, CUBINERY_INTERNAL - 1, CUBINERY_INTERNAL + 1}) {
    CHECK(std::string(cubinery_code_name(code)) == "Unknown");
  }
}

TEST_CASE("TheLibrarySaysWhatItIs", "[cpu]") {
  CHECK(cubinery_c_api_version() == CUBINERY_C_API_VERSION);
  CHECK(std::string(cubinery_version()) == CUBINERY_VERSION);
  std::string names;
  for (const std::string& name : known_architectures()) names += (names.empty() ? "" : ",") + name;
  CHECK(cubinery_architectures() == names);
  CHECK(cubinery_operators() == operators_json());
}

TEST_CASE("TheLastErrorIsThatOfTheThread", "[cpu]") {
  CHECK(refused(cubinery_options_create(nullptr)) == "options is NULL; accepted: a pointer");
  std::thread([] {
    CHECK(std::string(cubinery_last_error()).empty());
    CHECK(std::string(cubinery_last_error_log()).empty());
    refused(cubinery_context_create(nullptr, nullptr));
    CHECK(std::string(cubinery_last_error()).starts_with("context is NULL"));
  }).join();
  CHECK(std::string(cubinery_last_error()).starts_with("options is NULL"));
}

TEST_CASE("AGoodCallLeavesTheLastErrorAlone", "[cpu]") {
  refused(cubinery_options_create(nullptr));
  test::new_options();
  CHECK(std::string(cubinery_last_error()).starts_with("options is NULL"));
}

TEST_CASE("TheLogIsThatOfTheLastError", "[cpu]") {
  const auto fail = [](std::string log) {
    return capi::guarded([&] { return Status(Code::kCompileFailed, "m", std::move(log)); });
  };
  CHECK(fail("line 1") == CUBINERY_COMPILE_FAILED);
  CHECK(std::string(cubinery_last_error_log()) == "line 1");
  refused(cubinery_options_create(nullptr));
  CHECK(std::string(cubinery_last_error_log()).empty());
}

TEST_CASE("NoExceptionLeavesTheLibrary", "[cpu]") {
  const auto failed = [](auto error) {
    CHECK(capi::guarded([&]() -> Status { throw error; }) == CUBINERY_INTERNAL);
    CHECK(std::string(cubinery_last_error_log()).empty());
    return std::string(cubinery_last_error());
  };
  CHECK(failed(std::runtime_error("no luck")) == "internal error: no luck");
  CHECK(failed(7) == "internal error: an exception of unknown type");
  const std::string text = failed(std::runtime_error(std::string(1000, 'x')));
  CHECK(text.size() == 255);
  CHECK(text.ends_with("xxx"));
}

TEST_CASE("NothingIsDestroyedTwice", "[cpu]") {
  cubinery_options_destroy(nullptr);
  cubinery_context_destroy(nullptr);
  cubinery_decode_destroy(nullptr);
  cubinery_prefill_destroy(nullptr);
  cubinery_verify_destroy(nullptr);
  cubinery_commit_destroy(nullptr);
  cubinery_conv_destroy(nullptr);
  cubinery_free_text(nullptr);
}

}  // namespace
}  // namespace cubinery
