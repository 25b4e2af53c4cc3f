// Tuning through the C ABI, as far as it goes without a GPU.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/cache/temp_dir.h"
#include "tests/capi/handles.h"

namespace cubinery::tuning_test {
namespace {

using test::ContextHandle;
using test::new_options;
using test::OptionsHandle;
using test::refused;

constexpr const char* kShapes = R"([{"batch":8}])";

struct Bench {
  test::TempDir dir;
  OptionsHandle options = new_options();
  ContextHandle context = test::new_context(options, dir.path());

  int tune(const char* op, const char* problem, const char* shapes, const char* settings) const {
    return cubinery_tune(context.get(), op, problem, shapes, settings, nullptr, nullptr, nullptr);
  }
};

TEST_CASE("TuningNamesTheArgumentThatIsWrong", "[cpu]") {
  const Bench bench;
  const auto message = [&](const char* op, const char* problem, const char* shapes,
                           const char* settings) {
    return refused(bench.tune(op, problem, shapes, settings));
  };
  CHECK(refused(cubinery_tune(nullptr, "gdn_decode", "{}", kShapes, nullptr, nullptr, nullptr,
                              nullptr)) == "context is NULL; accepted: a pointer");
  CHECK(message(nullptr, "{}", kShapes, nullptr) == "op is NULL; accepted: a pointer");
  CHECK(message("gdn", "{}", kShapes, nullptr) ==
        "op = \"gdn\"; accepted: gdn_decode, gdn_prefill, gdn_verify, gdn_commit, gdn_conv");
  CHECK(message("gdn_decode", nullptr, kShapes, nullptr) == "problem is NULL; accepted: a pointer");
  CHECK(message("gdn_decode", R"({"key_dim":100})", kShapes, nullptr)
            .starts_with("gdn_decode: key_dim = 100; "));
  CHECK(message("gdn_decode", "{}", nullptr, nullptr) == "shapes is NULL; accepted: a pointer");
  CHECK(message("gdn_decode", "{}", "[", nullptr) == "shapes: not JSON at column 2");
  CHECK(message("gdn_decode", "{}", "{}", nullptr) == "shapes = {}; accepted: a JSON array");
  CHECK(message("gdn_decode", "{}", "[8]", nullptr) == "shapes[0] = 8; accepted: a JSON object");
  CHECK(message("gdn_decode", "{}", R"([{"batch":1},{"batch":"8"}])", nullptr) ==
        "shapes[1].batch = \"8\"; accepted: integers");
  CHECK(message("gdn_decode", "{}", R"([{"batch":9223372036854775808}])", nullptr) ==
        "shapes[0].batch = 9223372036854775808; accepted: integers");
}

// Whoever recurses overflows the stack.
TEST_CASE("DeeplyNestedTextIsRefused", "[cpu]") {
  const Bench bench;
  const std::string deep(1'000'000, '[');
  const std::string wrong = "arrays and objects more than 64 deep at column ";
  CHECK(refused(bench.tune("gdn_decode", deep.c_str(), kShapes, nullptr)) ==
        "gdn_decode: " + wrong + "65");
  const std::string shapes = R"([{"batch":)" + deep;
  CHECK(refused(bench.tune("gdn_decode", "{}", shapes.c_str(), nullptr)) ==
        "shapes: " + wrong + "73");
  const std::string settings = R"({"seed":)" + deep;
  CHECK(refused(bench.tune("gdn_decode", "{}", kShapes, settings.c_str())) ==
        "settings: " + wrong + "72");
  char* report = nullptr;
  CHECK(refused(cubinery_tuning_report(bench.dir.path().c_str(), settings.c_str(), &report)) ==
        "request: " + wrong + "72");
}

TEST_CASE("TuningNamesTheSettingThatIsWrong", "[cpu]") {
  const Bench bench;
  const auto message = [&](const char* settings) {
    return refused(bench.tune("gdn_decode", "{}", kShapes, settings));
  };
  CHECK(message("[]") == "settings = []; accepted: a JSON object");
  CHECK(message(R"({"seed":-1})") == "settings.seed = -1; accepted: integers from 0 up");
  CHECK(message(R"({"budget_ms":1.5})") ==
        "settings.budget_ms = 1.5; accepted: integers from 0 up");
  CHECK(message(R"({"directory":7})") == "settings.directory = 7; accepted: a string");
  CHECK(message(R"({"again":1})") == "settings.again = 1; accepted: true, false");
  CHECK(message(R"({"budget":1})") ==
        "settings has no field \"budget\"; accepted: budget_ms, exhaustive_up_to, seed, "
        "compile_threads, directory, again; did you mean budget_ms?");
}

TEST_CASE("TuningNeedsADevice", "[cpu]") {
  const Bench bench;
  char* summary = nullptr;
  const auto unused = [](const char*, void*) { return std::abort(), 0; };
  CHECK(cubinery_tune(bench.context.get(), "gdn_decode", "{}", kShapes, R"({"budget_ms":1000})",
                      unused, nullptr, &summary) == CUBINERY_UNSUPPORTED);
  CHECK(summary == nullptr);
  CHECK(cubinery_tune(bench.context.get(), "gdn_prefill", "{}", R"([{"tokens":512,"sequences":1}])",
                      nullptr, unused, nullptr, &summary) == CUBINERY_UNSUPPORTED);
  CHECK(cubinery_tune(bench.context.get(), "gdn_verify", "{}", R"([{"batch":8,"tokens_each":4}])",
                      nullptr, unused, nullptr, &summary) == CUBINERY_UNSUPPORTED);
  CHECK(!std::string(cubinery_last_error()).empty());
  CHECK(!std::filesystem::exists(bench.dir.path() + "/tuning"));
}

TEST_CASE("ReportsNameTheArgumentThatIsWrong", "[cpu]") {
  const test::TempDir dir;
  const auto message = [&](const char* request) {
    char* text = nullptr;
    const std::string error = refused(cubinery_tuning_report(dir.path().c_str(), request, &text));
    CHECK(text == nullptr);
    return error;
  };
  char* text = nullptr;
  CHECK(refused(cubinery_tuning_report(nullptr, nullptr, &text)) ==
        "directory is NULL; accepted: a pointer");
  CHECK(refused(cubinery_tuning_report("/", nullptr, nullptr)) ==
        "report is NULL; accepted: a pointer");
  CHECK(message(R"({"format":"html"})") ==
        "request.format = \"html\"; accepted: table, json, t4, kernel-tuner");
  CHECK(message(R"({"copy_rate":-1})") == "request.copy_rate = -1; accepted: numbers from 0 up");
  CHECK(message(R"({"shape":""})") ==
        "request has no field \"shape\"; accepted: format, op, bucket, setting, copy_rate");
  CHECK(message(nullptr) == "there are no settings");
}

TEST_CASE("ReportsAreTextOfTheFormatThatIsAskedFor", "[cpu]") {
  const std::string directory = CUBINERY_TEST_DIR "/data/tuning";
  char* text = nullptr;
  REQUIRE(cubinery_tuning_report(directory.c_str(), nullptr, &text) == CUBINERY_OK);
  const std::string table = test::taken(text);
  REQUIRE(cubinery_tuning_report(directory.c_str(), R"({"format":"json","op":"gdn_decode"})",
                                 &text) == CUBINERY_OK);
  const std::string document = test::taken(text);
  CHECK(document.starts_with("{"));
  CHECK(!table.starts_with("{"));
  CHECK(table.find("gdn_decode") != table.npos);
}

}  // namespace
}  // namespace cubinery::tuning_test
