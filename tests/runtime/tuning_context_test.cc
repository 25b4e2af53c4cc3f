// What contexts on the fake libcuda know about tuning.
#include "runtime/operator/tuning_context.h"

#include <filesystem>
#include <string>
#include <vector>

#include "results/record_file.h"
#include "results/shape.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/runtime/twice_template.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;
using test::context_of;
using test::FakeDriver;
using test::twice_spec;
using test::Workshop;

const PathKernels kTwice{{"", {"twice"}}};

// Offline: any NVRTC, and none is opened.
Options on_fake_gpu(Workshop& shop) {
  Options options = shop.options();
  options.device = 0;
  options.driver_path = CUBINERY_FAKE_DRIVER;
  options.offline = true;
  return options;
}

std::vector<TunedValue> threads(int count) {
  return {{.name = "threads", .value = std::to_string(count)}};
}

TuningSpace space() {
  TuningSpace space{.op = "twice", .problem = "dtype=f32", .configurations = {}};
  for (const int count : {32, 64, 128}) {
    space.configurations.push_back({threads(count), {twice_spec(count)}});
  }
  return space;
}

// What tuning on this context would write.
TuningResult result_of(const Context& context, int chosen, std::int64_t rows = 64) {
  TuningResult result{};
  Setting& setting = result.setting;
  setting.op = "twice";
  setting.problem = "dtype=f32";
  setting.shape = setting.features = {{"rows", rows}};
  setting.bucket = bucket_of(setting.features);
  const Result<GpuIdentity> gpu = gpu_identity(context);
  REQUIRE(gpu);
  setting.gpu = *gpu;
  const Toolchain toolchain = toolchain_of(context, kTwice);
  setting.nvrtc = toolchain.nvrtc;
  result.templates = toolchain.templates.at("");
  result.configuration = threads(chosen);
  result.otherwise = threads(32);
  result.ms.median = 0.1;
  result.otherwise_ms.median = 0.2;
  return result;
}

// Writes lines as the results of "twice" of a cache directory; the file's path.
std::string write_results(const std::string& cache_dir, const std::string& lines) {
  const std::string path = results_path(cache_dir + "/tuning", "twice");
  fs::remove(path);
  REQUIRE(append_lines(path, lines).ok());
  return path;
}

// The chosen threads of all results that the context has.
std::vector<std::string> results_in(const Context& context) {
  std::vector<std::string> chosen;
  for (const TuningResult& result : tuning_results(context, {.op = "twice"})) {
    chosen.push_back(result.configuration.at(0).value);
  }
  return chosen;
}
using Chosen = std::vector<std::string>;

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
  return times;
}

TEST_CASE("AGpuIsWhatItsAttributesSay", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->major = 8;
  fake->minor = 6;
  fake->sm_count = 84;
  fake->l2_bytes = 6 << 20;
  fake->shared_bytes_per_sm = 100 << 10;
  fake->name = "NVIDIA RTX A6000";
  Workshop shop;
  Options options = on_fake_gpu(shop);
  options.arch.clear();
  const Result<GpuIdentity> gpu = gpu_identity(context_of(options));
  REQUIRE(gpu);
  CHECK(gpu->arch == "sm_86");
  CHECK(gpu->capability == "8.6");
  CHECK(gpu->sm_count == 84);
  CHECK(gpu->l2_bytes == 6 << 20);
  CHECK(gpu->shared_bytes_per_sm == 100 << 10);
  CHECK(gpu->mig.empty());
  CHECK(gpu->name == "NVIDIA RTX A6000");
}

TEST_CASE("PartsOfAGpuHaveTheirProfile", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const auto profile = [&](const char* name) {
    fake->name = name;
    const Result<GpuIdentity> gpu = gpu_identity(context_of(on_fake_gpu(shop)));
    return gpu ? gpu->mig : "?";
  };
  CHECK(profile("NVIDIA A100-SXM4-40GB MIG 1g.5gb") == "1g.5gb");
  CHECK(profile("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb") == "1c.3g.40gb");
  CHECK(profile("NVIDIA MIGHTY") == "");
}

