// Kernels from texts: launches on a fake libcuda, cubins of the real NVRTC.
#include <cstring>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"

namespace cubinery::source_kernel_test {
namespace {

using test::FakeDriver;
using test::TempDir;

constexpr const char* kScale = R"(
__global__ void scale(float* x, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
)";

struct Bench {
  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  TempDir dir;

  Options options() const { return {.driver_path = CUBINERY_FAKE_DRIVER, .cache_dir = dir.path()}; }
  Context context() const { return Context::create(options()).value(); }
};

TEST_CASE("ATextIsCompiledAndLaunched", "[nvrtc]") {
  Bench bench;
  const Context context = bench.context();
  const Result<Kernel> kernel = context.get({.name = "scale", .source = kScale});
  if (!kernel) FAIL(std::string(kernel.error().message()));
  CHECK(kernel->parameter_bytes() == std::vector<std::size_t>{8, 4, 4});
  float* const x = reinterpret_cast<float*>(4096);
  const Status status = kernel->launch(
      nullptr, {.grid = {5, 6, 7}, .block = {8, 4, 2}, .shared_bytes = 100000}, x, 2.0f, 17);
  if (!status.ok()) FAIL(std::string(status.message()));
  REQUIRE(bench.fake->launches.size() == 1);
  const test::FakeLaunch& launch = bench.fake->launches.back();
  CHECK(launch.kernel == "_Z5scalePffi");
  CHECK(launch.config.gridDimZ == 7);
  CHECK(launch.config.blockDimX == 8);
  CHECK(launch.config.blockDimY == 4);
  CHECK(launch.config.blockDimZ == 2);
  CHECK(launch.config.sharedMemBytes == 100000);
  REQUIRE(launch.arguments.size() == 16);
  float by = 0;
  std::memcpy(&by, launch.arguments.data() + 8, sizeof(by));
  CHECK(by == 2.0f);
}

}  // namespace
}  // namespace cubinery::source_kernel_test
