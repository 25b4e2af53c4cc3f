// Contexts without a GPU: what happens when the compiler, or a good cache entry, is not there.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cache/cubin_note.h"
#include "cache/paths.h"
#include "cache/store.h"
#include "cubinery/context.h"
#include "runtime/jit/context_state.h"
#include "runtime/jit/get_kernels.h"
#include "runtime/jit/kernel_info.h"
#include "tests/cache/child.h"
#include "tests/cache/small_stack.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/runtime/cached_kernel.h"
#include "tests/runtime/twice_template.h"

namespace cubinery {
namespace {

using test::context_of;
using test::twice_spec;
using test::Workshop;

// Where the kernel came from, or the code of the error: "disk", "NotCached".
std::string outcome(const Context& context, const KernelSpec& spec = twice_spec()) {
  const Result<CompiledKernel> kernel = context.compile(spec);
  return kernel ? to_string(kernel->source) : to_string(kernel.error().code());
}

std::string outcome(Options options) { return outcome(context_of(std::move(options))); }

Options offline(Workshop& shop) {
  Options options = shop.options();
  options.offline = true;
  return options;
}

// The path of a fresh entry.
std::string filled(Workshop& shop, const KernelSpec& spec = twice_spec()) {
  const Result<CompiledKernel> kernel = context_of(shop.options()).compile(spec);
  REQUIRE(kernel);
  return kernel->path;
}

TEST_CASE("AMissingNvrtcSaysWhereItLooked", "[cpu]") {
  Workshop shop;
  Options options = shop.options();
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  const Context context = context_of(options);
  const Result<CompiledKernel> kernel = context.compile(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kUnsupported);
  CHECK(kernel.error().message().starts_with(
      "NVRTC: cannot open any of: /nowhere/libnvrtc.so (/nowhere/libnvrtc.so: "));
  CHECK(kernel.error().message().ends_with(
      "or name libnvrtc.so in Options::nvrtc_path (CUBINERY_NVRTC)"));
  const Result<std::string> version = context.nvrtc_version();
  REQUIRE_FALSE(version);
  CHECK(version.error().message() == kernel.error().message());
  CHECK(context.stats().misses == 1);
  CHECK(context.stats().compiles == 0);
}

TEST_CASE("AnotherLibraryIsNoNvrtc", "[cpu]") {
  Workshop shop;
  Options options = shop.options();
  options.nvrtc_path = "libm.so.6";
  const Result<CompiledKernel> kernel = context_of(options).compile(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kUnsupported);
  CHECK(kernel.error().message().starts_with("NVRTC: libm.so.6 lacks nvrtcVersion; needs NVRTC "));
}

// A stopped child that holds the locks of these kernels.
pid_t start_stopped(const std::string& dir, const std::vector<Identity>& wanted) {
  const test::Pipe ready;
  const pid_t child = test::start_child([&] {
    Store store({.dir = dir});
    std::vector<std::unique_ptr<MakeLock>> locks;
    locks.reserve(wanted.size());
    for (const Identity& identity : wanted) locks.push_back(store.lock(identity));
    if (!ready.send()) return 1;
    for (;;) ::pause();
  });
  return child > 0 && ready.receive() && ::kill(child, SIGSTOP) == 0 ? child : -1;
}

TEST_CASE("TheKernelsOfAnOperatorWaitTogether", "[nvrtc]") {
  Workshop shop;
  Options options = shop.options();
  options.lock_wait = std::chrono::milliseconds(1100);  // what is told begins after a second
  const Context context = context_of(options);
  std::vector<KernelSpec> specs;
  std::vector<Identity> wanted;
  for (const int threads : {32, 64, 96}) {
    specs.push_back(twice_spec(threads));
    wanted.push_back(test::identity_of(context, specs.back()));
  }
  const std::vector<pid_t> holders = {start_stopped(shop.cache(), {wanted[0], wanted[1]}),
                                      start_stopped(shop.cache(), {wanted[2]})};
  const Result<std::vector<CompiledKernel>> kernels = compile_kernels(context, specs);
  for (const pid_t holder : holders) test::kill_child(holder);
  REQUIRE(kernels);
  for (const CompiledKernel& kernel : *kernels) CHECK(kernel.source == Source::kCompiled);
  CHECK(shop.log().has("gave up waiting for process "));
}

// Contexts, NVRTC (which alone takes more than this), the cache and what is found in it again.
TEST_CASE("KernelsAreMadeAndFoundOnASmallStack", "[nvrtc]") {
  Workshop shop;
  std::vector<std::string> outcomes;
  const auto use = [&](Options options) {
    const Result<Context> context = Context::create(std::move(options));
    if (!context) return (void)outcomes.emplace_back(context.error().message());
    const Result<CompiledKernel> kernel = context->compile(twice_spec());
    outcomes.emplace_back(kernel ? to_string(kernel->source) : kernel.error().message());
    const Result<Explanation> explanation = context->explain(twice_spec(32));
    outcomes.emplace_back(explanation && !explanation->differences.empty() ? "explained" : "not");
  };
  REQUIRE(test::on_small_stack([&] {
    use(shop.options());
    use(offline(shop));
  }));
  CHECK(outcomes == std::vector<std::string>{"compiled", "explained", "disk", "explained"});
}

TEST_CASE("AFilledCacheNeedsNoNvrtc", "[nvrtc]") {
  Workshop shop;
  filled(shop);
  Options options = shop.options();
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  const Context context = context_of(options);
  CHECK(outcome(context) == "disk");
  CHECK(outcome(context) == "memory");
  CHECK(outcome(context, twice_spec(32)) == "Unsupported");
}

// A compiler of one's own, and whether it has been opened.
class OwnNvrtc {
 public:
  OwnNvrtc() : path_(dir_.path() + "/libnvrtc.so.99") {
    std::filesystem::copy_file(CUBINERY_FAKE_NVRTC_99, path_);
  }
  const std::string& path() const { return path_; }
  bool is_open() const {
    return test::read_bytes("/proc/self/maps").find(path_) != std::string::npos;
  }

