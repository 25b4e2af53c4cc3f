// Contexts without a GPU: from a template to a cubin.
#include "cubinery/context.h"

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cubinery/fields.h"
#include "tests/catch.h"
#include "tests/runtime/twice_template.h"

namespace cubinery::context_test {
namespace {

using test::context_of;
using test::twice_spec;
using test::Workshop;

// The kernel, and that it came from `source`.
CompiledKernel compiled(const Context& context, const KernelSpec& spec, Source source) {
  Result<CompiledKernel> kernel = context.compile(spec);
  if (!kernel) FAIL(kernel.error().message() << "\n" << kernel.error().log());
  CHECK(to_string(kernel->source) == std::string(to_string(source)));
  return std::move(*kernel);
}

Status refused(const Context& context, const KernelSpec& spec) {
  Result<CompiledKernel> kernel = context.compile(spec);
  REQUIRE_FALSE(kernel);
  return std::move(kernel).error();
}

Status refused(Options options) {
  Result<Context> context = Context::create(std::move(options));
  REQUIRE_FALSE(context);
  return std::move(context).error();
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

TEST_CASE("WithoutADeviceTheArchitectureIsRequired", "[cpu]") {
  Workshop shop;
  Options options = shop.options();
  for (const char* arch : {"", "sm_90", "sm_70", "hopper"}) {
    options.arch = arch;
    const Status status = refused(options);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().starts_with("Options::arch = \"" + std::string(arch) +
                                       "\"; accepted: sm_80, "));
    CHECK(contains(status.message(), "; did you mean sm_90a?") == (std::string(arch) == "sm_90"));
  }
}

TEST_CASE("AKernelIsCompiledThenRememberedThenRead", "[nvrtc]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  const CompiledKernel first = compiled(context, twice_spec(), Source::kCompiled);
  CHECK(first.info.kernel == "twice");
  CHECK(first.info.canonical == "twice;threads=64");
  CHECK(first.info.arch == "sm_90a");
  CHECK(first.info.nvrtc == context.nvrtc_version().value());
  CHECK(first.info.registers > 0);
  CHECK(first.info.compile_ms > 0);
  CHECK(first.info.log.empty());
  CHECK(first.path.starts_with(shop.cache() + "/entries/twice-"));
  CHECK(std::filesystem::exists(first.path));

  const CompiledKernel second = compiled(context, twice_spec(), Source::kMemory);
  CHECK(second.path == first.path);
  compiled(context, twice_spec(128), Source::kCompiled);
  CHECK(context.stats().compiles == 2);
  CHECK(context.stats().misses == 2);
  CHECK(context.stats().memory_hits == 1);
  CHECK(context.stats().disk_hits == 0);

  const Context other = context_of(shop.options());
  const CompiledKernel third = compiled(other, twice_spec(), Source::kDisk);
  CHECK(third.path == first.path);
  CHECK(third.info.registers == first.info.registers);
  CHECK(third.info.compile_ms == first.info.compile_ms);
  CHECK(third.info.canonical == first.info.canonical);
  CHECK(other.stats().disk_hits == 1);
  CHECK(other.stats().compiles + other.stats().misses == 0);
}

TEST_CASE("ArchitecturesHaveEntriesOfTheirOwn", "[nvrtc]") {
  Workshop shop;
  Options options = shop.options();
  compiled(context_of(options), twice_spec(), Source::kCompiled);
  options.arch = "sm_80";
  CHECK(compiled(context_of(options), twice_spec(), Source::kCompiled).info.arch == "sm_80");
}

TEST_CASE("LayersAreReadAndNotWritten", "[nvrtc]") {
  Workshop shop;
  compiled(context_of(shop.options()), twice_spec(), Source::kCompiled);
  Options options = shop.options();
  options.cache_dir = shop.path("own");
  options.cache_layers = {shop.cache()};
  const Context context = context_of(options);
  CHECK(compiled(context, twice_spec(), Source::kDisk).path.starts_with(shop.cache()));
  CHECK(compiled(context, twice_spec(32), Source::kCompiled).path.starts_with(shop.path("own")));
  CHECK(test::count_files(shop.cache() + "/entries") == 1);
}

TEST_CASE("WithoutADiskCacheNothingIsWritten", "[nvrtc]") {
  Workshop shop;
  Options options = shop.options();
  options.use_disk_cache = false;
  const Context context = context_of(options);
  CHECK(compiled(context, twice_spec(), Source::kCompiled).path.empty());
  CHECK(compiled(context, twice_spec(), Source::kMemory).path.empty());
  CHECK_FALSE(std::filesystem::exists(shop.cache()));
  CHECK(context.stats().failed_writes == 0);
  compiled(context_of(options), twice_spec(), Source::kCompiled);
}

TEST_CASE("ACacheThatCannotBeWrittenIsNoError", "[nvrtc]") {
  Workshop shop;
  Options options = shop.options();
  options.cache_dir = shop.templates() + "/twice/key.h/below-a-file";
  const Context context = context_of(options);
  CHECK(compiled(context, twice_spec(), Source::kCompiled).path.empty());
  CHECK(compiled(context, twice_spec(), Source::kMemory).path.empty());
  CHECK(context.stats().failed_writes == 1);
  CHECK(shop.log().has("below-a-file"));
}

TEST_CASE("ConcurrentCallersShareOneCompilation", "[nvrtc]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { good += context.compile(twice_spec()).has_value() ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 8);
  CHECK(context.stats().compiles == 1);
  CHECK(context.stats().memory_hits == 7);
}

TEST_CASE("WithoutADeviceNothingIsLoaded", "[cpu]") {
  Workshop shop;
  Options options = shop.options();
  options.offline = true;
  const Result<Kernel> kernel = context_of(options).get(twice_spec());
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kUnsupported);
  CHECK(kernel.error().message() ==
        "a context with kNoDevice loads no kernels; use compile(); key: twice;threads=64");
}

TEST_CASE("AnEditedTemplateIsAnotherKernel", "[nvrtc]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  const CompiledKernel before = compiled(context, twice_spec(), Source::kCompiled);
  shop.write("twice/twice.cu", std::string(test::kTwiceKernel) + "// changed\n");
  CHECK(compiled(context, twice_spec(), Source::kCompiled).path != before.path);
  shop.write("twice/twice.cu", test::kTwiceKernel);
  CHECK(compiled(context, twice_spec(), Source::kMemory).path == before.path);
  shop.write("common/extra.cuh", "");
  compiled(context, twice_spec(), Source::kCompiled);
}

TEST_CASE("AMissingTemplateIsAnInvalidKey", "[nvrtc]") {
  Workshop shop;
  KernelSpec spec = twice_spec();
  spec.kernel = "thrice";
  const Status status = refused(context_of(shop.options()), spec);
  CHECK(status.code() == Code::kInvalidKey);
  CHECK(contains(status.message(), "no thrice/thrice.cu in [" + shop.templates() + "]"));
}

TEST_CASE("ACompileErrorCarriesTheCompilersLog", "[nvrtc]") {
  Workshop shop;
  shop.write("twice/twice.cu", "#include \"twice/key.h\"\n\nint x = undeclared;\n");
  const Context context = context_of(shop.options());
  const Status status = refused(context, twice_spec());
  CHECK(status.code() == Code::kCompileFailed);
  CHECK(status.message().starts_with("twice: compile failed on sm_90a (NVRTC " +
                                     context.nvrtc_version().value() + "): "));
  CHECK(status.message().ends_with("; key: twice;threads=64"));
  CHECK(contains(status.log(), "twice/twice.cu(3): error: identifier \"undeclared\""));
  CHECK(test::count_files(shop.cache() + "/entries") == 0);
  // Nothing is remembered: the template may be put right.
  shop.write("twice/twice.cu", test::kTwiceKernel);
  compiled(context, twice_spec(), Source::kCompiled);
}

TEST_CASE("AnErrorInAHeaderNamesTheHeader", "[nvrtc]") {
  Workshop shop;
  shop.write("twice/key.h", "#pragma once\nstruct TwiceKey { int threads }\n");
  const Status status = refused(context_of(shop.options()), twice_spec());
  CHECK(status.code() == Code::kCompileFailed);
  CHECK(contains(status.log(), "twice/key.h(2): error: "));
}

TEST_CASE("ATemplateMustHaveTheKernelOfItsName", "[nvrtc]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  for (const char* text : {"", "extern \"C\" __global__ void other() {}\n",
                           "__global__ void twice() {}\n" /* a mangled name */}) {
    shop.write("twice/twice.cu", text);
    const Status status = refused(context, twice_spec());
    CHECK(status.code() == Code::kCompileFailed);
    CHECK(
        status.message() ==
        "the compiler reports no kernel twice in twice/twice.cu; accepted: a template with extern "
        "\"C\" __global__ void twice; key: twice;threads=64");
  }
  CHECK(test::count_files(shop.cache() + "/entries") == 0);
}

