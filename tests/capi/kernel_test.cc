// Kernels from texts through the C ABI, on a fake libcuda.
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cache/temp_dir.h"
#include "tests/capi/handles.h"
#include "tests/data/fake_driver.h"

namespace cubinery::c_kernel_test {
namespace {

using nlohmann::json;
using test::ContextHandle;
using test::FakeDriver;
using test::refused;
using test::taken;
using test::TempDir;

using KernelHandle = std::unique_ptr<CubineryKernel, decltype(&cubinery_kernel_destroy)>;

constexpr const char* kScale =
    "__global__ void scale(float* x, float by, int n) { if (n > 0) x[0] *= by; }";

CubineryKernelSource scale_source() {
  CubineryKernelSource source = CUBINERY_KERNEL_SOURCE_INIT;
  source.name = "scale";
  source.source = kScale;
  return source;
}

struct Bench {
  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  TempDir dir;
  ContextHandle context{nullptr, cubinery_context_destroy};

  Bench() {
    const test::OptionsHandle options = test::new_options();
    test::set(options, "driver_path", CUBINERY_FAKE_DRIVER);
    test::set(options, "cache_dir", dir.path());
    CubineryContext* made = nullptr;
    REQUIRE(cubinery_context_create(options.get(), &made) == CUBINERY_OK);
    context.reset(made);
  }