TEST_CASE("WithoutADeviceThereIsNoGpuToNameOrToChooseFor", "[cpu]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  const Result<GpuIdentity> gpu = gpu_identity(context);
  REQUIRE_FALSE(gpu);
  CHECK(gpu.error().code() == Code::kUnsupported);
  const Choice choice = choose(context, space(), {{"rows", 64}}, 2);
  CHECK(choice.index == 2);
  CHECK(choice.rung == Rung::kDefault);
  CHECK(choice.why == "tuning: a context with kNoDevice has no GPU");
}

TEST_CASE("ADriverThatDoesNotSayIsAnError", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->get_attribute = CUDA_ERROR_INVALID_IMAGE;
  Workshop shop;
  const Result<GpuIdentity> gpu = gpu_identity(context_of(on_fake_gpu(shop)));
  REQUIRE_FALSE(gpu);
  CHECK(gpu.error().code() == Code::kDriver);
}

TEST_CASE("AToolchainIsTheTextOfItsKernels", "[cpu]") {
  Workshop shop;
  shop.write("other/other.cu", "// another kernel\n");
  shop.write("common/unused.h", "// of no kernel\n");
  const Context context = context_of(shop.options());
  const auto templates = [&](const std::vector<std::string>& kernels) {
    return toolchain_of(context, {{"", kernels}}).templates.at("");
  };
  const std::vector<std::string> twice{"twice"};
  const std::string before = templates(twice);
  CHECK(before.size() == 32);
  CHECK(templates({"twice", "twice"}) == before);
  CHECK(templates({"other", "twice"}) == templates({"twice", "other"}));
  CHECK(templates({"other", "twice"}) != before);
  CHECK(templates({"missing"}) != templates({}));

  shop.write("other/other.cu", "// another kernel, changed\n");
  shop.write("common/unused.h", "// of no kernel, changed\n");
  CHECK(templates(twice) == before);
  shop.write("twice/key.h",
             "\n\n" + std::string(test::kTwiceKey) + "  // a comment\n/* two\nlines */\n");
  CHECK(templates(twice) == before);
  shop.write("twice/key.h", std::string(test::kTwiceKey) + "struct Changed {};\n");
  CHECK(templates(twice) != before);
}

TEST_CASE("AnOfflineToolchainIsOfAnyCompiler", "[cpu]") {
  Workshop shop;
  Options options = shop.options();
  options.offline = true;
  CHECK(toolchain_of(context_of(options), kTwice).nvrtc.empty());
  options.offline = false;
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  CHECK(toolchain_of(context_of(options), kTwice).nvrtc.empty());
}

TEST_CASE("ResultsOfOneCompilerNeedNone", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const std::string nvrtc = shop.path("libnvrtc.so.99");
  fs::copy_file(CUBINERY_FAKE_NVRTC_99, nvrtc);
  Options options = on_fake_gpu(shop);
  TuningResult result = result_of(context_of(options), 64);
  result.setting.nvrtc = "13.0.88";
  std::string lines = to_line(result);
  result.setting.nvrtc = "13.0.99";
  const bool are_several = GENERATE(false, true);
  if (are_several) lines += to_line(result);
  write_results(shop.cache(), lines);
  options.offline = false;
  options.nvrtc_path = nvrtc;
  const Context context = context_of(options);
  CHECK(choose(context, space(), {{"rows", 64}}, 1).configuration == "threads=64");
  CHECK((test::read_bytes("/proc/self/maps").find(nvrtc) != std::string::npos) == are_several);
}

TEST_CASE("ResultsOfTheCacheDirectoryComeBeforeThoseOfItsLayers", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  Options options = on_fake_gpu(shop);
  options.cache_layers = {shop.path("first"), shop.path("second"), shop.path("absent")};
  const Context context = context_of(options);
  CHECK(tuning_directory(context) == shop.cache() + "/tuning");
  CHECK(results_in(context).empty());
  write_results(shop.path("second"), to_line(result_of(context, 128)));
  CHECK(results_in(context) == Chosen{"128"});
  write_results(shop.path("first"), to_line(result_of(context, 64)));
  CHECK(results_in(context) == Chosen{"64", "128"});
  write_results(shop.cache(), to_line(result_of(context, 32)));
  CHECK(results_in(context) == Chosen{"32", "64", "128"});

  const Choice choice = choose(context, space(), {{"rows", 64}}, 1);
  CHECK(choice.index == 0);
  CHECK(choice.rung == Rung::kExact);
  CHECK(choice.why == "measured on Fake GPU for rows=64: the default is the fastest (100.0 us)");
  CHECK_FALSE(shop.log().has("tuning"));
}