 private:
  const test::TempDir dir_;
  const std::string path_;
};

// A good entry, and one of another version that cannot be used.
std::string stored(Workshop& shop, const std::string& dir) {
  return test::store_trivial(context_of(offline(shop)), twice_spec(), dir);
}
void stored_of_other_version(Workshop& shop, const std::string& dir) {
  Identity identity = test::identity_of(context_of(offline(shop)), twice_spec());
  identity.nvrtc = "99.9.9";
  Store store({.dir = dir});
  REQUIRE(store.publish({.identity = identity,
                         .metadata = metadata_json({.registers = 7, .log = {}}),
                         .cubin = test::trivial_cubin()}));
}

TEST_CASE("NoCompilerIsLookedForWhereTheCacheHasAll", "[cpu]") {
  Workshop shop;
  const OwnNvrtc nvrtc;
  Options options = shop.options();
  options.nvrtc_path = nvrtc.path();
  options.offline = GENERATE(false, true);
  const bool in_layer = GENERATE(false, true);
  if (in_layer) options.cache_layers = {shop.path("layer")};
  REQUIRE_FALSE(stored(shop, in_layer ? shop.path("layer") : shop.cache()).empty());
  const Context context = context_of(options);
  CHECK(outcome(context) == "disk");
  CHECK(outcome(context) == "memory");
  CHECK(context.explain(twice_spec())->cached);
  CHECK_FALSE(nvrtc.is_open());
  // It may have come since the directory was last listed.
  CHECK(outcome(context, twice_spec(32)) == (options.offline ? "NotCached" : "Unsupported"));
  CHECK(nvrtc.is_open() == !options.offline);
}

TEST_CASE("AnEntryThatHasComeSinceNeedsNoCompiler", "[cpu]") {
  Workshop shop;
  const OwnNvrtc nvrtc;
  Options options = shop.options();
  options.nvrtc_path = nvrtc.path();
  REQUIRE_FALSE(stored(shop, shop.cache()).empty());
  const Context context = context_of(options);
  CHECK(outcome(context) == "disk");
  const KernelSpec later = twice_spec(128);
  REQUIRE_FALSE(test::store_trivial(context_of(offline(shop)), later, shop.cache()).empty());
  CHECK(outcome(context, later) == "disk");
  CHECK_FALSE(nvrtc.is_open());
}

TEST_CASE("OfSeveralVersionsTheCompilersOwnIsTaken", "[cpu]") {
  Workshop shop;
  const OwnNvrtc nvrtc;
  const std::string good = stored(shop, shop.cache());
  const bool in_layer = GENERATE(false, true);
  stored_of_other_version(shop, in_layer ? shop.path("layer") : shop.cache());
  Options options = shop.options();
  options.cache_layers = {shop.path("layer")};
  options.nvrtc_path = nvrtc.path();
  const Context context = context_of(options);
  // It cannot be had: then any version will do.
  const Result<CompiledKernel> kernel = context.compile(twice_spec());
  REQUIRE(kernel);
  CHECK(kernel->path == good);
  CHECK(nvrtc.is_open());
}

TEST_CASE("TheEntryOfTheOpenCompilersVersionIsTaken", "[nvrtc]") {
  Workshop shop;
  const std::string good = filled(shop);
  stored_of_other_version(shop, shop.cache());
  const Context context = context_of(shop.options());
  const Result<CompiledKernel> kernel = context.compile(twice_spec());
  REQUIRE(kernel);
  CHECK(kernel->path == good);
  CHECK(context.stats().damaged == 0);  // the other, of a higher version, was not touched
  // Of another version alone: whoever has opened his compiler has no use for it.
  Workshop other;
  stored_of_other_version(other, other.cache());
  const Context open = context_of(other.options());
  REQUIRE(open.nvrtc_version());
  CHECK(outcome(open) == "compiled");
  CHECK(open.stats().damaged == 0);
}

TEST_CASE("OfflineAFilledCacheIsEnough", "[nvrtc]") {
  Workshop shop;
  filled(shop);
  const Context context = context_of(offline(shop));
  CHECK(outcome(context) == "disk");
  const Result<std::string> version = context.nvrtc_version();
  REQUIRE_FALSE(version);
  CHECK(version.error().code() == Code::kUnsupported);
  CHECK(version.error().message() == "NVRTC: not opened, the context is offline");
}

TEST_CASE("OfflineAnEmptyCacheSaysWhereItLooked", "[cpu]") {
  Workshop shop;
  Options options = offline(shop);
  options.cache_layers = {"/layer/a", "/layer/b"};
  const Context context = context_of(options);
  const Result<CompiledKernel> kernel = context.compile(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kNotCached);
  CHECK(kernel.error().message() ==
        "not in the cache and the context is offline: kernel twice for sm_90a; fill the cache by "
        "compile() in a context that is not offline; looked in [" +
            shop.cache() + ", /layer/a, /layer/b]; key: twice;threads=64");
  CHECK(context.stats().misses == 1);
}

TEST_CASE("OfflineWithoutADiskCacheNothingIsFound", "[cpu]") {
  Workshop shop;
  Options options = offline(shop);
  options.use_disk_cache = false;
  CHECK(outcome(options) == "NotCached");
}

TEST_CASE("OfflineTheNearestEntryIsCompared", "[nvrtc]") {
  Workshop shop;
  const std::string path = filled(shop);
  const auto says = [&](const Options& options, const std::string& text) {
    const Result<CompiledKernel> kernel = context_of(options).compile(twice_spec(128));
    REQUIRE_FALSE(kernel);
    INFO(kernel.error().message());
    CHECK(kernel.error().message().find("; the nearest entry differs in " + text + "; fill ") !=
          std::string_view::npos);
  };
  says(offline(shop), "threads: 64 -> 128");
  Options options = offline(shop);
  options.arch = "sm_80";
  says(options, "threads: 64 -> 128, arch: sm_90a -> sm_80");

  // The comparison reads the front of an entry and leaves the rest alone.
  std::filesystem::resize_file(path, 4000);
  says(offline(shop), "threads: 64 -> 128");
}

TEST_CASE("OfflineAnEntryThatCannotBeUsedIsNamed", "[nvrtc]") {
  Workshop shop;
  const std::string path = filled(shop);
  std::filesystem::resize_file(path, 4000);
  const Result<CompiledKernel> kernel = context_of(offline(shop)).compile(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kNotCached);
  CHECK(kernel.error().message().find("; " + path + " cannot be used, cubinery cache verify ") !=
        std::string_view::npos);
}

TEST_CASE("OfflineAMissOfTheLibrarysOwnNamesTheCommand", "[cpu]") {
  Workshop shop;
  Options options = offline(shop);
  KernelSpec spec = twice_spec();
  spec.kernel = "gdn_decode";
  const auto message = [&](const Options& of) {
    const Result<CompiledKernel> kernel = context_of(of).compile(spec);
    return kernel ? std::string() : std::string(kernel.error().message());
  };
  const std::string command =
      "; fill the cache with cubinery prewarm --arch sm_90a --cache-dir " + shop.cache();
  const std::string key = "; key: " + spec.canonical;
  options.template_dirs.clear();
  CHECK(message(options).ends_with(command +
                                   " and --hf-config FILE or --manifest FILE; looked in [" +
                                   shop.cache() + "]" + key));
  options.use_disk_cache = false;
  CHECK(message(options).ends_with("; the context has no cache on disk; looked in []" + key));
}

TEST_CASE("OfflineAnEditedTemplateIsNotCached", "[nvrtc]") {
  Workshop shop;
  filled(shop);
  shop.write("twice/twice.cu", "// changed\n");
  const Result<CompiledKernel> kernel = context_of(offline(shop)).compile(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kNotCached);
  CHECK(kernel.error().message().find("; the nearest entry was made by another version of cubinery "
                                      "or another template; ") != std::string::npos);
}

TEST_CASE("ADamagedEntryIsReplaced", "[nvrtc]") {
  Workshop shop;
  const std::string path = filled(shop);
  const std::string good = test::read_bytes(path);
  for (const std::size_t at : {std::size_t{0}, std::size_t{30}, good.size() / 2, good.size() - 1}) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    test::write_bytes(path, bytes);
    const Context context = context_of(shop.options());
    CHECK(outcome(context) == "compiled");
    CHECK(context.stats().damaged >= 1);
    CHECK(outcome(shop.options()) == "disk");
  }
  test::write_bytes(path, good.substr(0, good.size() / 2));
  CHECK(outcome(shop.options()) == "compiled");
  CHECK(outcome(shop.options()) == "disk");
}

// A good entry with the cubin of something else.
TEST_CASE("ACubinForAnotherArchitectureIsPassedOver", "[nvrtc]") {
  Workshop shop;
  Options options = shop.options();
  options.arch = "sm_80";
  REQUIRE_FALSE(test::store_trivial(context_of(options), twice_spec(), shop.cache()).empty());
  const Context context = context_of(options);
  CHECK(outcome(context) == "compiled");
  CHECK(context.stats().damaged >= 1);
  CHECK(shop.log().has("the cubin is for sm_90a, its entry says sm_80"));
  CHECK(outcome(options) == "disk");
}

TEST_CASE("ACubinOfAnotherCompilerIsPassedOver", "[cpu]") {
  Workshop shop;
  const Context context = context_of(offline(shop));
  Entry entry{.identity = test::identity_of(context, twice_spec()),
              .metadata = metadata_json(KernelInfo{}),
              .cubin = test::trivial_cubin()};
  const std::string compiler = entry.identity.nvrtc;
  entry.identity.nvrtc = "99.1.2";
  Store store({.dir = shop.cache()});
  REQUIRE(store.publish(entry));
  CHECK(outcome(context) == "NotCached");
  CHECK(shop.log().has("the cubin is from compiler " + compiler + ", its entry says 99.1.2"));
  // With the right one beside it, that is found.
  entry.identity.nvrtc = compiler;
  REQUIRE(store.publish(entry));
  CHECK(outcome(context) == "disk");
}

TEST_CASE("AnEntryMustFitItsCubin", "[cpu]") {
  Entry entry{
      .identity = {}, .metadata = metadata_json(KernelInfo{}), .cubin = test::trivial_cubin()};
  entry.identity.arch = "sm_90a";
  entry.identity.nvrtc = read_cubin_note(entry.cubin).value_or(CubinNote{}).compiler;
  CHECK_FALSE(cubin_mismatch(entry));
  Entry other = entry;
  other.metadata = "{}";
  CHECK(cubin_mismatch(other) == "its metadata is not what this version writes");
  other = entry;
  other.cubin = "no ELF file";
  CHECK(cubin_mismatch(other) == "the cubin has no compiler note");
}

TEST_CASE("AnEntryOfCuda12MustFitWhatItsCubinHas", "[cpu]") {
  Entry entry{.identity = {},
              .metadata = metadata_json(KernelInfo{}),
              .cubin = test::read_bytes(CUBINERY_TEST_DIR "/golden/trivial_sm_90a_12.8.cubin")};
  entry.identity.arch = "sm_90a";
  entry.identity.nvrtc = "12.8.93";
  CHECK_FALSE(cubin_mismatch(entry));
  entry.identity.arch = "sm_80";
  CHECK(cubin_mismatch(entry) == "the cubin is for sm_90a, its entry says sm_80");
  entry.identity.arch = "sm_90a";
  for (const std::string version : {"12.9.86", "13.0.88"}) {
    entry.identity.nvrtc = version;
    CHECK(cubin_mismatch(entry) == "the cubin is from compiler 12.8, its entry says " + version);
  }
}

TEST_CASE("AHitIsExplained", "[nvrtc]") {
  Workshop shop;
  const std::string path = filled(shop);
  const Context context = context_of(shop.options());
  const Result<Explanation> explanation = context.explain(twice_spec());
  REQUIRE(explanation);
  CHECK(explanation->cached);
  CHECK(explanation->path == path);
  CHECK(explanation->info.registers > 0);
  CHECK(explanation->source_path == shop.templates() + "/twice/twice.cu");
  CHECK(explanation->source == test::kTwiceKernel);
  const std::vector<std::string>& options = explanation->options;
  CHECK(std::count(options.begin(), options.end(), "--gpu-architecture=sm_90a") == 1);
  CHECK(std::count(options.begin(), options.end(), "-DCUBINERY_KEY={.threads=64}") == 1);
  const std::optional<Identity> identity = parse_identity(explanation->identity);
  REQUIRE(identity);
  CHECK(identity->key == "twice;threads=64");
  CHECK(path.ends_with("/" + paths::entry_name(*identity)));
  CHECK(explanation->differences.empty());
  CHECK(context.stats().disk_hits == 0);
}

// A manifest that gives the name of a key to the code of another must not fill its place.
TEST_CASE("AnotherValueOfTheKeyIsAnotherKernel", "[nvrtc]") {
  Workshop shop;
  KernelSpec forged = twice_spec();
  forged.initializer += " ";
  const std::string forged_path = filled(shop, forged);
  CHECK(outcome(shop.options()) == "compiled");
  CHECK(filled(shop) != forged_path);
  const std::vector<std::string> different = context_of(shop.options())
                                                 .explain([] {
                                                   KernelSpec third = twice_spec();
                                                   third.initializer += "  ";
                                                   return third;
                                                 }())
                                                 ->differences;
  CHECK((different.size() == 1 && different[0].starts_with("options: ")));
  CHECK(outcome(context_of(shop.options()), forged) == "disk");
}

TEST_CASE("AMissIsExplainedByTheNearestEntry", "[nvrtc]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  const Result<Explanation> empty = context.explain(twice_spec());
  REQUIRE(empty);
  CHECK_FALSE(empty->cached);
  CHECK(empty->nearest_path.empty());
  CHECK(empty->differences.empty());

  Options other = shop.options();
  other.arch = "sm_80";
  REQUIRE(context_of(other).compile(twice_spec(32)));
  const std::string near = filled(shop, twice_spec(128));
  const Result<Explanation> explanation = context.explain(twice_spec());
  REQUIRE(explanation);
  CHECK_FALSE(explanation->cached);
  CHECK(explanation->path == empty->path);
  CHECK(explanation->nearest_path == near);
  CHECK(explanation->differences == std::vector<std::string>{"key.threads: 128 -> 64"});
  CHECK(context.stats().compiles + context.stats().misses == 0);
}

std::size_t entries_of(const Workshop& shop) {
  return test::count_files(shop.cache() + "/entries");
}

const std::string kWrongParameter =
    "the __global__ function takes a parameter of 16 bytes; accepted: the struct Fields::Params of "
    "24 bytes; key: twice;threads=64";

TEST_CASE("AParameterOfAnotherSizeDoesNotReachTheCache", "[nvrtc]") {
  Workshop shop;
  KernelSpec spec = twice_spec();
  spec.param_bytes = 24;
  const Result<CompiledKernel> kernel = context_of(shop.options()).compile(spec);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kInvalidKey);
  CHECK(kernel.error().message() == kWrongParameter);
  CHECK(entries_of(shop) == 0);
}

