// Opening the driver, a device and a kernel, on a fake libcuda (tests/data/fake_driver.h).
#include "runtime/jit/driver.h"

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "gdn_decode/fields.h"
#include "runtime/jit/kernel_state.h"
#include "runtime/jit/tensor_map.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/runtime/cached_kernel.h"

namespace cubinery::driver_test {
namespace {

using test::FakeDriver;
using test::TempDir;

// Offline: NVRTC stays closed.
Options options_for(const std::string& driver) {
  return {.offline = true, .driver_path = driver, .use_disk_cache = false};
}

Options fake_options() { return options_for(CUBINERY_FAKE_DRIVER); }

Status refused(Options options) {
  Result<Context> context = Context::create(std::move(options));
  REQUIRE_FALSE(context);
  return std::move(context).error();
}

std::string unsupported(Options options) {
  const Status status = refused(std::move(options));
  CHECK(status.code() == Code::kUnsupported);
  return std::string(status.message());
}

TEST_CASE("AMissingDriverSaysWhatToInstallOrName", "[cpu]") {
  const std::string text = unsupported(options_for("/nowhere/libcuda.so.1"));
  CHECK(text.starts_with("driver: cannot open /nowhere/libcuda.so.1 (/nowhere/libcuda.so.1: "));
  CHECK(
      text.ends_with("; install the NVIDIA driver, or name its library in Options::driver_path "
                     "(CUBINERY_DRIVER)"));
}

TEST_CASE("AnotherLibraryIsNoDriver", "[cpu]") {
  CHECK(unsupported(options_for("libm.so.6")) == "driver: libm.so.6 is not a CUDA driver");
}

TEST_CASE("AnOldDriverSaysWhichIsNeeded", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->version = 11040;
  CHECK(unsupported(fake_options()) == "driver: " CUBINERY_FAKE_DRIVER
                                       " is for CUDA 11.4; needs 12.8 or newer");
  fake->version = kMinDriverVersion - 10;
  unsupported(fake_options());
  fake->version = kMinDriverVersion;
  CHECK(Context::create(fake_options()));
  fake->version = 14010;
  CHECK(Context::create(fake_options()));
}

TEST_CASE("ADriverWithoutAGpuSaysSo", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->init = CUDA_ERROR_NO_DEVICE;
  CHECK(unsupported(fake_options()) ==
        "driver: no usable GPU: cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is "
        "detected");
  // An error that the driver itself has no name for.
  fake->init = CUDA_ERROR_SYSTEM_NOT_READY;
  CHECK(unsupported(fake_options()) ==
        "driver: no usable GPU: cuInit: unknown error (802): no description");
}

TEST_CASE("WithoutADeviceTheDriverIsNotOpened", "[cpu]") {
  Options options = options_for("/nowhere/libcuda.so.1");
  options.device = kNoDevice;
  options.arch = "sm_90a";
  const Result<Context> context = Context::create(options);
  REQUIRE(context);
  CHECK(context->device() == kNoDevice);
  CHECK(context->sm_count() == 0);
  CHECK(context->arch() == "sm_90a");
}

TEST_CASE("ADeviceOutOfRangeIsAnArgumentError", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->devices = 2;
  for (const int ordinal : {2, 100, -2}) {
    Options options = fake_options();
    options.device = ordinal;
    const Status status = refused(options);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message() == "Options::device = " + std::to_string(ordinal) +
                                  "; accepted: 0 to 1, or kNoDevice (2 devices are visible)");
  }
  Options options = fake_options();
  options.device = 1;
  const Result<Context> context = Context::create(options);
  REQUIRE(context);
  CHECK(context->device() == 1);
}

TEST_CASE("ADeviceGivesItsArchitecture", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->sm_count = 77;
  const Result<Context> context = Context::create(fake_options());
  REQUIRE(context);
  CHECK(context->arch() == "sm_90a");
  CHECK(context->sm_count() == 77);
  CHECK(context->device() == 0);
  CHECK(context->stats().compiles == 0);
}

TEST_CASE("AnUnknownDeviceListsTheKnownArchitectures", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->major = 7;
  const std::string text = unsupported(fake_options());
  CHECK(
      text.starts_with("device 0 (Fake GPU, sm_70) has no known architecture; supported: sm_80, "));
  CHECK(text.find("sm_90a, sm_100a") != std::string::npos);
}

TEST_CASE("TheArchitectureMustRunOnTheDevice", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  Options options = fake_options();
  options.arch = "sm_80";
  CHECK(unsupported(options) ==
        "Options::arch = \"sm_80\" does not run on device 0 (Fake GPU, sm_90); leave it empty for "
        "the device's own");
  fake->major = 8;
  fake->minor = 6;
  const Result<Context> context = Context::create(options);
  REQUIRE(context);
  CHECK(context->arch() == "sm_80");
  options.arch = "sm_86a";
  const Status status = refused(options);
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message().starts_with("Options::arch = \"sm_86a\"; accepted: sm_80, sm_86, "));
}