TEST_CASE("AFileIsReadAgainWhenItHasChanged", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  const std::string path = write_results(shop.cache(), to_line(result_of(context, 32)));
  CHECK(results_in(context) == Chosen{"32"});
  // Unchanged by all that one can see: the bytes are another's, the size and the time are not.
  const fs::file_time_type then = fs::last_write_time(path);
  write_results(shop.cache(), to_line(result_of(context, 64)));
  fs::last_write_time(path, then);
  CHECK(results_in(context) == Chosen{"32"});
  fs::last_write_time(path, then + std::chrono::seconds(1));
  CHECK(results_in(context) == Chosen{"64"});
  // Tuned meanwhile, by this process or another one.
  REQUIRE(append_lines(path, to_line(result_of(context, 128, 4096))).ok());
  CHECK(results_in(context) == Chosen{"64", "128"});
  fs::remove(path);
  CHECK(results_in(context).empty());
}

TEST_CASE("OnlyResultsThatMayAnswerAreParsed", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  const auto line_of = [&](int threads, const char* fixed) {
    TuningResult result = result_of(context, threads);
    result.setting.problem = fixed;
    return to_line(result);
  };
  // The last of another problem is damaged, which nobody needs to know who does not ask for it.
  std::string damaged = line_of(128, "dtype=f16;mode=c");
  damaged.replace(damaged.find("\"ms\""), 4, "\"mz\"");
  const std::string path = write_results(
      shop.cache(), line_of(32, "dtype=f32;mode=a") + line_of(64, "dtype=f32;mode=b") +
                        line_of(96, "dtype=f16;mode=b") + damaged);
  const auto answering = [&](const char* fixed, std::vector<std::string> outline) {
    const Wanted wanted{.op = "twice", .problem = fixed, .outline = std::move(outline)};
    std::vector<std::string> chosen;
    for (const TuningResult& result : tuning_results(context, wanted)) {
      chosen.push_back(result.configuration.at(0).value);
    }
    return chosen;
  };
  CHECK(answering("dtype=f32;mode=b", {}) == Chosen{"64"});
  CHECK(answering("dtype=f32;mode=b", {"dtype"}) == Chosen{"32", "64"});
  CHECK(answering("dtype=f32;mode=d", {"dtype"}) == Chosen{"32", "64"});
  CHECK(answering("dtype=f32;mode=d", {}).empty());
  CHECK_FALSE(shop.log().has("tuning"));
  CHECK(answering("dtype=f16;mode=b", {"dtype"}) == Chosen{"96"});
  CHECK(shop.log().has(path + ":4: "));
}

TEST_CASE("DamagedLinesAreNamedAndPassedOver", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  Options options = on_fake_gpu(shop);
  std::string text;
  options.log = [&](LogLevel level, std::string_view line) {
    CHECK(level == LogLevel::kWarning);
    text.append(line).append("\n");
  };
  const Context context = context_of(options);
  const std::string path =
      write_results(shop.cache(), to_line(result_of(context, 32)) + "{\"result\":1,\n" +
                                      to_line(result_of(context, 64, 4096)));
  CHECK(results_in(context) == Chosen{"32", "64"});
  CHECK(count(text, "\n") == 1);
  CHECK(count(text, path + ":2: ") == 1);
  results_in(context);
  CHECK(count(text, "\n") == 1);  // once each
}

TEST_CASE("ResultsThatOthersCouldHaveWrittenAreNotRead", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  Options options = on_fake_gpu(shop);
  std::string text;
  options.log = [&](LogLevel, std::string_view line) { text.append(line).append("\n"); };
  const Context context = context_of(options);
  const std::string path = write_results(shop.cache(), to_line(result_of(context, 32)));
  const std::string open_to_others =
      std::vector{shop.cache(), shop.cache() + "/tuning", path}.at(GENERATE(0u, 1u, 2u));
  INFO(open_to_others);
  fs::permissions(open_to_others, fs::perms::others_write, fs::perm_options::add);
  CHECK(results_in(context).empty());
  CHECK(results_in(context).empty());
  CHECK(count(text, "\n") == 1);
  CHECK(count(text, open_to_others + " can be written by other users") == 1);

  options.trust_shared_dirs = true;
  CHECK(results_in(context_of(options)) == Chosen{"32"});
}