TEST_CASE("AnEntryWithAnotherParameterIsPassedOver", "[nvrtc]") {
  Workshop shop;
  filled(shop);
  KernelSpec spec = twice_spec();
  spec.param_bytes = 24;
  for (const bool is_offline : {false, true}) {
    const Context context = context_of(is_offline ? offline(shop) : shop.options());
    const Result<CompiledKernel> kernel = context.compile(spec);
    REQUIRE_FALSE(kernel);
    CHECK(kernel.error().code() == Code::kInvalidKey);
    CHECK(kernel.error().message() == kWrongParameter);
    CHECK(context.stats().damaged >= 1);
    CHECK_FALSE(context.explain(spec)->cached);
  }
  // Whose struct it is finds it.
  CHECK(outcome(offline(shop)) == "disk");
}

TEST_CASE("AParameterMayHaveAsManyBytesAsCudaTakes", "[nvrtc]") {
  Workshop shop;
  shop.write("large/large.cu", R"(struct Params { char bytes[CUBINERY_KEY]; };
extern "C" __global__ void large(const __grid_constant__ Params p) {}
)");
  for (const std::size_t bytes : {1, 4352, 4353, 32764}) {
    const std::string number = std::to_string(bytes);
    const KernelSpec spec{.kernel = "large",
                          .canonical = "large;bytes=" + number,
                          .initializer = number,
                          .threads = 32,
                          .param_bytes = bytes};
    INFO(number);
    CHECK(outcome(context_of(shop.options()), spec) == "compiled");
    CHECK(outcome(context_of(offline(shop)), spec) == "disk");
  }
}

