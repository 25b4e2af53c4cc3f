// Kernels from texts: launches on a fake libcuda, cubins of the real NVRTC.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cache/cubin_note.h"
#include "cache/entry_file.h"
#include "cache/store.h"
#include "codegen/bundle.h"
#include "cubinery/context.h"
#include "runtime/jit/kernel_info.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/runtime/twice_template.h"

namespace cubinery::source_kernel_test {
namespace {

using test::FakeDriver;
using test::TempDir;

const std::string kScale = R"(
__global__ void scale(float* x, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
)";
const KernelSource kScaleSource{.name = "scale", .source = kScale};

// A device that is not there, and a cache.
struct Bench {
  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  TempDir dir;

  Options options() const {
    return {.driver_path = CUBINERY_FAKE_DRIVER, .cache_dir = dir.path() + "/cache"};
  }
  Options offline() const {
    Options options = this->options();
    options.offline = true;
    return options;
  }
  Context context() const { return Context::create(options()).value(); }

  Kernel get(const KernelSource& source) const {
    Result<Kernel> kernel = context().get(source);
    if (!kernel) FAIL(kernel.error().message() << kernel.error().log());
    return *std::move(kernel);
  }
  // Why there is no kernel.
  Status refusal(const KernelSource& source) const {
    const Context made = context();
    const Result<Kernel> kernel = made.get(source);
    REQUIRE_FALSE(kernel);
    const Result<CompiledKernel> compiled = made.compile(source);
    REQUIRE_FALSE(compiled);
    CHECK(compiled.error().message() == kernel.error().message());
    return kernel.error().clone();
  }
  std::string invalid(const KernelSource& source) const {
    const Status status = refusal(source);
    CHECK(status.code() == Code::kInvalidArgument);
    return std::string(status.message());
  }
  std::string not_compiled(const KernelSource& source) const {
    const Status status = refusal(source);
    CHECK(status.code() == Code::kCompileFailed);
    CHECK_FALSE(status.log().empty());
    return std::string(status.message());
  }
};

std::string invalid(const Status& status) {
  CHECK(status.code() == Code::kInvalidArgument);
  return std::string(status.message());
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

TEST_CASE("ATextIsCompiledAndLaunched", "[nvrtc][source]") {
  Bench bench;
  const Kernel kernel = bench.get(kScaleSource);
  CHECK(kernel.parameter_bytes() == std::vector<std::size_t>{8, 4, 4});
  CHECK(kernel.info().kernel == "scale");
  CHECK(kernel.info().canonical == "source;name=scale;allow_spills=true");
  CHECK(kernel.info().symbol == "_Z5scalePffi");
  CHECK(kernel.info().registers > 0);
  float* const x = reinterpret_cast<float*>(4096);
  CHECK(kernel
            .launch(nullptr, {.grid = {5, 6, 7}, .block = {8, 4, 2}, .shared_bytes = 100000}, x,
                    2.0f, 17)
            .ok());
  REQUIRE(bench.fake->launches.size() == 1);
  const test::FakeLaunch& launch = bench.fake->launches.back();
  CHECK(launch.kernel == "_Z5scalePffi");
  CHECK(launch.config.gridDimX == 5);
  CHECK(launch.config.gridDimY == 6);
  CHECK(launch.config.gridDimZ == 7);
  CHECK(launch.config.blockDimX == 8);
  CHECK(launch.config.blockDimY == 4);
  CHECK(launch.config.blockDimZ == 2);
  CHECK(launch.config.sharedMemBytes == 100000);
  CHECK(launch.attributes.empty());
  REQUIRE(launch.arguments.size() == 16);
  float by = 0;
  std::memcpy(&by, launch.arguments.data() + 8, sizeof(by));
  CHECK(by == 2.0f);
}

TEST_CASE("ALaunchOfATextHasItsAttributes", "[nvrtc][source]") {
  Bench bench;
  const Kernel kernel = bench.get({.name = "k", .source = "__global__ void k() {}"});
  CHECK(kernel.parameter_bytes().empty());
  CHECK(bench.fake->shared_bytes["_Z1kv"] == std::set<int>{227 << 10});
  CHECK(bench.fake->large_clusters == std::set<std::string>{"_Z1kv"});
  CHECK(kernel
            .launch(nullptr, {.grid = {32, 2, 4},
                              .block = {32},
                              .cluster = {16, 1, 2},
                              .cooperative = true,
                              .enable_pdl = true})
            .ok());
  const auto& attributes = bench.fake->launches.back().attributes;
  REQUIRE(attributes.size() == 3);
  CHECK(attributes[0].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  CHECK(attributes[0].value.clusterDim.x == 16);
  CHECK(attributes[0].value.clusterDim.z == 2);
  CHECK(attributes[1].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  CHECK(attributes[2].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  CHECK(attributes[2].value.cooperative == 1);
}

TEST_CASE("AnArgumentOfEverySizePasses", "[nvrtc][source]") {
  // A struct of so many bytes by value, between two others.
  const auto check = [](const auto& argument) {
    using Argument = std::decay_t<decltype(argument)>;
    Bench bench;
    const std::string source = "struct alignas(" + std::to_string(alignof(Argument)) +
                               ") Bytes { char b[" + std::to_string(sizeof(Argument)) +
                               "]; };\n"
                               "__global__ void k(char first, Bytes all, double last) {}";
    const Kernel kernel = bench.get({.name = "k", .source = source});
    CHECK(kernel.parameter_bytes() == std::vector<std::size_t>{1, sizeof(Argument), 8});
    CHECK(kernel.launch(nullptr, {.block = {1}}, 'a', argument, 1.5).ok());
    const std::vector<char>& passed = bench.fake->launches.back().arguments;
    REQUIRE(passed.size() == 1 + sizeof(Argument) + 8);
    CHECK(passed[0] == 'a');
    std::vector<char> bytes(sizeof(Argument));
    std::memcpy(bytes.data(), &argument, bytes.size());
    CHECK(std::vector<char>(passed.begin() + 1, passed.end() - 8) == bytes);
  };
  const auto check_bytes = [&]<std::size_t kBytes>() {
    std::array<char, kBytes> bytes{};
    for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 + 1);
    check(bytes);
  };
  check_bytes.operator()<1>();
  check_bytes.operator()<2>();
  check_bytes.operator()<3>();
  check_bytes.operator()<5>();
  check_bytes.operator()<16>();
  check_bytes.operator()<127>();
  check_bytes.operator()<4000>();
  check_bytes.operator()<4352>();  // more than a kernel could have before
  check_bytes.operator()<20000>();
  struct alignas(16) Vector {
    float x[4];
  };
  struct alignas(64) Line {
    char bytes[64];
  };
  struct alignas(128) Lines {
    char bytes[256];
  };
  check(Vector{{1, 2, 3, 4}});
  check(Line{"a line"});
  check(Lines{"two lines"});
}

// Of as many sizes at once as a kernel can take.
TEST_CASE("ParametersOfManySizesAreRead", "[nvrtc][source]") {
  const auto check = [](std::size_t from, std::size_t step, std::size_t to) {
    Bench bench;
    std::string structs;
    std::string parameters;
    std::vector<std::size_t> sizes;
    std::vector<const void*> arguments;
    const std::vector<char> bytes(4096, 'x');
    for (std::size_t size = from; size <= to; size += step) {
      structs += fmt::format("struct S{0} {{ char b[{0}]; }};\n", size);
      parameters += fmt::format("{0}S{1} s{1}", sizes.empty() ? "" : ", ", size);
      sizes.push_back(size);
      arguments.push_back(bytes.data());
    }
    const std::string source = structs + "__global__ void k(" + parameters + ") {}";
    const Kernel kernel = bench.get({.name = "k", .source = source});
    CHECK(kernel.parameter_bytes() == sizes);
    CHECK(bench.fake->absent_parameters == 0);
    const auto launch = [&] {
      return kernel.launch_array(nullptr, {.block = {1}}, arguments.data(), sizes.data(),
                                 sizes.size());
    };
    CHECK(launch().ok());
    // One of another size, wherever it is.
    for (std::size_t& size : sizes) {
      ++size;
      CHECK(launch().code() == Code::kInvalidArgument);
      --size;
    }
    CHECK(bench.fake->launches.size() == 1);
  };
  check(1, 1, 250);
  check(251, 97, 2400);
  check(2403, 211, 4091);
  check(4088, 1, 4094);
  check(4095, 1, 4096);
}

TEST_CASE("ArgumentsThatTheKernelDoesNotTakeAreRefused", "[nvrtc][source]") {
  Bench bench;
  const Kernel kernel = bench.get(kScaleSource);
  const Launch launch{.block = {64}};
  float* const x = nullptr;
  const std::string key = "; key: source;name=scale;allow_spills=true";
  CHECK(invalid(kernel.launch(nullptr, launch, x, 2.0f)) ==
        "scale has 2 arguments; accepted: 3, of [8, 4, 4] bytes" + key);
  CHECK(invalid(kernel.launch(nullptr, launch)) ==
        "scale has 0 arguments; accepted: 3, of [8, 4, 4] bytes" + key);
  CHECK(invalid(kernel.launch(nullptr, launch, x, 2.0f, 1, 1)) ==
        "scale has 4 arguments; accepted: 3, of [8, 4, 4] bytes" + key);
  CHECK(invalid(kernel.launch(nullptr, launch, x, 2.0, 1)) ==
        "argument 2 of scale has 8 bytes; accepted: 4" + key);
  CHECK(invalid(kernel.launch(nullptr, launch, x, 2.0f, std::int64_t{1})) ==
        "argument 3 of scale has 8 bytes; accepted: 4" + key);
  CHECK(invalid(kernel.launch(nullptr, launch, 'x', 2.0f, 1)) ==
        "argument 1 of scale has 1 bytes; accepted: 8" + key);
  CHECK(bench.fake->launches.empty());
  void* const untyped = nullptr;
  CHECK(kernel.launch(nullptr, launch, untyped, 2.0f, 1u).ok());
}

TEST_CASE("GridsAndBlocksThatAreNoneAreRefused", "[nvrtc][source]") {
  Bench bench;
  bench.fake->threads_per_block = 512;  // what the kernel's registers allow
  bench.fake->own_shared_bytes = 1024;
  const Kernel kernel = bench.get({.name = "k", .source = "__global__ void k() {}"});
  const auto why = [&](const Launch& launch) {
    const std::string text = invalid(kernel.launch(nullptr, launch));
    return text.substr(0, text.find("; key: "));
  };
  CHECK(why({.grid = {0}, .block = {1}}) == "grid is 0 x 1 x 1; accepted: at least 1 each way");
  CHECK(why({.grid = {1, 0}, .block = {1}}) == "grid is 1 x 0 x 1; accepted: at least 1 each way");
  const std::string most = "; accepted: 1 to 512 threads, z at most 64";
  CHECK(why({}) == "block is 0 x 1 x 1" + most);
  CHECK(why({.block = {32, 0}}) == "block is 32 x 0 x 1" + most);
  CHECK(why({.block = {513}}) == "block is 513 x 1 x 1" + most);
  CHECK(why({.block = {32, 32}}) == "block is 32 x 32 x 1" + most);
  CHECK(why({.block = {1, 1, 65}}) == "block is 1 x 1 x 65" + most);
  CHECK(why({.block = {1u << 31, 1u << 31, 4}}) == "block is 2147483648 x 2147483648 x 4" + most);
  CHECK(why({.block = {1}, .shared_bytes = 231425}) ==
        "shared_bytes is 231425; accepted: at most 231424, what the device gives a block less the "
        "kernel's own");
  CHECK(why({.grid = {6}, .block = {1}, .cluster = {4}}) ==
        "cluster is 4 x 1 x 1; accepted: at least 1 each way, and what divides the grid of 6 x 1 x "
        "1");
  CHECK(why({.grid = {6}, .block = {1}, .cluster = {0}}) ==
        "cluster is 0 x 1 x 1; accepted: at least 1 each way, and what divides the grid of 6 x 1 x "
        "1");
  CHECK(bench.fake->launches.empty());
  CHECK(kernel.launch(nullptr, {.block = {8, 1, 64}, .shared_bytes = 231424}).ok());
}

TEST_CASE("ADeviceWithoutClustersSaysSoOfATextToo", "[nvrtc][source]") {
  Bench bench;
  bench.fake->major = 8;
  const Kernel kernel = bench.get({.name = "k", .source = "__global__ void k() {}"});
  CHECK(bench.fake->large_clusters.empty());
  const Status status = kernel.launch(nullptr, {.grid = {2}, .block = {1}, .cluster = {2}});
  CHECK(status.code() == Code::kUnsupported);
  CHECK(kernel.launch(nullptr, {.block = {1}, .cooperative = true}).ok());
}

TEST_CASE("ADriverThatRefusesLargeClustersLoadsTheKernel", "[nvrtc][source]") {
  Bench bench;
  bench.fake->set_cluster = CUDA_ERROR_NOT_SUPPORTED;
  CHECK(bench.get(kScaleSource).launch(nullptr, {.block = {1}}, 0l, 1.0f, 1).ok());
}

TEST_CASE("NamesOfEverySortAreFound", "[nvrtc][source]") {
  Bench bench;
  const std::string source = R"(
namespace ns {
template <class T, int kN> __global__ void scale(T* x, int n) { x[0] *= kN; }
__global__ void plain(double* x) {}
template <class T> struct Of {};
}
template <class... T> __global__ void many(T... t) {}
extern "C" __global__ void c_name(char c) {}
static __global__ void hidden(short s) {}
namespace { __global__ void nameless(int i) {} }
)";
  const auto sizes = [&](const std::string& name, const std::string& plain) {
    const Kernel kernel = bench.get({.name = name, .source = source});
    CHECK(kernel.info().kernel == plain);
    return kernel.parameter_bytes();
  };
  using Sizes = std::vector<std::size_t>;
  CHECK(sizes("ns::scale<float, 4>", "scale") == Sizes{8, 4});
  CHECK(sizes("::ns::scale< double , (3 > 2) >", "scale") == Sizes{8, 4});
  CHECK(sizes("ns::plain", "plain") == Sizes{8});
  CHECK(sizes("many<int, double, ns::Of<char>>", "many") == Sizes{4, 8, 1});
  CHECK(sizes("c_name", "c_name") == Sizes{1});
  CHECK(sizes("hidden", "hidden") == Sizes{2});
  CHECK(sizes("nameless", "nameless") == Sizes{4});
  CHECK(bench.get({.name = "c_name", .source = source}).info().symbol == "c_name");
}

TEST_CASE("OtherKernelsOfATextAreNotCounted", "[nvrtc][source]") {
  Bench bench;
  const std::string spiller =
      "__global__ void __launch_bounds__(1024, 2) other(float* x) {\n"
      "  float v[64];\n"
      "  for (int i = 0; i < 64; ++i) v[i] = x[i * 32];\n"
      "  for (int r = 0; r < 9; ++r) for (int i = 0; i < 64; ++i) v[i] = v[i] * v[63 - i] + x[r];\n"
      "  for (int i = 0; i < 64; ++i) x[i] = v[i];\n}\n";
  const Kernel kernel =
      bench.get({.name = "scale", .source = spiller + kScale, .allow_spills = false});
  CHECK(kernel.info().spill_store_bytes == 0);
  CHECK(kernel.info().registers < 20);

  const Status status = bench.refusal({.name = "other", .source = spiller, .allow_spills = false});
  CHECK(status.code() == Code::kCompileFailed);
  CHECK(status.message().starts_with("other spills registers, "));
  CHECK(has(status.message(), " bytes of stores and "));
  CHECK(has(status.message(), "allow_spills is false; accepted: a kernel without spills; key: "));
  CHECK(has(status.log(), "bytes spill stores"));
  // Where they are allowed it is another kernel of the cache, with the numbers.
  const KernelInfo info = bench.get({.name = "other", .source = spiller}).info();
  CHECK(info.spill_store_bytes > 0);
  CHECK(bench.refusal({.name = "other", .source = spiller, .allow_spills = false}).message() ==
        status.message());
}

TEST_CASE("TextsAndNamesThatAreNoneAreRefused", "[nvrtc][source]") {
  Bench bench;
  CHECK(bench.invalid({.name = "scale(", .source = kScale}).starts_with("name is \"scale(\""));
  CHECK(bench.invalid({.name = "scale", .source = ""}) ==
        "source of scale is empty; accepted: CUDA C++ with a __global__ function");
  CHECK(has(bench.invalid({.name = "scale", .source = " \n\t"}), "is empty"));
  CHECK(has(bench.invalid({.name = "scale", .source = std::string("a\0b", 3)}), "zero byte at 1"));
  CHECK(has(bench.invalid({.name = "scale", .source = kScale, .options = {"-I/usr/include"}}),
            "options has \"-I/usr/include\"; accepted: folders"));
}

TEST_CASE("ATextWithoutTheFunctionSaysSo", "[nvrtc][source]") {
  Bench bench;
  const std::string none = bench.not_compiled({.name = "scales", .source = kScale});
  CHECK(
      none.starts_with("scales.cu has no one __global__ function scales: identifier \"scales\" is "
                       "undefined; accepted: the name of one, "));
  CHECK(has(bench.not_compiled({.name = "f", .source = "__device__ void f(int*) {}"}),
            "f.cu has no one __global__ function f: "));
  CHECK(has(bench.not_compiled({.name = "f", .source = "__device__ int f;"}),
            "f.cu has no one __global__ function f: "));
  CHECK(has(bench.not_compiled(
                {.name = "k", .source = "__global__ void k(int*) {} __global__ void k(float*) {}"}),
            "k.cu has no one __global__ function k: cannot determine which instance of overloaded "
            "function \"k\" is intended; "));
  CHECK(has(
      bench.not_compiled({.name = "k", .source = "template <class T> __global__ void k(T*) {}"}),
      "cannot determine which instance of function template \"k\""));
}

TEST_CASE("ATextThatDoesNotCompileHasTheCompilersLog", "[nvrtc][source]") {
  Bench bench;
  const Status status =
      bench.refusal({.name = "ns::scale", .source = "\n\n__global__ void scale( {"});
  CHECK(status.code() == Code::kCompileFailed);
  CHECK(status.message().starts_with("scale: compile failed on sm_90a (NVRTC "));
  CHECK(has(status.message(), "; key: source;name=ns::scale;allow_spills=true"));
  CHECK(has(status.log(), "scale.cu(3): error: "));
  CHECK(bench.fake->libraries == 0);
}

TEST_CASE("OptionsReachTheCompiler", "[nvrtc][source]") {
  Bench bench;
  const std::string source =
      "struct Bytes { char b[SIZE]; };\n__global__ void k(Bytes b) {}\n"
      "static_assert(__cplusplus == 201703L);";
  const Kernel kernel =
      bench.get({.name = "k",
                 .source = source,
                 .options = {"-D", "SIZE=2 + 1", "--std=c++17", "-lineinfo", "--use_fast_math",
                             "--maxrregcount=32", "-w", "-Xptxas=-O2,-warn-spills", "--fmad=false",
                             "--extra-device-vectorization", "--restrict", "-diag-suppress=177",
                             "--split-compile=1"}});
  CHECK(kernel.parameter_bytes() == std::vector<std::size_t>{3});
  // Each of the table's options by itself is one that this compiler knows.
  for (const char* option :
       {"-G",
        "--dopt=on",
        "--Ofast-compile=min",
        "--jump-table-density=50",
        "--device-int128",
        "--device-stack-protector=false",
        "--builtin-move-forward=false",
        "--builtin-initializer-list=false",
        "--minimal",
        "-diag-warn=177",
        "-diag-error=177",
        "-err-no",
        "-no-err-no",
        "-brief-diag=true",
        "-opt-info=inline",
        "--ftz=true",
        "--prec-sqrt=false",
        "--prec-div=false",
        "-default-device",
        "-UX",
        "-Xptxas=-v,-O3,-dlcm=ca,-dscm=wb,-fmad=true,-w",
        "-Xptxas=-flcm=cg,-fscm=cg",
        "-Xptxas=-allow-expensive-optimizations=true,-disable-optimizer-consts,-no-bb-merge",
        "-Xptxas=-opt-fp-atomics,-regUsageLevel=5,-ret-end,-warn-lmem-usage,-warn-double-usage",
        "-Xptxas=-sp-bounds-check",
        "-Xptxas=-Werror"}) {
    INFO(option);
    const Result<Kernel> one = bench.context().get(
        {.name = "k", .source = "__global__ void k(int) {}", .options = {option}});
    if (!one) FAIL_CHECK(one.error().message() << one.error().log());
  }
}

TEST_CASE("ATextIncludesTheLibraryAndItsFolders", "[nvrtc][source]") {
  Bench bench;
  const std::string kernel = "\n__global__ void k(float* x) { *x = 1; }";
  CHECK(bench
            .get({.name = "k",
                  .source = "#include \"common/warp.cuh\"\n#include <cubinery/dtype.h>" + kernel})
            .parameter_bytes()
            .size() == 1);
  for (const std::string include :
       {"#include <cuda_bf16.h>", "#include \"other.h\"", "#include </etc/passwd>",
        "#include \"/etc/passwd\"", "#include \"common/../../../etc/passwd\"",
        "#include \"common/none.cuh\"", "#include \"gdn_decode/key.h\"",
        "#define H <cstdint>\n#include H", "#  include\\\n <cstdint>",
        "/* */ # /* */ include <cstdint>", "%:include <cstdint>", "#include_next <cstdint>",
        "#embed \"/etc/passwd\""}) {
    INFO(include);
    CHECK(bench.refusal({.name = "k", .source = include + kernel}).code() == Code::kCompileFailed);
  }
  // What only looks like one, and what is not reached.
  for (const std::string text :
       {"// #include <cstdint>\n/*\n#include <a>\n*/", "#if 0\n#include <cstdint>\n#endif",
        "#if __has_include(<cstdint>)\n#error\n#endif"}) {
    INFO(text);
    CHECK(bench.context().compile({.name = "k", .source = text + kernel}));
  }
  const std::string folder = bench.dir.path() + "/own";
  std::filesystem::create_directories(folder);
  const KernelSource own{.name = "k",
                         .source = "#include \"own.h\"\n__global__ void k(Own x) {}",
                         .includes = {folder}};
  for (const std::size_t bytes : {std::size_t{3}, std::size_t{5}}) {  // an edit is another kernel
    test::write_bytes(folder + "/own.h",
                      "struct Own { char b[" + std::to_string(bytes) + "]; };\n");
    CHECK(bench.get(own).parameter_bytes() == std::vector<std::size_t>{bytes});
  }
}

// Whatever changes the code is another kernel of the cache; nothing else is.
TEST_CASE("TheIdentityOfATextCoversAllOfIt", "[nvrtc][source]") {
  Bench bench;
  const Context context = bench.context();
  const auto identity = [&](const KernelSource& source) {
    return context.explain(source).value().identity;
  };
  const KernelSource base{.name = "scale", .source = kScale, .options = {"-DX=1"}};
  std::vector<std::string> others;
  KernelSource other = base;
  other.source += " ";
  others.push_back(identity(other));
  other = base;
  other.name = "::scale";
  others.push_back(identity(other));
  other = base;
  other.options = {};
  others.push_back(identity(other));
  other.options = {"-DX=1", "-DY"};
  others.push_back(identity(other));
  other.options = {"-DX=1 -DY"};
  others.push_back(identity(other));
  other.options = {"-DY", "-DX=1"};
  others.push_back(identity(other));
  other = base;
  other.allow_spills = false;
  others.push_back(identity(other));
  others.push_back(identity(base));
  std::sort(others.begin(), others.end());
  CHECK(std::adjacent_find(others.begin(), others.end()) == others.end());
  other = base;
  other.options = {"--define-macro", "X=1"};
  CHECK(identity(other) == identity(base));
  CHECK(identity(base).starts_with(
      "cubinery identity 1\nkernel 5:scale\nkey 35:source;name=scale;allow_spills=true\n"
      "template 32:"));
  const Explanation found = context.explain(base).value();
  CHECK(found.source == kScale);
  CHECK(found.source_path == "scale.cu");
  CHECK(found.options.back() == "--gpu-architecture=sm_90a");
}

TEST_CASE("AKeyedSpecificationDoesNotPassForATexts", "[nvrtc][source]") {
  Bench bench;
  const Result<CompiledKernel> compiled = bench.context().compile(
      KernelSpec{.kernel = "gdn_decode", .canonical = "source;name=gdn_decode;allow_spills=true"});
  REQUIRE_FALSE(compiled);
  CHECK(compiled.error().code() == Code::kInvalidKey);
  // A text may well be called so.
  const Kernel kernel = bench.get({.name = "source", .source = "__global__ void source() {}"});
  CHECK(kernel.info().kernel == "source_");
  CHECK(bench.get({.name = "gdn_decode", .source = "__global__ void gdn_decode() {}"})
            .launch(nullptr, {.block = {1}})
            .ok());
}

// Persistent: entries that are in caches stay valid.
TEST_CASE("TheIdentityOfAKeyIsWhatItWas", "[nvrtc][source]") {
  test::Workshop shop;
  const Context context = test::context_of(shop.options());
  const std::string identity = context.explain(test::twice_spec()).value().identity;
  CHECK(identity.substr(0, identity.find("\nnvrtc ")) ==
        "cubinery identity 1\n"
        "kernel 5:twice\n"
        "key 16:twice;threads=64\n"
        "template 32:0ccceea316a75e9c06f6fe47a192ab94\n"
        "headers 32:" +
            headers_digest(embedded_templates()) +
            "\n"
            "options 143:-std=c++20 -default-device --no-source-include --modify-stack-limit=false "
            "-Xptxas=-v --no-cache -DCUBINERY_KEY="
            "83a683fbea8409f8d5435c1df6019e35\n"
            "arch 6:sm_90a");
  const std::string path = context.compile(test::twice_spec())->path;
  const EntryFile file = read_entry_file(*posix_env(), path, Trust{});
  REQUIRE(file.entry);
  CHECK_FALSE(has(file.entry->metadata, "symbol"));
}

TEST_CASE("AnotherContextFindsATextInTheCache", "[nvrtc][source]") {
  Bench bench;
  bench.get(kScaleSource);
  for (const Options& options : {bench.options(), bench.offline()}) {
    const Context context = Context::create(options).value();
    const Result<Kernel> kernel = context.get(kScaleSource);
    REQUIRE(kernel);
    CHECK(context.stats().compiles == 0);
    CHECK(context.stats().disk_hits == 1);
    CHECK(kernel->info().symbol == "_Z5scalePffi");
    CHECK(kernel->launch(nullptr, {.block = {64}}, 0l, 1.0f, 1).ok());
    CHECK(bench.fake->launches.back().kernel == "_Z5scalePffi");
    CHECK(context.compile(kScaleSource)->source == Source::kMemory);
    const Explanation found = context.explain(kScaleSource).value();
    CHECK(found.cached);
    CHECK(found.info.symbol == "_Z5scalePffi");
  }
}

TEST_CASE("AContextWithoutADeviceFillsTheCacheWithTexts", "[nvrtc][source]") {
  Bench bench;
  Options options = bench.options();
  options.device = kNoDevice;
  options.arch = "sm_90a";
  const Context filling = Context::create(options).value();
  const Result<CompiledKernel> compiled = filling.compile(kScaleSource);
  REQUIRE(compiled);
  CHECK(compiled->source == Source::kCompiled);
  CHECK(compiled->path.find("/entries/scale-") != std::string::npos);
  const Result<Kernel> none = filling.get(kScaleSource);
  CHECK(none.error().code() == Code::kUnsupported);
  CHECK(Context::create(bench.offline())->get(kScaleSource));
}

TEST_CASE("APackHasTexts", "[nvrtc][source]") {
  Bench bench;
  bench.get(kScaleSource);
  bench.get({.name = "k", .source = "__global__ void k() {}"});
  const std::string pack = bench.dir.path() + "/kernels.pack";
  Store store({.dir = bench.options().cache_dir});
  REQUIRE(store.export_pack(
      pack, [](const Identity&) { return true; }, [](const Entry&) { return std::nullopt; }));
  Options options = bench.offline();
  options.cache_dir = bench.dir.path() + "/empty";
  options.cache_layers = {pack};
  const Context context = Context::create(options).value();
  const Result<Kernel> kernel = context.get(kScaleSource);
  REQUIRE(kernel);
  CHECK(kernel->launch(nullptr, {.block = {64}}, 0l, 1.0f, 1).ok());
}

TEST_CASE("OfflineATextThatIsNotCachedSaysWhatToDo", "[nvrtc][source]") {
  Bench bench;
  bench.get(kScaleSource);
  const Context context = Context::create(bench.offline()).value();
  KernelSource other = kScaleSource;
  other.source += "\n";
  const Result<Kernel> kernel = context.get(other);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kNotCached);
  CHECK(
      has(kernel.error().message(),
          "the nearest entry differs in its text; fill the cache by compile() of the same source, "
          "options and includes in a context that is not offline"));
  other = kScaleSource;
  other.options = {"-DX"};
  CHECK(has(context.get(other).error().message(), "the nearest entry differs in options: "));
}

TEST_CASE("TwoContextsCompileATextOnce", "[nvrtc][source]") {
  Bench bench;
  const std::vector<Context> contexts = {bench.context(), bench.context()};
  std::vector<std::thread> threads;
  for (const Context& context : contexts) {
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] { static_cast<void>(context.get(kScaleSource)); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(contexts[0].stats().compiles + contexts[1].stats().compiles == 1);
  CHECK(contexts[0].get(kScaleSource));
  CHECK(contexts[1].get(kScaleSource));
}

// Entries are of others' making: one without the kernel's symbol, or with that of no kernel, is
// passed over.
TEST_CASE("AnEntryThatDoesNotNameItsKernelIsCompiledAgain", "[nvrtc][source]") {
  Bench bench;
  const Context filled = bench.context();
  const std::string path = filled.compile(kScaleSource)->path;
  const EntryFile file = read_entry_file(*posix_env(), path, Trust{});
  REQUIRE(file.entry);
  for (const std::string symbol : {"", "_Z5otherv"}) {
    Entry entry = *file.entry;
    KernelInfo info;
    REQUIRE(read_metadata(entry.metadata, &info));
    info.symbol = symbol;
    entry.metadata = metadata_json(info);
    Store store({.dir = bench.options().cache_dir});
    REQUIRE(store.publish(entry, [](const Entry&) { return std::optional<std::string>("bad"); }));
    const Context context = bench.context();
    CHECK(context.get(kScaleSource));
    CHECK(context.stats().compiles == 1);
    CHECK(context.stats().damaged > 0);
  }
}

}  // namespace
}  // namespace cubinery::source_kernel_test