TEST_CASE("AnUnreadableFileIsAWarning", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  const std::string path = results_path(shop.cache() + "/tuning", "twice");
  fs::create_directories(path);
  CHECK(results_in(context).empty());
  CHECK(shop.log().has("tuning: cannot read " + path));
}

TEST_CASE("WithoutADiskCacheNoFileIsRead", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  Options options = on_fake_gpu(shop);
  write_results(shop.cache(), to_line(result_of(context_of(options), 32)));
  options.use_disk_cache = false;
  const Context context = context_of(options);
  CHECK(tuning_directory(context).empty());
  CHECK(results_in(context).empty());
  CHECK(choose(context, space(), {{"rows", 64}}, 1).why ==
        "not measured for this problem on this GPU");
}

TEST_CASE("OnlyNamesOfOperatorsBecomeNamesOfFiles", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  write_results(shop.cache(), to_line(result_of(context, 32)));
  CHECK(tuning_results(context, {.op = "../tuning/twice"}).empty());
  CHECK(tuning_results(context, {.op = ""}).empty());
  CHECK(tuning_results(context, {.op = "twic"}).empty());
}

TEST_CASE("AChoiceIsOneOfTheSpace", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  const auto why = [&](const TuningResult& result, const TuningSpace& in) {
    write_results(shop.cache(), to_line(result) + std::string(result.configuration.size(), '\n'));
    return choose(context_of(on_fake_gpu(shop)), in, {{"rows", 64}}, 0).why;
  };
  const std::string used =
      "measured on Fake GPU for rows=64: 50.0 % faster than the default (100.0 against 200.0 us)";
  const std::string unusable = "1 result is of configurations that cannot be used here";
  CHECK(why(result_of(context, 256), space()) == unusable);
  CHECK(why(result_of(context, 128), space()) == used);
  TuningSpace marked = space();
  for (Configuration& each : marked.configurations) each.values[0].changes_bits = true;
  CHECK(why(result_of(context, 128), marked) == unusable);
  TuningSpace large = space();
  large.configurations[2].kernels[0].shared_bytes = 1 << 20;
  CHECK(why(result_of(context, 128), large) == unusable);
}

TEST_CASE("AnOfflineContextTakesResultsOfAnyCompiler", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  TuningResult result = result_of(context, 128);
  result.setting.nvrtc = "99.1.2";
  write_results(shop.cache(), to_line(result));
  CHECK(choose(context, space(), {{"rows", 64}}, 0).index == 2);
}

TEST_CASE("ResultsOfOtherCodeAnswerAndSaySo", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  write_results(shop.cache(),
                to_line(result_of(context, 128)) + to_line(result_of(context, 256, 1 << 20)));
  shop.write("twice/key.h", std::string(test::kTwiceKey) + "struct Changed {};\n");
  const Choice choice = choose(context, space(), {{"rows", 64}}, 0);
  CHECK(choice.index == 2);
  CHECK(choice.rung == Rung::kStale);
  CHECK(choice.why ==
        "measured on Fake GPU for rows=64: 50.0 % faster than the default (100.0 against 200.0 "
        "us); stale: the kernels' templates have changed");
  // One that is no configuration any more.
  const Choice other = choose(context, space(), {{"rows", 1 << 20}}, 1);
  CHECK(other.index == 1);
  CHECK(other.why ==
        "no result within a factor of 8; 1 result is stale: the kernels' templates have changed; 1 "
        "result is of configurations that cannot be used here");
}

TEST_CASE("ResultsInsideTheLibraryAreGood", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Workshop shop;
  const Context context = context_of(on_fake_gpu(shop));
  for (const char* op : {"gdn_decode", "gdn_prefill"}) {
    for (const TuningResult& result : tuning_results(context, {.op = op})) {
      CHECK(result.setting.op == op);
      CHECK_FALSE(result.configuration.empty());
    }
  }
  CHECK_FALSE(shop.log().has("tuning"));
}

}  // namespace
}  // namespace cubinery