TEST_CASE("ATemplateThatReadsOtherFilesIsNotCompiled", "[nvrtc]") {
  Workshop shop;
  const std::string header = shop.path("elsewhere.h");
  test::write_bytes(header, "#define FACTOR 2.0f\n");
  shop.write("twice/key.h", "#include \"" + header + "\"\n" + std::string(test::kTwiceKey));
  const Result<CompiledKernel> kernel = context_of(shop.options()).compile(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kCompileFailed);
  CHECK(kernel.error().message().starts_with("template: " + shop.templates() +
                                             "/twice/key.h: #include \"" + header + "\": "));
  CHECK(entries_of(shop) == 0);
}

TEST_CASE("AForkInTheMiddleOfACompilationDoesNotHang", "[nvrtc]") {
  constexpr int kForks = 20;
  Workshop shop;
  const Context context = context_of(shop.options());
  std::atomic<bool> stop{false};
  std::thread compiler([&] {
    for (int threads = 32; !stop; threads += 32) (void)context.compile(twice_spec(threads));
  });
  int refused = 0;
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = test::start_child([&] {
      ::alarm(300);  // a child that hangs dies
      const Result<CompiledKernel> kernel = context.compile(twice_spec(32));
      return !kernel && kernel.error().code() == Code::kUnsupported ? 0 : 1;
    });
    refused += test::wait_for(child) == 0 ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
  }
  stop = true;
  compiler.join();
  CHECK(refused == kForks);
  CHECK(context.stats().compiles > 0);
}

// Forks: each child opens NVRTC itself.
TEST_CASE("ProcessesShareOneCompilation", "[nvrtc]") {
  constexpr int kProcesses = 16;
  constexpr int kFailed = 99;
  Workshop shop;
  const test::Pipe start;
  REQUIRE(start.ok());
  std::vector<pid_t> children;
  children.reserve(kProcesses);
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(test::start_child([&] {
      const Result<Context> context = Context::create(shop.options());
      if (!context || !start.receive() || !context->compile(twice_spec())) return kFailed;
      return static_cast<int>(context->stats().compiles);
    }));
  }
  for (int i = 0; i < kProcesses; ++i) CHECK(start.send());
  int compiles = 0;
  for (const pid_t child : children) compiles += test::wait_for(child);
  CHECK(compiles == 1);
  CHECK(test::count_files(shop.cache() + "/entries") == 1);
}

}  // namespace
}  // namespace cubinery
