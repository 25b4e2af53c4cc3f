// What compiles a text: NVRTC with headers of its own or shared ones, or nvcc; a fake libcuda
// loads.
#include <filesystem>
#include <fstream>

#include "cache/pack.h"
#include "cubinery/context.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"

namespace cubinery::source_compiler_test {
namespace {

using test::FakeDriver;
using test::TempDir;

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// What NVRTC does not find: a header of the system's and one of the toolkit's.
const KernelSource kHalf{.name = "twice",
                         .source = R"(
#include <cuda_fp16.h>
#include <type_traits>
#include <utility>
extern "C" __global__ void twice(__half* x) {
  static_assert(!std::is_same_v<decltype(std::declval<int>()), int>);
  x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]);
})",
                         .options = {"--expt-relaxed-constexpr", "-Xcompiler=-fPIC,-O3"},
                         .compiler = Compiler::kNvcc};

struct Bench {
  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  TempDir dir;

  Options options(const char* cache = "cache", bool offline = false) const {
    return {.offline = offline,
            .driver_path = CUBINERY_FAKE_DRIVER,
            .cache_dir = dir.path() + "/" + cache};
  }
  Context context() const { return Context::create(options()).value(); }
};

TEST_CASE("NvccCompilesATextWhichIsFoundOffline", "[nvrtc][source]") {
  Bench bench;
  const Context context = bench.context();
  const Result<Kernel> kernel = context.get(kHalf);
  if (!kernel) FAIL(kernel.error().message() << kernel.error().log());
  CHECK(kernel->info().canonical == "source;name=twice;allow_spills=true;compiler=nvcc");
  CHECK(kernel->info().symbol == "twice");
  CHECK(kernel->info().nvrtc.starts_with("1"));  // nvcc's and, behind it, the host compiler's
  CHECK(std::count(kernel->info().nvrtc.begin(), kernel->info().nvrtc.end(), '.') >= 4);
  CHECK(kernel->info().registers > 0);
  CHECK(kernel->parameter_bytes() == std::vector<std::size_t>{8});
  void* const x = nullptr;
  CHECK(kernel->launch(nullptr, {.block = {32}}, x).ok());
  CHECK(context.compile(kHalf)->source == Source::kMemory);
  CHECK(context.stats().compiles == 1);

  const Context offline = Context::create(bench.options("cache", true)).value();
  CHECK(offline.get(kHalf));
  CHECK(offline.explain(kHalf)->cached);
  KernelSource by_nvrtc = kHalf;
  by_nvrtc.compiler = Compiler::kNvrtc;
  by_nvrtc.options = {};
  const auto other = offline.get(by_nvrtc);
  REQUIRE_FALSE(other);
  CHECK(other.error().code() == Code::kNotCached);
  CHECK(has(other.error().message(), "compiler: nvcc -> "));
}

TEST_CASE("NothingFallsBackFromOneCompilerToTheOther", "[nvrtc][source]") {
  Bench bench;
  SECTION("NVRTC has no standard library") {
    KernelSource source = kHalf;
    source.compiler = Compiler::kNvrtc;
    source.options = {};
    const auto kernel = bench.context().get(source);
    REQUIRE_FALSE(kernel);
    CHECK(has(kernel.error().message(), "compile failed on sm_90a (NVRTC "));
    CHECK(has(kernel.error().log(), "cuda_fp16.h"));
  }
  SECTION("there is no nvcc") {
    Options options = bench.options();
    options.nvcc_path = bench.dir.path() + "/none";
    const auto kernel = Context::create(options).value().get(kHalf);
    REQUIRE_FALSE(kernel);
    CHECK(kernel.error().code() == Code::kUnsupported);
    CHECK(kernel.error().message().starts_with("nvcc: none of " + options.nvcc_path));
  }
  SECTION("NVRTC is not needed for nvcc, nor nvcc for NVRTC") {
    Options options = bench.options();
    options.nvrtc_path = bench.dir.path() + "/none";
    CHECK(Context::create(options).value().get(kHalf));
    options = bench.options();
    options.nvcc_path = bench.dir.path() + "/none";
    CHECK(Context::create(options).value().get(KernelSource{.source = "__global__ void any() {}"}));
  }
  SECTION("a fault has nvcc's log") {
    KernelSource source = kHalf;
    source.source = "__global__ void twice( {";
    const auto kernel = bench.context().get(source);
    REQUIRE_FALSE(kernel);
    CHECK(kernel.error().code() == Code::kCompileFailed);
    CHECK(has(kernel.error().message(), "compile failed on sm_90a (nvcc "));
    CHECK(has(kernel.error().log(), "twice.cu(1): error"));
  }
}

TEST_CASE("AFileThatNvccReadsIsOfTheIdentityOrRefused", "[nvrtc][source]") {
  Bench bench;
  const std::string folder = bench.dir.path() + "/include";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* text) { std::ofstream(folder + "/step.h") << text; };
  const KernelSource source{.source =
                                "#include \"step.h\"\n"
                                "__global__ void add(int* x) { *x += kStep; }",
                            .includes = {folder},
                            .compiler = Compiler::kNvcc};
  write("constexpr int kStep = 1;");
  const Context context = bench.context();
  REQUIRE(context.compile(source)->source == Source::kCompiled);
  CHECK(context.compile(source)->source == Source::kMemory);
  write("constexpr int kStep = 2;");
  CHECK(context.compile(source)->source == Source::kCompiled);

  KernelSource foreign = source;
  foreign.source = "#include \"" + folder + "/step.h\"\n__global__ void add(int*) {}";
  CHECK(context.compile(foreign).error().code() == Code::kCompileFailed);
}

