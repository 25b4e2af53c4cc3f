// Compiling and explaining through the C ABI, with NVRTC and without a GPU.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cubinery/gdn.h"
#include "tests/cache/temp_dir.h"
#include "tests/capi/cancel.h"
#include "tests/capi/handles.h"

namespace cubinery {
namespace {

using nlohmann::json;
using test::ContextHandle;
using test::OptionsHandle;
using test::taken;

constexpr const char* kProblem = R"({"key_dim":16,"value_dim":16})";

json compile(const ContextHandle& context) {
  char* report = nullptr;
  REQUIRE(cubinery_context_compile(context.get(), "gdn_decode", kProblem, &report) == CUBINERY_OK);
  return json::parse(taken(report));
}

json explain(const ContextHandle& context) {
  char* report = nullptr;
  REQUIRE(cubinery_context_explain(context.get(), "gdn_decode", kProblem, &report) == CUBINERY_OK);
  return json::parse(taken(report));
}

TEST_CASE("CompiledKernelsAreReportedAndExplained", "[nvrtc]") {
  const test::TempDir dir;
  const OptionsHandle options = test::new_options();
  const ContextHandle context = test::new_context(options, dir.path());
  const auto specs = gdn::DecodeProblem{.key_dim = 16, .value_dim = 16}.kernels("sm_90a").value();

  const json missing = explain(context);
  REQUIRE(missing.size() == specs.size());
  CHECK(missing[0]["cached"] == false);

  char* version = nullptr;
  REQUIRE(cubinery_context_nvrtc_version(context.get(), &version) == CUBINERY_OK);
  const std::string nvrtc = taken(version);
  const json compiled = compile(context);
  REQUIRE(compiled.size() == specs.size());
  const json cached = explain(context);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const json& made = compiled[i];
    CHECK(made["kernel"] == "gdn_decode");
    CHECK(made["canonical"] == specs[i].canonical);
    CHECK(made["arch"] == "sm_90a");
    CHECK(made["source"] == "compiled");
    CHECK(std::filesystem::exists(made["path"].get<std::string>()));
    CHECK(made["nvrtc"] == nvrtc);
    CHECK(made["registers"] > 0);
    CHECK(made["spill_store_bytes"] == 0);
    CHECK(made["spill_load_bytes"] == 0);
    CHECK(made["compile_ms"] > 0);
    CHECK(made.size() == 10);

    const json& found = cached[i];
    CHECK(found["cached"] == true);
    CHECK(found["path"] == made["path"]);
    CHECK(found["canonical"] == specs[i].canonical);
    CHECK(found["identity"].get<std::string>().find(specs[i].canonical) != std::string::npos);
    CHECK(found["source_path"] == "<embedded>/gdn_decode/gdn_decode.cu");
    CHECK(found["options"].size() > 1);
    CHECK(found["nearest_path"] == "");
    CHECK(found["differences"].empty());
    CHECK(found.size() == 10 - 1);
  }
  CHECK(compile(test::new_context(options, dir.path()))[0]["source"] == "disk");

  CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
  REQUIRE(cubinery_context_stats(context.get(), &stats) == CUBINERY_OK);
  CHECK(stats.compiles == specs.size());
}

TEST_CASE("AListOfProblemsIsCompiledAtOnce", "[nvrtc]") {
  const test::TempDir dir;
  const OptionsHandle options = test::new_options();
  const ContextHandle context = test::new_context(options, dir.path());
  const std::string decode = R"({"op":"gdn_decode","problem":)" + std::string(kProblem) + "}";
  const std::string problems =
      "[" + decode + R"(,{"op":"gdn_conv","problem":{"width":2},"form":"conv"},)" +
      R"({"op":"gdn_conv","problem":{"width":9},"left_out":"why"},)" + decode + "]";
  char* text = nullptr;
  REQUIRE(cubinery_context_compile_problems(context.get(), problems.c_str(), &text) == CUBINERY_OK);
  const json compiled = json::parse(taken(text));
  const auto decodes = gdn::DecodeProblem{.key_dim = 16, .value_dim = 16}.kernels("sm_90a").value();
  const auto convs = gdn::ConvProblem{.width = 2}.kernels("sm_90a").value();
  REQUIRE(compiled.size() == decodes.size() + convs.size());
  for (std::size_t i = 0; i < compiled.size(); ++i) {
    const bool is_decode = i < decodes.size();
    const KernelSpec& spec = is_decode ? decodes[i] : convs[i - decodes.size()];
    CHECK(compiled[i]["canonical"] == spec.canonical);
    CHECK(compiled[i]["source"] == "compiled");
  }
  REQUIRE(cubinery_context_compile_problems(context.get(), problems.c_str(), nullptr) ==
          CUBINERY_OK);
}

TEST_CASE("AFailedCompilationHasALog", "[nvrtc]") {
  const test::TempDir dir;
  const std::string templates = dir.path() + "/templates";
  std::filesystem::create_directories(templates + "/gdn_decode");
  test::write_bytes(templates + "/gdn_decode/gdn_decode.cu", "this is no CUDA\n");
  test::write_bytes(templates + "/gdn_decode/key.h", "\n");
  const OptionsHandle options = test::new_options();
  test::set(options, "template_dirs", templates);
  const ContextHandle context = test::new_context(options, dir.path() + "/cache");
  CHECK(cubinery_context_compile(context.get(), "gdn_decode", kProblem, nullptr) ==
        CUBINERY_COMPILE_FAILED);
  CHECK(std::string(cubinery_last_error_log()).find("gdn_decode.cu(1)") != std::string::npos);
  const std::string error = cubinery_last_error();
  CHECK(error.starts_with("gdn_decode: compile failed on sm_90a"));
  CHECK(error.find("key: gdn_decode;key_dim=16;") != std::string::npos);
}

TEST_CASE("APathThatIsNotUtf8IsReportedAllTheSame", "[nvrtc]") {
  const test::TempDir dir;
  const OptionsHandle options = test::new_options();
  const ContextHandle context = test::new_context(options, dir.path() + "/\xff");
  CHECK(compile(context)[0]["path"].get<std::string>().find("\xef\xbf\xbd") != std::string::npos);
}

TEST_CASE("TheLogHearsOfACacheThatCannotBeWritten", "[nvrtc]") {
  const test::TempDir dir;
  test::write_bytes(dir.path() + "/file", "");
  const OptionsHandle options = test::new_options();
  std::string told;
  const CubineryLog log = [](int level, const char* message, void* user) {
    if (level == 1) *static_cast<std::string*>(user) += message;
  };
  REQUIRE(cubinery_options_set_log(options.get(), log, &told) == CUBINERY_OK);
  const ContextHandle context = test::new_context(options, dir.path() + "/file/cache");
  CHECK(compile(context)[0]["path"] == "");
  CHECK(told.find(dir.path() + "/file") != std::string::npos);
}

// A callback is a place where the thread may be cancelled, with frames of the library below.
TEST_CASE("AThreadIsNotCancelledInsideACompilation", "[nvrtc]") {
  const test::TempDir dir;
  test::write_bytes(dir.path() + "/file", "");
  const OptionsHandle options = test::new_options();
  const CubineryLog log = [](int, const char*, void*) {
    test::cancel_this_thread();
    pthread_testcancel();
  };
  REQUIRE(cubinery_options_set_log(options.get(), log, nullptr) == CUBINERY_OK);
  const ContextHandle context = test::new_context(options, dir.path() + "/file/cache");
  std::string path = "none";
  test::run_cancelled([&] { path = compile(context)[0]["path"]; });
  CHECK(path == "");
  CHECK(compile(context)[0]["path"] == "");
}

}  // namespace
}  // namespace cubinery
