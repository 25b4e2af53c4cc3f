// Kernels of libraries that are written for DeepJIT: the real NVRTC compiles them, and a fake
// libcuda is what they are launched on.
#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include "cache/store.h"
#include "tests/compat/bench.h"

namespace cubinery::deep_jit_kernel_test {
namespace {

using deep_jit::cuda::CompilerOptions;
using deep_jit::cuda::LaunchOptions;
using test::DeepJit;
using test::has;
using test::JitBench;
using test::kScaleKernel;
using test::stats_of;
using test::thrown;
using test::Variable;

const LaunchOptions kOneThread{.grid_dim = dim3(1, 1, 1), .block_dim = dim3(1, 1, 1)};

template <class T>
T argument(const test::FakeLaunch& launch, std::size_t offset) {
  T value;
  REQUIRE(launch.arguments.size() >= offset + sizeof(T));
  std::memcpy(&value, launch.arguments.data() + offset, sizeof(T));
  return value;
}

TEST_CASE("AKernelIsCompiledAndLaunched", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const auto kernel = jit->compile("a_label", kScaleKernel);
  float* const output = reinterpret_cast<float*>(4096);
  const float* const input = reinterpret_cast<float*>(8192);
  const int count = 1000;
  jit->launch(kernel,
              {
                  .stream = reinterpret_cast<CUstream>(0x20),
                  .num_smem_bytes = 1 << 17,
                  .grid_dim = dim3(4, 5, 6),
                  .block_dim = dim3(8, 4, 2),
              },
              output, input, count);
  REQUIRE(bench.fake->launches.size() == 1);
  const test::FakeLaunch& launch = bench.fake->launches.back();
  CHECK(launch.kernel == "scale");
  CHECK(launch.config.hStream == reinterpret_cast<CUstream>(0x20));
  CHECK(launch.config.sharedMemBytes == 1 << 17);
  CHECK(launch.config.gridDimZ == 6);
  CHECK(launch.config.blockDimY == 4);
  CHECK(launch.attributes.empty());
  CHECK(argument<float*>(launch, 0) == output);
  CHECK(argument<const float*>(launch, 8) == input);
  CHECK(argument<int>(launch, 16) == count);
  CHECK(kernel->kernel_handle != nullptr);
  CHECK(kernel->kernel()->info().kernel == "kernel");
}

TEST_CASE("ALaunchHasItsAttributesAndTheDefaults", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const auto kernel = jit->compile("k", "__global__ void k() {}");
  jit->default_launch_options.enable_pdl = true;
  jit->launch(kernel, {.grid_dim = dim3(16, 1, 1),
                       .block_dim = dim3(32, 1, 1),
                       .cluster_dim = dim3(4, 1, 1),
                       .cooperative = true});
  const auto of = [&] {
    std::set<CUlaunchAttributeID> ids;
    for (const auto& attribute : bench.fake->launches.back().attributes) ids.insert(attribute.id);
    return ids;
  };
  CHECK(of() == std::set<CUlaunchAttributeID>{
                    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION});
  LaunchOptions large = kOneThread;
  large.grid_dim = large.cluster_dim = dim3(16, 1, 1);
  large.enable_pdl = false;
  CHECK(has(thrown([&] { jit->launch(kernel, large); }),
            "a cluster of 16 blocks needs nonportable_cluster_size_allowed"));
  large.nonportable_cluster_size_allowed = true;
  jit->launch(kernel, large);
  CHECK(of() == std::set<CUlaunchAttributeID>{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION});
}

TEST_CASE("AnArgumentMayBeAnyTriviallyCopyableType", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  struct alignas(64) Map {
    char bytes[128];
  };
  enum class Mode : short { kThree = 3 };
  const auto kernel = jit->compile("take", R"(
struct alignas(64) Map { char bytes[128]; };
struct Pair { int a, b; };
__global__ void take(bool b, short mode, double d, const __grid_constant__ Map map, float* p, Pair pair, long far) {}
)");
  Map map{};
  map.bytes[127] = 'm';
  const int pair[2] = {5, 6};
  const long far = 77;
  jit->launch(kernel, kOneThread, true, Mode::kThree, 2.5, map, nullptr, pair,
              deep_jit::NoRefPtr{const_cast<long*>(&far)});
  const test::FakeLaunch& launch = bench.fake->launches.back();
  REQUIRE(launch.arguments.size() == 1 + 2 + 8 + 128 + 8 + 8 + 8);
  CHECK(argument<bool>(launch, 0));
  CHECK(argument<short>(launch, 1) == 3);
  CHECK(argument<double>(launch, 3) == 2.5);
  CHECK(launch.arguments[11 + 127] == 'm');
  CHECK(argument<float*>(launch, 139) == nullptr);
  CHECK(argument<int>(launch, 151) == 6);
  CHECK(argument<long>(launch, 155) == 77);
  int value = 0;
  CHECK(deep_jit::cuda::kernel_arg_pointer(value) == &value);
  CHECK(deep_jit::cuda::kernel_arg_pointer(deep_jit::NoRefPtr{&value}) == &value);
}

TEST_CASE("LaunchesThatAreNoneAreExceptions", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const auto kernel = jit->compile("scale", kScaleKernel);
  float* const x = nullptr;
  const auto why = [&](const LaunchOptions& options, const auto&... args) {
    return thrown([&] { jit->launch(kernel, options, args...); });
  };
  CHECK(has(
      why(kOneThread, x, x),
      "InvalidArgument error (scale): kernel has 2 arguments; accepted: 3, of [8, 8, 4] bytes"));
  CHECK(has(why(kOneThread), "has 0 arguments"));
  CHECK(has(why(kOneThread, x, x, 1, 1), "has 4 arguments"));
  CHECK(has(why(kOneThread, x, x, 1L), "argument 3 of kernel has 8 bytes; accepted: 4"));
  CHECK(has(why(kOneThread, x, deep_jit::NoRefPtr{}, 1), "argument 2 is at a null NoRefPtr"));
  CHECK(has(why(kOneThread, x, x, 1, deep_jit::NoRefPtr{&bench}), "has 4 arguments"));
  CHECK(has(why({.block_dim = dim3(1)}, x, x, 1), "grid dimension must be specified"));
  CHECK(has(why({.grid_dim = dim3(1)}, x, x, 1), "block dimension must be specified"));
  CHECK(has(why({.grid_dim = dim3(0), .block_dim = dim3(1)}, x, x, 1), "grid is 0 x 1 x 1"));
  CHECK(has(why({.grid_dim = dim3(1), .block_dim = dim3(2048)}, x, x, 1), "block is 2048 x 1"));
  LaunchOptions options = kOneThread;
  options.num_smem_bytes = -1;
  CHECK(has(why(options, x, x, 1), "size must not be negative: -1"));
  options.num_smem_bytes = 1 << 20;
  CHECK(has(why(options, x, x, 1), "shared_bytes is 1048576; accepted: "));
  CHECK(has(thrown([&] { jit->launch(nullptr, kOneThread); }), "kernel must not be null"));
  bench.fake->launch = CUDA_ERROR_NO_DEVICE;
  CHECK(has(why(kOneThread, x, x, 1), "CUDA_ERROR_NO_DEVICE"));
  bench.fake->launch = CUDA_SUCCESS;
  CHECK(bench.fake->launches.empty());
  kernel->unload();
  kernel->unload();
  CHECK(has(why(kOneThread, x, x, 1), "kernel must be loaded before launch"));
}

TEST_CASE("AKernelOfTheRuntimeIsCompiledOnce", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const auto kernel = jit->compile("scale", kScaleKernel);
  CHECK(jit->compile("another_label", kScaleKernel) == kernel);
  CHECK(stats_of(*jit).compiles == 1);
  CHECK(jit->compile("scale", kScaleKernel, {.fast_math = true}) != kernel);
  CHECK(stats_of(*jit).compiles == 2);
  std::vector<std::shared_ptr<deep_jit::cuda::Kernel>> kernels(8);
  std::vector<std::thread> threads;
  threads.reserve(kernels.size());
  for (auto& made : kernels) {
    threads.emplace_back([&] { made = jit->compile("k", "__global__ void k() {}"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& made : kernels) CHECK(made == kernels[0]);
  CHECK(stats_of(*jit).compiles == 3);

  const auto other = bench.runtime();
  CHECK(other->compile("scale", kScaleKernel) != kernel);
  CHECK(stats_of(*other).compiles == 0);
  CHECK(stats_of(*other).disk_hits == 1);
}

TEST_CASE("AFurtherFolderOfTheListIsOnlyRead", "[nvrtc][deep_jit]") {
  JitBench bench;
  bench.runtime()->compile_without_load("scale", kScaleKernel);
  const std::string first = bench.dir.path() + "/own";
  const Variable list("TEST_JIT_CACHE_DIR", first + ":" + bench.dir.path() + "/cache");
  const auto jit = bench.runtime();
  jit->compile("scale", kScaleKernel);
  CHECK(stats_of(*jit).compiles == 0);
  jit->compile("k", "__global__ void k() {}");
  CHECK(stats_of(*jit).compiles == 1);
  CHECK(test::count_files(first + "/entries") == 1);
  CHECK(test::count_files(bench.dir.path() + "/cache/entries") == 1);
}

TEST_CASE("OfflineAKernelIsCachedOrAnException", "[nvrtc][deep_jit]") {
  JitBench bench;
  bench.runtime()->compile_without_load("scale", kScaleKernel);
  const Variable offline("CUBINERY_OFFLINE", "1");
  const auto jit = bench.runtime();
  CHECK(jit->compile("scale", kScaleKernel) != nullptr);
  CHECK(has(thrown([&] { jit->compile("k", "__global__ void k() {}"); }), "NotCached error (k): "));
}

// DeepJIT's own entries and what it left unfinished are nobody's leftovers.
TEST_CASE("ACacheMayBeSharedWithDeepJit", "[nvrtc][deep_jit]") {
  JitBench bench;
  namespace fs = std::filesystem;
  const std::string entry =
      bench.write("cache/cache/scale.0123456789abcdef0123456789abcdef", ".committed", "");
  const std::string unfinished =
      bench.write("cache/tmp/9f8b6c1e-0a53-4f0e-8f0c-3a1f6f6f3b7a", "kernel.cu", "");
  for (const fs::path& path :
       {fs::path(entry), fs::path(unfinished), fs::path(entry) / ".committed",
        fs::path(unfinished) / "kernel.cu"}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(48));
  }
  const auto jit = bench.runtime();
  jit->compile("scale", kScaleKernel);
  CHECK(stats_of(*jit).failed_writes == 0);
  Store store({.dir = bench.dir.path() + "/cache"});
  REQUIRE(store.gc());
  CHECK(fs::exists(entry + "/.committed"));
  CHECK(fs::exists(unfinished + "/kernel.cu"));
}

TEST_CASE("WithoutLoadingTheCacheIsFilled", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const std::filesystem::path path = jit->compile_without_load("scale", kScaleKernel);
  CHECK(std::filesystem::is_regular_file(path));
  CHECK(bench.fake->libraries == 0);
  CHECK(jit->compile_without_load("scale", kScaleKernel) == path);
  CHECK(stats_of(*jit).compiles == 1);
  const std::string blocked = bench.dir.path() + "/file";
  test::write_bytes(blocked, "no folder");
  const Variable cache("TEST_JIT_CACHE_DIR", blocked + "/cache");
  const auto other = bench.runtime();
  CHECK(has(thrown([&] { other->compile_without_load("scale", kScaleKernel); }),
            "scale could not be written to the cache"));
  CHECK(other->compile("scale", kScaleKernel) != nullptr);
}

TEST_CASE("WhatChangesTheCodeChangesTheKey", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const std::string source = "__global__ void k() {}";
  const auto key = [&](const CompilerOptions& options) {
    return jit->cache_key(source, jit->default_compiler_options.override_with(options));
  };
  std::set<std::string> keys = {
      key({}),
      key({.fast_math = true}),
      key({.ptxas_register_usage_level = 5}),
      key({.check_no_spills = true}),
      key({.with_line_info = true}),
      key({.extra_nvcc_flags = {"-DX=1"}}),
      key({.extra_nvcc_flags = {"-DX=2"}}),
      key({.nvcc_flags = std::vector<std::string>{"-std=c++17"}}),
      bench.runtime("cutlass-1")->cache_key(source, jit->default_compiler_options),
      bench.runtime("cutlass-2")->cache_key(source, jit->default_compiler_options),
      bench.runtime("a\nb\\")->cache_key(source, jit->default_compiler_options),
      bench.runtime("a%0ab%5c")->cache_key(source, jit->default_compiler_options),
      jit->cache_key(source + " ", jit->default_compiler_options)};
  CHECK(keys.size() == 13);
  // Said of host code only.
  CHECK(key({.optimize_level = "0"}) == key({}));
  CHECK(key({.extra_nvcc_flags = {"-Xcompiler", "-Wall", "--extended-lambda"}}) == key({}));
  CHECK(bench.runtime()->cache_key(source, jit->default_compiler_options) == key({}));
}

TEST_CASE("AnArchitectureIsTheDevicesOrAnotherThatRunsThere", "[nvrtc][deep_jit]") {
  JitBench bench;
  bench.fake->major = 10;
  const auto jit = bench.runtime();
  CHECK(jit->default_compiler_options.arch == "100f");
  CHECK(jit->compile("scale", kScaleKernel)->kernel()->info().arch == "sm_100f");
  const auto concrete = jit->compile("scale", kScaleKernel, {.arch = jit->device.get_arch(false)});
  CHECK(concrete->kernel()->info().arch == "sm_100a");
  CHECK(stats_of(*jit).compiles == 1);
  CHECK(jit->context("100a").stats().compiles == 1);
}

TEST_CASE("ASignatureOfAnyBytesIsPartOfTheText", "[nvrtc][deep_jit]") {
  JitBench bench;
  for (const char* signature : {"cutlass-40000", "two\nlines */ \\", "\"quoted\" \xc3\xa4"}) {
    const auto jit = bench.runtime(signature);
    CHECK(jit->compile("k", "__global__ void k() {}  // ends with \\") != nullptr);
    CHECK(stats_of(*jit).compiles == 1);
  }
}

TEST_CASE("FlagsReachTheCompiler", "[nvrtc][deep_jit]") {
  JitBench bench;
  const std::string folder = bench.write("more", "more.h", "struct More { char bytes[9]; };\n");
  const auto jit = bench.runtime();
  jit->default_compiler_options.nvcc_flags->emplace_back("--diag-suppress=39,161,174,177,186,940");
  jit->default_compiler_options.nvcc_flags->emplace_back("-I" + folder);
  jit->default_compiler_options.nvcc_flags->emplace_back("-DWIDTH=3");
  const auto kernel = jit->compile(
      "k",
      "#include <more.h>\n"
      "struct Bytes { char bytes[WIDTH + EXTRA]; };\n"
      "__global__ void k(Bytes bytes, More more) {}",
      {.extra_nvcc_flags = {"-D", "EXTRA=4", "--maxrregcount", "64", "--ptxas-options=-O2,-v"}});
  CHECK(kernel->kernel()->parameter_bytes() == std::vector<std::size_t>{7, 9});
  CHECK(jit->compile("k", "static_assert(__cplusplus == 201703L);\n__global__ void k() {}",
                     {.nvcc_flags = std::vector<std::string>{"-std=c++17"}}) != nullptr);
}

TEST_CASE("FlagsOfWhichNoIdentityIsAreRefused", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const auto why = [&](const CompilerOptions& options) {
    const std::string text =
        thrown([&] { jit->compile_without_load("k", "__global__ void k() {}", options); });
    CHECK(text == thrown([&] { jit->compile("k", "__global__ void k() {}", options); }));
    return text;
  };
  const auto of_flag = [&](const std::string& flag) { return why({.extra_nvcc_flags = {flag}}); };
  CHECK(has(of_flag("-include=x.h"), "options has \"-include=x.h\"; accepted: "));
  CHECK(has(of_flag("--options-file=x"), "accepted: "));
  CHECK(has(of_flag("-rdc=true"), "accepted: all that a kernel calls stands in its source"));
  CHECK(has(of_flag("-gencode=arch=compute_80"), "accepted: Options::arch"));
  CHECK(has(of_flag("--ptx"), "accepted: nothing: what is made is a cubin"));
  CHECK(has(of_flag("--threads=4"), "options has \"--threads=4\"; accepted: "));
  CHECK(has(of_flag("-Irelative"), "-Irelative: folders must be absolute"));
  CHECK(has(of_flag("--compiler-options=-Wall,-DX=1"),
            "--compiler-options=-Wall,-DX=1 has -DX=1; accepted: -W..."));
  CHECK(has(of_flag("-Xcompiler=-include,x.h"), "has -include; accepted: "));
  CHECK(has(why({.post_hook = "hooks/edit.py"}), "post_hook is \"hooks/edit.py\"; accepted: none"));
  CHECK(has(why({.post_hook = ""}), "post_hook is \"\""));
  CHECK(has(why({.arch = "91"}), "arch = \"sm_91\""));
  CHECK(has(why({.arch = "100f"}), "does not run on device 0"));
  CHECK(stats_of(*jit).compiles == 0);
  for (const char* label : {"", "a b", "a/b", "a-b"}) {
    INFO(label);
    CHECK(has(thrown([&] { jit->compile(label, kScaleKernel); }),
              "cache tag must contain only letters, digits, or underscores"));
  }
}

TEST_CASE("TextsThatDoNotCompileAreExceptionsWithTheLog", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  const auto why = [&](const char* source) {
    const std::string text = thrown([&] { jit->compile("faulty", source); });
    const std::string other = thrown([&] { jit->compile_without_load("faulty", source); });
    CHECK(text.substr(0, text.find('\n')) == other.substr(0, other.find('\n')));
    return text;
  };
  const std::string text = why("\n\n__global__ void k( {");
  CHECK(has(text, "CompileFailed error (faulty): "));
  CHECK(has(text, "kernel.cu(3): error: "));
  CHECK(has(why("__global__ void a() {}\n__global__ void b() {}"), "the text gives 2 kernels"));
  CHECK(has(why("__device__ int x;"), "CompileFailed"));
  CHECK(has(why(""), "is empty"));
  CHECK(has(why("#include <own/none.cuh>\n__global__ void k() {}"), "own/none.cuh"));
  CHECK(bench.fake->libraries == 0);
}

TEST_CASE("SpillsAndLocalMemoryAreExceptionsOnRequest", "[nvrtc][deep_jit]") {
  JitBench bench;
  const std::string spills =
      "__global__ void __launch_bounds__(1024, 2) k(float* x) {\n"
      "  float v[64];\n"
      "  for (int i = 0; i < 64; ++i) v[i] = x[i * 32];\n"
      "  for (int r = 0; r < 9; ++r) for (int i = 0; i < 64; ++i) v[i] = v[i] * v[63 - i] + x[r];\n"
      "  for (int i = 0; i < 64; ++i) x[i] = v[i];\n}\n";
  const std::string local =
      "__global__ void k(int* x) {\n  int v[512];\n  for (int i = 0; i < 512; ++i) v[i] = x[i];\n"
      "  x[0] = v[x[512]];\n}\n";
  const auto jit = bench.runtime();
  CHECK(jit->compile("k", spills) != nullptr);
  CHECK(has(thrown([&] { jit->compile("k", spills, {.check_no_spills = true}); }), "spill"));
  CHECK(jit->compile("k", kScaleKernel, {.check_no_spills = true}) != nullptr);
  CHECK(jit->compile("k", local, {.check_no_spills = true}) != nullptr);
  for (const auto& runtime : {jit, bench.runtime()}) {  // compiled, and from the cache
    CHECK(has(thrown([&] { runtime->compile("k", local, {.check_no_local_memory = true}); }),
              "k uses local memory"));
  }
  CHECK(jit->compile("k", kScaleKernel, {.check_no_local_memory = true}) != nullptr);
}

TEST_CASE("EveryHeaderIsTrackedByContent", "[nvrtc][deep_jit]") {
  JitBench bench;
  const std::string outer = "#pragma once\n#include <other/inner.cuh>\n";
  const std::string folder = bench.write("include", "own/outer.cuh", outer);
  bench.write("include", "other/inner.cuh", "struct Inner { char bytes[3]; };\n");
  const std::string source = "#include <own/outer.cuh>\n__global__ void k(Inner inner) {}";
  const auto bytes = [&](const std::string& root, bool is_compiled) {
    const auto jit = bench.runtime("", {root});
    const auto kernel = jit->compile("k", source);
    CHECK(stats_of(*jit).compiles == (is_compiled ? 1 : 0));
    return kernel->kernel()->parameter_bytes()[0];
  };
  CHECK(bytes(folder, true) == 3);
  CHECK(bytes(folder, false) == 3);
  const std::string moved = bench.write("moved", "own/outer.cuh", outer);
  bench.write("moved", "other/inner.cuh", "struct Inner { char bytes[3]; };\n");
  CHECK(bytes(moved, false) == 3);
  // A header that no prefix tracks, which DeepJIT would take from its cache unseen.
  bench.write("include", "other/inner.cuh", "struct Inner { char bytes[4]; };\n");
  CHECK(bytes(folder, true) == 4);
  bench.write("include", "own/outer.cuh", "#pragma once\n#include \"../other/inner.cuh\"\n");
  CHECK(bytes(folder, true) == 4);
}

TEST_CASE("TheToolkitsHeadersAreFound", "[nvrtc][deep_jit]") {
  JitBench bench;
  if (!std::filesystem::exists(deep_jit::internal::toolkit() / "include/cuda_bf16.h")) {
    WARN("the toolkit has no headers: skipped");
    return;
  }
  const auto kernel = bench.runtime()->compile("k",
                                               "#include <cuda_bf16.h>\n"
                                               "#include <cuda_runtime.h>\n"
                                               "#include <cuda/std/cstdint>\n"
                                               "__global__ void k(__nv_bfloat16 x) {}");
  CHECK(kernel->kernel()->parameter_bytes() == std::vector<std::size_t>{2});
}

TEST_CASE("NvccCompilesWhereItIsChosen", "[nvrtc][deep_jit]") {
  JitBench bench;
  if (!std::filesystem::exists(deep_jit::internal::toolkit() / "bin/nvcc")) {
    WARN("the toolkit has no nvcc: skipped");
    return;
  }
  const std::string source =
      "#include <type_traits>\n#include <utility>\n"
      "template <class T> __global__ void k(T* x) { *x += 1; }\n"
      "static void __instantiate_kernel() { auto ptr = reinterpret_cast<void*>(&k<float>); }\n";
  const auto jit = bench.runtime();
  CHECK(has(thrown([&] { jit->compile("k", source); }), "type_traits"));
  const Variable chosen("TEST_JIT_COMPILER", "nvcc");
  const auto other = bench.runtime();
  const auto kernel = other->compile("k", source, {.extra_nvcc_flags = {"-Xcompiler", "-Wall"}});
  CHECK(kernel->kernel()->info().canonical.ends_with("compiler=nvcc"));
  CHECK(kernel->kernel()->parameter_bytes() == std::vector<std::size_t>{8});
  // Neither compiler's kernel is the other's.
  const auto of_nvrtc = jit->compile("scale", kScaleKernel);
  const auto of_nvcc = other->compile("scale", kScaleKernel);
  CHECK(of_nvrtc->kernel()->info().canonical != of_nvcc->kernel()->info().canonical);
  CHECK(stats_of(*other).compiles == 2);
}

TEST_CASE("WithoutAStreamItIsTorchsCurrentOne", "[nvrtc][deep_jit]") {
  JitBench bench;
  bench.fake->devices = 3;
  bench.fake->current_device = 2;
  const auto jit = bench.runtime();
  const auto kernel = jit->compile("k", "__global__ void k() {}");
  const auto stream = [&](const LaunchOptions& options) {
    jit->launch(kernel, options);
    return reinterpret_cast<std::uintptr_t>(bench.fake->launches.back().config.hStream);
  };
  CHECK(stream(kOneThread) == 0);
  void* const torch = ::dlopen(CUBINERY_FAKE_TORCH, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(torch != nullptr);
  CHECK(stream(kOneThread) == 0x1002);
  LaunchOptions own = kOneThread;
  own.stream = nullptr;
  CHECK(stream(own) == 0);
  own.stream = reinterpret_cast<CUstream>(0x30);
  CHECK(stream(own) == 0x30);
  ::dlclose(torch);
}

TEST_CASE("WhatIsCompiledIsPrintedOnRequest", "[nvrtc][deep_jit]") {
  JitBench bench;
  const std::string out = bench.dir.path() + "/out";
  const auto printed = [&] {
    std::fflush(stdout);
    const int saved = ::dup(1);
    std::FILE* const file = std::fopen(out.c_str(), "w");
    ::dup2(::fileno(file), 1);
    bench.runtime()->compile("scale", kScaleKernel);
    std::fflush(stdout);
    ::dup2(saved, 1);
    ::close(saved);
    std::fclose(file);
    return test::read_bytes(out);
  };
  CHECK(printed().empty());
  const Variable load("DJ_JIT_PRINT_LOAD_TIME", "1");
  CHECK(has(printed(), "Load time (scale): "));
  const Variable command("TEST_JIT_PRINT_COMPILER_COMMAND", "1");
  CHECK_FALSE(has(printed(), "--gpu-architecture"));  // it was in the cache
  const Variable cache("TEST_JIT_CACHE_DIR", bench.dir.path() + "/other");
  const std::string text = printed();
  CHECK(has(text, "scale: nvrtc "));
  CHECK(has(text, "--gpu-architecture=sm_90a"));
  CHECK(has(text, " registers, 0 bytes of spills"));
}

TEST_CASE("PtxAndSassAreWrittenOnRequest", "[nvrtc][deep_jit]") {
  JitBench bench;
  const auto jit = bench.runtime();
  jit->compile("scale", kScaleKernel);
  const std::string dumps = bench.dir.path() + "/cache/dumps";
  CHECK(test::count_files(dumps) == 0);
  // Of what is in the cache too.
  jit->compile("scale", kScaleKernel, {.dump_ptx = true});
  REQUIRE(test::count_files(dumps) == 1);
  const std::filesystem::path ptx = std::filesystem::directory_iterator(dumps)->path();
  CHECK(ptx.filename().string().starts_with("scale.kernel-"));
  CHECK(ptx.extension() == ".ptx");
  CHECK(has(test::read_bytes(ptx.string()), ".entry scale("));
  if (std::filesystem::exists(deep_jit::internal::toolkit() / "bin/nvdisasm")) {
    const Variable all("TEST_JIT_DUMP_ASM", "1");
    bench.runtime()->compile_without_load("scale", kScaleKernel);
    CHECK(test::count_files(dumps) == 2);
    std::filesystem::path sass = ptx;
    CHECK(has(test::read_bytes(sass.replace_extension(".sass").string()), "EXIT"));
  }
  test::write_bytes(bench.dir.path() + "/file", "no folder");
  const Variable cache("TEST_JIT_CACHE_DIR", bench.dir.path() + "/file/cache");
  CHECK(has(thrown([&] { bench.runtime()->compile("k", kScaleKernel, {.dump_ptx = true}); }),
            "k.ptx could not be written to "));
}

}  // namespace
}  // namespace cubinery::deep_jit_kernel_test