TEST_CASE("AContextThatCannotBeMadeIsADriverError", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  fake->retain_context = CUDA_ERROR_OUT_OF_MEMORY;
  const Status status = refused(fake_options());
  CHECK(status.code() == Code::kDriver);
  CHECK(status.message() == "cuDevicePrimaryCtxRetain: unknown error (2): no description");
  CHECK(fake->contexts == 0);
}

// A cache that holds the default gdn_decode kernel, and a context on it.
struct Loading {
  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  TempDir dir;
  KernelSpec spec = spec_of(GdnDecodeKey{}).value();

  Context context() {
    Options options = fake_options();
    options.use_disk_cache = true;
    options.cache_dir = dir.path();
    fake->param_bytes["gdn_decode"] = sizeof(GdnDecodeParams);
    Context made = Context::create(options).value();
    CHECK_FALSE(test::store_trivial(made, spec, dir.path()).empty());
    return made;
  }
};

TEST_CASE("AKernelKeepsItsLibraryAndContext", "[cpu]") {
  Loading loading;
  {
    std::optional<Context> context = loading.context();
    CHECK(loading.fake->contexts == 1);
    std::optional<Result<Kernel>> kernel = context->get(loading.spec);
    REQUIRE(*kernel);
    CHECK((*kernel)->info().canonical == loading.spec.canonical);
    CHECK((*kernel)->info().registers == 7);
    CHECK((*kernel)->cuda_function() != nullptr);
    CHECK((*kernel)->launch(nullptr, {}, GdnDecodeParams{}).ok());
    CHECK(context->stats().disk_hits == 1);
    CHECK(context->get(loading.spec));
    CHECK(context->stats().memory_hits == 1);
    CHECK(loading.fake->libraries == 1);
    context.reset();
    CHECK(loading.fake->contexts == 1);
    kernel.reset();
    CHECK(loading.fake->libraries == 0);
    CHECK(loading.fake->contexts == 0);
  }
  CHECK(loading.fake->pushed == 0);
}

// Loading and unloading, and contexts that come and go, leave a capture alone, whoever makes it.
TEST_CASE("NothingInvalidatesAStreamCapture", "[cpu]") {
  Loading loading;
  loading.fake->capturing = true;
  {
    std::optional<Context> context = loading.context();
    std::optional<Result<Kernel>> kernel = context->get(loading.spec);
    CHECK(*kernel);
    context.reset();
    CHECK(loading.fake->libraries == 1);
    kernel.reset();
  }
  CHECK(loading.fake->libraries == 0);
  CHECK(loading.fake->contexts == 0);
  CHECK_FALSE(loading.fake->invalidated);
  // The thread's own mode is as it was: what the caller does wrong is still found.
  using Load = decltype(&cuFuncLoad);
  const auto load = loading.fake.symbol<Load>("cuFuncLoad");
  CHECK(load(nullptr) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(loading.fake->invalidated);
}

TEST_CASE("WhatACaptureKeepsFromUnloadingIsUnloadedLater", "[cpu]") {
  Loading loading;
  std::optional<Context> context = loading.context();
  const auto load_and_free = [&](int refused) {
    loading.fake->refused_unloads = refused;
    CHECK(loading.context().get(loading.spec));
  };
  Result<Kernel> kept = context->get(loading.spec);
  load_and_free(1);  // with a device of its own, which tries again when it ends
  CHECK(loading.fake->libraries == 1);
  loading.fake->refused_unloads = 1;
  context.reset();
  kept = Status(Code::kInvalidArgument, "");
  CHECK(loading.fake->libraries == 0);
  CHECK(loading.fake->contexts == 0);
}

TEST_CASE("ACubinThatTheDriverRefusesIsADriverErrorWithTheKey", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  loading.fake->load_library = CUDA_ERROR_INVALID_IMAGE;
  const Result<Kernel> kernel = context.get(loading.spec);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kDriver);
  CHECK(kernel.error().message() ==
        "cuLibraryLoadData: CUDA_ERROR_INVALID_IMAGE (200): no description; key: " +
            loading.spec.canonical);
  CHECK(loading.fake->libraries == 0);
  CHECK(loading.fake->pushed == 0);
  // Nothing is kept of the failure.
  loading.fake->load_library = CUDA_SUCCESS;
  CHECK(context.get(loading.spec));
}