TEST_CASE("ATextWithOneKernelNeedsNoName", "[nvrtc][source]") {
  Bench bench;
  const Compiler compiler = GENERATE(Compiler::kNvrtc, Compiler::kNvcc);
  const Context context = bench.context();
  const auto refusal = [&](const char* text) {
    const auto kernel = context.get(KernelSource{.source = text, .compiler = compiler});
    REQUIRE_FALSE(kernel);
    CHECK(kernel.error().code() == Code::kCompileFailed);
    return std::string(kernel.error().message());
  };
  const auto kernel = context.get(KernelSource{
      .source = "namespace ns { template <class T> __global__ void one(T* x) { *x = 1; "
                "}\ntemplate __global__ void one(float*); }",
      .compiler = compiler});
  REQUIRE(kernel);
  CHECK(kernel->info().symbol == "_ZN2ns3oneIfEEvPT_");
  CHECK(kernel->info().kernel == "kernel");
  CHECK(has(refusal("__global__ void a() {} __global__ void b(int*) {}"),
            "kernel.cu: the text gives 2 kernels; accepted without a name: one; it has: "));
  CHECK(has(refusal("__device__ void a() {}"), "the text gives 0 kernels"));
  CHECK(has(refusal("template <class T> __global__ void k(T) {}"), "the text gives 0 kernels"));
  const Context offline = Context::create(bench.options("cache", true)).value();
  CHECK(offline.stats().compiles == 0);
}

TEST_CASE("ATextIsListed", "[nvrtc][source]") {
  Bench bench;
  const Compiler compiler = GENERATE(Compiler::kNvrtc, Compiler::kNvcc);
  const Context context = bench.context();
  const KernelSource source{
      .source = "extern \"C\" __global__ void add(int* x) { atomicAdd(x, 7); }",
      .compiler = compiler};
  CHECK(has(context.listing(source, Listing::kPtx).value(), ".visible .entry add("));
  CHECK_FALSE(context.explain(source)->cached);

  // A stand-in for nvdisasm: that it gets the cubin of the cache, and what it prints.
  Options options = bench.options();
  options.nvcc_path = bench.dir.path() + "/nvcc";
  const auto sass = [&](bool offline) {
    options.offline = offline;
    return Context::create(options).value().listing(source, Listing::kSass);
  };
  CHECK(sass(true).error().code() == Code::kNotCached);
  REQUIRE(context.compile(source));
  CHECK(sass(true).error().message().starts_with("nvdisasm: none of " + bench.dir.path() +
                                                 "/nvdisasm; install the CUDA toolkit"));
  const std::string program = bench.dir.path() + "/nvdisasm";
  std::ofstream(program) << "#!/bin/sh\necho $1; /usr/bin/head -c 4 \"$2\"\n";
  std::filesystem::permissions(program, std::filesystem::perms(0700));
  CHECK(sass(true).value() ==
        "--print-code\n\x7f"
        "ELF");
  CHECK(Context::create(options).value().listing(source, Listing::kPtx).error().code() ==
        Code::kUnsupported);
  std::ofstream(program) << "#!/bin/sh\necho no such cubin; exit 1\n";
  CHECK(sass(false).error().code() == Code::kCompileFailed);
  CHECK(sass(false).error().log() == "no such cubin\n");
  std::filesystem::permissions(program, std::filesystem::perms(0777));
  CHECK(has(sass(false).error().message(), "run code as us"));
}

TEST_CASE("TextsThatShareHeadersAreTheSameKernels", "[nvrtc][source]") {
  Bench bench;
  const std::string folder = bench.dir.path() + "/include";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* text) { std::ofstream(folder + "/step.h") << text; };
  write("#pragma once\ntemplate <class T> struct Step { static constexpr T kValue = 3; };");
  const auto text = [&](const char* name, bool share_headers) {
    return KernelSource{.name = name,
                        .source = std::string("#include \"step.h\"\n__global__ void ") + name +
                                  "(float* x) { *x += Step<float>::kValue; }",
                        .includes = {folder},
                        .share_headers = share_headers};
  };
  const Context shared = Context::create(bench.options("shared")).value();
  const Context alone = Context::create(bench.options("alone")).value();
  for (const char* name : {"a", "b", "c"}) {
    const std::string of_shared = shared.compile(text(name, true))->path;
    const std::string of_alone = alone.compile(text(name, false))->path;
    // The same identity; with the time it took the entries' bytes differ.
    CHECK(std::filesystem::path(of_shared).filename() ==
          std::filesystem::path(of_alone).filename());
    CHECK(alone.explain(text(name, true))->cached);
  }
  // A header that has changed is another kernel, though its precompiled form is there.
  write("#pragma once\ntemplate <class T> struct Step { static constexpr T kValue = 5; };");
  const auto changed = shared.compile(text("a", true));
  CHECK(changed->source == Source::kCompiled);
  CHECK(changed->path == shared.explain(text("a", false))->path);
}

}  // namespace
}  // namespace cubinery::source_compiler_test