  KernelHandle kernel(const CubineryKernelSource& source) const {
    CubineryKernel* made = nullptr;
    if (cubinery_kernel_from_source(context.get(), &source, &made) != CUBINERY_OK) {
      FAIL(cubinery_last_error());
    }
    return {made, cubinery_kernel_destroy};
  }
  std::string why_none(const CubineryKernelSource& source) const {
    CubineryKernel* made = reinterpret_cast<CubineryKernel*>(1);
    const std::string why = refused(cubinery_kernel_from_source(context.get(), &source, &made));
    CHECK(made == nullptr);
    return why;
  }
};

TEST_CASE("ATextIsLaunchedFromC", "[nvrtc]") {
  const Bench bench;
  const KernelHandle kernel = bench.kernel(scale_source());
  float* x = nullptr;
  float by = 2;
  int n = 7;
  void* args[] = {&x, &by, &n};
  size_t sizes[] = {sizeof x, sizeof by, sizeof n};
  CubineryKernelLaunch launch = CUBINERY_KERNEL_LAUNCH_INIT;
  launch.grid_x = 8;
  launch.grid_z = 3;
  launch.block_x = 64;
  launch.block_y = 2;
  launch.cluster_x = 4;
  launch.shared_bytes = 1024;
  launch.cooperative = 1;
  launch.enable_pdl = 1;
  const auto launched = [&](size_t count) {
    return cubinery_kernel_launch(kernel.get(), nullptr, &launch, args, sizes, count);
  };
  REQUIRE(launched(3) == CUBINERY_OK);
  REQUIRE(bench.fake->launches.size() == 1);
  const test::FakeLaunch& made = bench.fake->launches.back();
  CHECK(made.config.gridDimX == 8);
  CHECK(made.config.gridDimZ == 3);
  CHECK(made.config.blockDimX == 64);
  CHECK(made.config.blockDimY == 2);
  CHECK(made.config.sharedMemBytes == 1024);
  CHECK(made.attributes.size() == 3);
  REQUIRE(made.arguments.size() == 16);
  float passed = 0;
  std::memcpy(&passed, &made.arguments[8], sizeof passed);
  CHECK(passed == by);
  CHECK(std::memcmp(&made.arguments[12], &n, sizeof n) == 0);

  CHECK(refused(launched(2)).starts_with("scale has 2 arguments; accepted: 3, of [8, 4, 4] bytes"));
  sizes[1] = 8;
  CHECK(refused(launched(3)).starts_with("argument 2 of scale has 8 bytes; accepted: 4"));
  sizes[1] = 4;
  args[2] = nullptr;
  CHECK(refused(launched(3)) == "args[2] is NULL; accepted: a pointer");
  args[2] = &n;
  launch.cooperative = 2;
  CHECK(refused(launched(3)) == "launch->cooperative is 2; accepted: 0, 1");
  launch.cooperative = 0;
  launch.block_x = 0;
  CHECK(refused(launched(3)).starts_with("block is 0 x 2 x 1; accepted: 1 to 1024 threads"));
  launch.struct_size = 3;
  CHECK(refused(launched(3)).starts_with("launch->struct_size is 3; accepted: "));
  CHECK(refused(cubinery_kernel_launch(nullptr, nullptr, &launch, args, sizes, 3)) ==
        "kernel is NULL; accepted: a pointer");
  CHECK(bench.fake->launches.size() == 1);
}

TEST_CASE("AKernelWithoutParametersTakesNoArrays", "[nvrtc]") {
  const Bench bench;
  CubineryKernelSource source = scale_source();
  source.source = "__global__ void scale() {}";
  const KernelHandle kernel = bench.kernel(source);
  CubineryKernelLaunch launch = CUBINERY_KERNEL_LAUNCH_INIT;
  launch.block_x = 1;
  CHECK(cubinery_kernel_launch(kernel.get(), nullptr, &launch, nullptr, nullptr, 0) == CUBINERY_OK);
  CHECK(refused(cubinery_kernel_launch(kernel.get(), nullptr, &launch, nullptr, nullptr, 1)) ==
        "args is NULL; accepted: a pointer");
}

TEST_CASE("ATextIsDescribedCompiledAndExplainedInC", "[nvrtc]") {
  const Bench bench;
  const char* const options[] = {"-DN=1", "-lineinfo"};
  CubineryKernelSource source = scale_source();
  source.options = options;
  source.option_count = 2;
  source.forbid_spills = 1;
  char* text = nullptr;
  REQUIRE(cubinery_context_explain_source(bench.context.get(), &source, &text) == CUBINERY_OK);
  CHECK(json::parse(taken(text))["cached"] == false);
  REQUIRE(cubinery_context_compile_source(bench.context.get(), &source, &text) == CUBINERY_OK);
  const json compiled = json::parse(taken(text));
  CHECK(compiled["source"] == "compiled");
  CHECK(compiled["kernel"] == "scale");
  REQUIRE(cubinery_context_compile_source(bench.context.get(), &source, nullptr) == CUBINERY_OK);
  REQUIRE(cubinery_context_explain_source(bench.context.get(), &source, &text) == CUBINERY_OK);
  const json found = json::parse(taken(text));
  CHECK(found["cached"] == true);
  CHECK(found["path"] == compiled["path"]);
  CHECK(found["canonical"] == "source;name=scale;allow_spills=false");
  CHECK(found["identity"].get<std::string>().find(" -DN=1 -lineinfo\n") != std::string::npos);

  const KernelHandle kernel = bench.kernel(source);
  REQUIRE(cubinery_kernel_info(kernel.get(), &text) == CUBINERY_OK);
  const json info = json::parse(taken(text));
  CHECK(info["symbol"] == "_Z5scalePffi");
  CHECK(info["parameter_bytes"] == json({8, 4, 4}));
  CHECK(info["registers"] > 0);
}

TEST_CASE("ATextThatCannotBeUsedIsRefusedInC", "[nvrtc]") {
  const Bench bench;
  CubineryKernelSource source = scale_source();
  source.name = nullptr;
  CHECK(bench.why_none(source) == "source->name is NULL; accepted: a pointer");
  source = scale_source();
  source.source = nullptr;
  CHECK(bench.why_none(source) == "source->source is NULL; accepted: a pointer");
  source = scale_source();
  source.option_count = 1;
  CHECK(bench.why_none(source) == "source->options is NULL; accepted: a pointer");
  const char* const options[] = {"-DN=1", nullptr};
  source.options = options;
  source.option_count = 2;
  CHECK(bench.why_none(source) == "source->options[1] is NULL; accepted: a pointer");
  source = scale_source();
  source.forbid_spills = 2;
  CHECK(bench.why_none(source) == "source->forbid_spills is 2; accepted: 0, 1");
  source = scale_source();
  source.struct_size = sizeof source + 8;
  CHECK(bench.why_none(source).starts_with("source->struct_size is "));
  // Of an older caller, who has no options yet.
  source = scale_source();
  source.struct_size = offsetof(CubineryKernelSource, includes);
  source.forbid_spills = 7;
  bench.kernel(source);

  source = scale_source();
  source.name = "none";
  CubineryKernel* kernel = nullptr;
  CHECK(cubinery_kernel_from_source(bench.context.get(), &source, &kernel) ==
        CUBINERY_COMPILE_FAILED);
  CHECK(std::string(cubinery_last_error_log()).find("none") != std::string::npos);
  CHECK(refused(cubinery_kernel_from_source(bench.context.get(), &source, nullptr)) ==
        "kernel is NULL; accepted: a pointer");
  CHECK(refused(cubinery_kernel_from_source(nullptr, &source, &kernel)) ==
        "context is NULL; accepted: a pointer");
  cubinery_kernel_destroy(nullptr);
}

}  // namespace
}  // namespace cubinery::c_kernel_test