TEST_CASE("AnEntryThatTheDriverRefusesIsPassedOver", "[cpu]") {
  Loading loading;
  const TempDir layer;
  Options options = fake_options();
  options.use_disk_cache = true;
  options.cache_dir = loading.dir.path();
  options.cache_layers = {layer.path()};
  const Context filled = loading.context();
  const std::string path = test::store_trivial(filled, loading.spec, layer.path());
  const Context context = Context::create(options).value();
  loading.fake->refused_images = 1;
  const Result<Kernel> kernel = context.get(loading.spec);
  REQUIRE(kernel);
  CHECK(kernel->info().registers == 7);
  CHECK(context.stats().damaged == 1);
  CHECK(context.stats().disk_hits == 1);
  CHECK(context.compile(loading.spec)->path == path);
}

// The entry of the kernel with the trivial cubin, as if another compiler had made it.
Entry entry_of_compiler(const Context& context, const KernelSpec& spec,
                        const std::string& version) {
  Entry entry{.identity = test::identity_of(context, spec),
              .metadata = metadata_json({.registers = 9, .log = {}}),
              .cubin = test::trivial_cubin()};
  const std::string mark = ", V" + entry.identity.nvrtc;
  REQUIRE(version.size() == entry.identity.nvrtc.size());
  for (std::size_t at = 0; (at = entry.cubin.find(mark, at)) != std::string::npos; ++at) {
    entry.cubin.replace(at, mark.size(), ", V" + version);
  }
  entry.identity.nvrtc = version;
  return entry;
}

TEST_CASE("OfflineAnOlderCompilersEntryComesAfterARefusedOne", "[cpu]") {
  Loading loading;
  Options options = fake_options();
  options.use_disk_cache = true;
  options.cache_dir = loading.dir.path();
  const Context filled = loading.context();
  const std::string older = test::identity_of(filled, loading.spec).nvrtc;
  std::string newer = older;
  newer.back() = '9';
  REQUIRE(newer > older);
  Store store({.dir = loading.dir.path()});
  REQUIRE(store.publish(entry_of_compiler(filled, loading.spec, newer)));

  const auto loaded_of = [&](int refused) {
    const Context context = Context::create(options).value();
    loading.fake->refused_images = refused;
    const Result<Kernel> kernel = context.get(loading.spec);
    CHECK(context.stats().damaged == static_cast<std::uint64_t>(refused));
    return kernel ? kernel->info().nvrtc : to_string(kernel.error().code());
  };
  CHECK(loaded_of(0) == newer);
  CHECK(loaded_of(1) == older);
  CHECK(loaded_of(2) == "Driver");
}

TEST_CASE("AnEntryThatTheDriverRefusesIsCompiledAgain", "[nvrtc]") {
  Loading loading;
  Options options = fake_options();
  options.offline = false;
  options.use_disk_cache = true;
  options.cache_dir = loading.dir.path();
  loading.fake->param_bytes["gdn_decode"] = sizeof(GdnDecodeParams);
  REQUIRE(Context::create(options).value().compile(loading.spec));

  const Context context = Context::create(options).value();
  loading.fake->refused_images = 2;  // in front of the lock that one compiler has, and behind it
  REQUIRE(context.get(loading.spec));
  CHECK(context.stats().compiles == 1);
  CHECK(context.stats().damaged == 2);
  const Context next = Context::create(options).value();
  REQUIRE(next.get(loading.spec));
  CHECK(next.stats().disk_hits == 1);
}

TEST_CASE("ADeviceWithoutMemoryIsNoFaultOfTheEntry", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  loading.fake->load_library = CUDA_ERROR_OUT_OF_MEMORY;
  const Result<Kernel> kernel = context.get(loading.spec);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kDriver);
  CHECK(context.stats().damaged == 0);
}

TEST_CASE("AKernelThatIsNotInItsCubinIsADriverError", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  loading.fake->get_kernel = CUDA_ERROR_NOT_FOUND;
  const Result<Kernel> kernel = context.get(loading.spec);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code() == Code::kDriver);
  CHECK(kernel.error().message().starts_with("cuLibraryGetKernel: "));
  CHECK(kernel.error().message().ends_with("; key: " + loading.spec.canonical));
  CHECK(loading.fake->libraries == 0);
}