TEST_CASE("AKernelTakesOneParameter", "[nvrtc]") {
  Workshop shop;
  const Context context = context_of(shop.options());
  for (const auto& [parameters, count] :
       {std::pair("", "0"), std::pair("int a, TwiceParams b", "2")}) {
    shop.write("twice/twice.cu", "#include \"twice/key.h\"\nextern \"C\" __global__ void twice(" +
                                     std::string(parameters) + ") {}\n");
    const Status status = refused(context, twice_spec());
    CHECK(status.code() == Code::kCompileFailed);
    CHECK(status.message() ==
          "twice takes " + std::string(count) +
              " parameters; accepted: one, the struct Fields::Params; key: twice;threads=64");
  }
}

TEST_CASE("WarningsAreKeptInTheInfo", "[nvrtc]") {
  Workshop shop;
  shop.write("twice/twice.cu", "extern \"C\" __global__ void twice(double2) {\n  int unused;\n}\n");
  const Context context = context_of(shop.options());
  const CompiledKernel first = compiled(context, twice_spec(), Source::kCompiled);
  CHECK(contains(first.info.log, "twice/twice.cu(2): warning"));
  const CompiledKernel again = compiled(context_of(shop.options()), twice_spec(), Source::kDisk);
  CHECK(again.info.log == first.info.log);
}

// Such a file would be part of the cubin and of no identity.
TEST_CASE("FilesOfTheWorkingDirectoryAreNotIncluded", "[nvrtc]") {
  namespace fs = std::filesystem;
  Workshop shop;
  shop.write("twice/twice.cu", "#include \"stray.h\"\n" + std::string(test::kTwiceKernel));
  fs::create_directories(shop.path("work/twice"));
  test::write_bytes(shop.path("work/twice/stray.h"), "");
  test::write_bytes(shop.path("work/stray.h"), "");
  const Context context = context_of(shop.options());
  const fs::path before = fs::current_path();
  fs::current_path(shop.path("work"));
  const Result<CompiledKernel> kernel = context.compile(twice_spec());
  fs::current_path(before);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kCompileFailed);
  CHECK(contains(kernel.error().log(), "stray.h"));
}

}  // namespace
}  // namespace cubinery::context_test