TEST_CASE("AnNvrtcThatIsTooOldIsNamed", "[cpu]") {
  Options options;
  options.device = kNoDevice;
  options.arch = "sm_90a";
  options.nvrtc_path = CUBINERY_FAKE_NVRTC;
  options.use_disk_cache = false;
  const Result<Context> context = Context::create(options);
  REQUIRE(context);
  const Result<std::string> version = context->nvrtc_version();
  REQUIRE_FALSE(version);
  CHECK(version.error().code() == Code::kUnsupported);
  CHECK(version.error().message() == "NVRTC: " CUBINERY_FAKE_NVRTC
                                     " is version 12.7; needs 12.8 or newer");
  CHECK(context->compile(GdnDecodeKey{}).error().message() == version.error().message());
}

// What a copy of the NVRTC of version 99.1, in a folder that the loader does not know, says of the
// probe.
std::string probe_of_copy(const TempDir& dir) {
  const std::string path = dir.path() + "/libnvrtc.so.99";
  std::filesystem::copy_file(CUBINERY_FAKE_NVRTC_99, path);
  const Options options{
      .device = kNoDevice, .arch = "sm_90a", .nvrtc_path = path, .use_disk_cache = false};
  const Result<std::string> version = Context::create(options)->nvrtc_version();
  REQUIRE_FALSE(version);
  CHECK(version.error().code() == Code::kUnsupported);
  const std::string text(version.error().message());
  const std::string start = "NVRTC: " + path + " cannot compile an empty kernel: probe.cu: ";
  REQUIRE(text.starts_with(start));
  return text.substr(start.size());
}

TEST_CASE("TheBuiltinsBesideNvrtcAreFound", "[cpu]") {
  const TempDir bare;
  CHECK(probe_of_copy(bare) ==
        "compile failed: no builtins (NVRTC 99.1); it needs libnvrtc-builtins.so.99.1, which is "
        "neither beside it nor on the loader's search path");
  const TempDir whole;
  const std::filesystem::path builtins(CUBINERY_FAKE_BUILTINS);
  std::filesystem::copy_file(builtins, whole.path() / builtins.filename());
  CHECK(probe_of_copy(whole) == "compile failed: fake (NVRTC 99.1)");
}

TEST_CASE("AKernelTakesAParameterOfTheDeclaredSize", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const std::string bytes = std::to_string(sizeof(GdnDecodeParams));
  loading.fake->param_bytes["gdn_decode"] = 8;
  const Result<Kernel> other = context.get(loading.spec);
  REQUIRE_FALSE(other);
  CHECK(other.error().code() == Code::kInvalidKey);
  CHECK(other.error().message() ==
        "the __global__ function takes a parameter of 8 bytes; accepted: the struct "
        "Fields::Params of " +
            bytes + " bytes; key: " + loading.spec.canonical);
  CHECK(loading.fake->libraries == 0);
}

TEST_CASE("LaunchesPassWhatTheyAreGiven", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const Kernel kernel = context.get(loading.spec).value();
  GdnDecodeParams params{};
  params.requests = 3;
  CHECK(kernel.launch(nullptr, {.grid = {5, 6, 7}}, params).ok());
  REQUIRE(loading.fake->launches.size() == 1);
  const test::FakeLaunch plain = loading.fake->launches.back();
  CHECK(plain.kernel == "gdn_decode");
  CHECK(plain.config.gridDimX == 5);
  CHECK(plain.config.gridDimY == 6);
  CHECK(plain.config.gridDimZ == 7);
  CHECK(plain.config.blockDimX == loading.spec.threads);
  CHECK(plain.attributes.empty());
  const char* bytes = reinterpret_cast<const char*>(&params);
  CHECK(plain.arguments == std::vector<char>(bytes, bytes + sizeof params));

  CHECK(kernel.launch(nullptr, {.grid = {4}, .cluster = {2}, .enable_pdl = true}, params).ok());
  const auto& attributes = loading.fake->launches.back().attributes;
  REQUIRE(attributes.size() == 2);
  CHECK(attributes[0].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  CHECK(attributes[0].value.clusterDim.x == 2);
  CHECK(attributes[1].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  CHECK(loading.fake->pushed == 0);
}

TEST_CASE("ALaunchNeedsParametersOfTheKernelsSize", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const Kernel kernel = context.get(loading.spec).value();
  const Status status = kernel.launch(nullptr, {}, 1.0f);
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message() ==
        "params has 4 bytes; accepted: " + std::to_string(sizeof(GdnDecodeParams)) +
            "; key: " + loading.spec.canonical);
  CHECK(loading.fake->launches.empty());
}

TEST_CASE("AKeySaysTheBlockAndTheOneParameter", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const Kernel kernel = context.get(loading.spec).value();
  const auto why = [&](const Status& status) {
    CHECK(status.code() == Code::kInvalidArgument);
    const std::string text(status.message());
    return text.substr(0, text.find("; key: "));
  };
  const std::string key = std::to_string(loading.spec.threads) + " threads and " +
                          std::to_string(loading.spec.shared_bytes) + " bytes";
  const GdnDecodeParams params{};
  CHECK(why(kernel.launch(nullptr, {.block = {loading.spec.threads}}, params)) ==
        "block is " + std::to_string(loading.spec.threads) +
            " x 1 x 1 and shared_bytes 0; accepted: none, the key says " + key);
  CHECK(why(kernel.launch(nullptr, {.shared_bytes = 16}, params)) ==
        "block is 0 x 1 x 1 and shared_bytes 16; accepted: none, the key says " + key);
  CHECK(why(kernel.launch(nullptr, {.grid = {1, 0}}, params)) ==
        "grid is 1 x 0 x 1; accepted: at least 1 each way");
  CHECK(why(kernel.launch(nullptr, {}, params, 1)) ==
        "gdn_decode has 2 arguments; accepted: 1, of [" + std::to_string(sizeof params) +
            "] bytes");
  CHECK(why(kernel.launch(nullptr, {})) == "gdn_decode has 0 arguments; accepted: 1, of [" +
                                               std::to_string(sizeof params) + "] bytes");
  CHECK(loading.fake->launches.empty());
}

// [rows of a batch][tokens][heads][dims], from the innermost out.
BoxedTensor boxed(std::uintptr_t address) {
  return {.data = reinterpret_cast<const void*>(address),
          .dtype = DType::kF16,
          .extents = {128, 4, 100, 2},
          .strides = {1, 128, 512, 51200},
          .box = {64, 1, 32, 1},
          .swizzle_bytes = 128};
}

TEST_CASE("ATensorMapHasStridesInBytes", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const Kernel kernel = context.get(loading.spec).value();
  TensorMap map{};
  REQUIRE(make_tensor_map(with_context_of(kernel), boxed(4096), &map));
  std::uintptr_t address = 0;
  std::memcpy(&address, map.bytes, sizeof(address));
  CHECK(address == 4096);
  // That of a dimension of one element may be anything.
  BoxedTensor one = boxed(4096);
  one.extents[1] = 1;
  one.strides[1] = 3;
  CHECK(make_tensor_map(with_context_of(kernel), one, &map));
  CHECK(loading.fake->map_strides ==
        std::vector<std::vector<cuuint64_t>>{{256, 1024, 102400}, {16, 1024, 102400}});
}

TEST_CASE("WhatTheCopyEngineCannotReadHasNoTensorMap", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const Kernel kernel = context.get(loading.spec).value();
  TensorMap map{};
  CHECK_FALSE(make_tensor_map(with_context_of(kernel), boxed(4096 + 8), &map));
  for (const std::int64_t stride :
       {std::int64_t{0}, std::int64_t{-512}, std::int64_t{516}, std::int64_t{1} << 39}) {
    BoxedTensor strided = boxed(4096);
    strided.strides[2] = stride;
    CHECK_FALSE(make_tensor_map(with_context_of(kernel), strided, &map));
  }
  CHECK(loading.fake->map_strides.empty());
  loading.fake->encode = CUDA_ERROR_INVALID_VALUE;
  CHECK_FALSE(make_tensor_map(with_context_of(kernel), boxed(4096), &map));
}

TEST_CASE("ALaunchThatCudaRefusesIsADriverError", "[cpu]") {
  Loading loading;
  const Context context = loading.context();
  const Kernel kernel = context.get(loading.spec).value();
  loading.fake->launch = CUDA_ERROR_INVALID_VALUE;
  const Status status = kernel.launch(nullptr, {}, GdnDecodeParams{});
  CHECK(status.code() == Code::kDriver);
  CHECK(status.message().starts_with("cuLaunchKernelEx: "));
  CHECK(status.message().ends_with("; key: " + loading.spec.canonical));
}

}  // namespace
}  // namespace cubinery::driver_test
