// Libraries that are written for DeepJIT, on a GPU: what reaches the device of their launches.
#include <cuda.h>
#include <stdlib.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/compat/deep_jit.hpp"
#include "tests/cache/temp_dir.h"
#include "tests/gpu/gpu_test.h"
#define ROW_OPS_ON_CUBINERY
#include "tests/compat/row_ops/row_ops.h"

namespace cubinery::test {
namespace {

// A library whose cache is empty.
struct DeepJitLibrary {
  TempDir dir;

  DeepJitLibrary() {
    ::setenv("ROW_OPS_JIT_CACHE_DIR", dir.path().c_str(), 1);
    row_ops::init(CUBINERY_TEST_DIR "/compat/row_ops");
  }
  DeepJitLibrary(const DeepJitLibrary&) = delete;
  DeepJitLibrary& operator=(const DeepJitLibrary&) = delete;
  ~DeepJitLibrary() { ::unsetenv("ROW_OPS_JIT_CACHE_DIR"); }
};

template <class T>
DeviceBuffer uploaded(const std::vector<T>& numbers) {
  DeviceBuffer buffer(gpu(), numbers.size() * sizeof(T));
  std::vector<std::byte> bytes(buffer.bytes());
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  buffer.upload(bytes);
  return buffer;
}

template <class T>
std::vector<T> downloaded(const DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.download();
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

bool has_cluster_launches() { return has_clusters(parse_arch(gpu().context().arch())->major); }

TEST_CASE("DeepJit.ALibrarysKernelScalesItsRows", "[gpu][sanitize]") {
  const DeepJitLibrary library;
  for (const int cols : {100, 1000}) {
    const int rows = 5;
    std::vector<float> x;
    std::vector<float> expected;
    for (int i = 0; i < rows * cols; ++i) {
      x.push_back(static_cast<float>(i % 64));
      expected.push_back(2.5f * x.back() + 5.0f);
    }
    const DeviceBuffer from = uploaded(x);
    const DeviceBuffer to(gpu(), x.size() * sizeof(float));
    const DeviceStream stream = make_stream(gpu());
    row_ops::scale({.y = static_cast<float*>(to.data()),
                    .x = static_cast<const float*>(from.data()),
                    .rows = rows,
                    .cols = cols},
                   2.5f, stream.get());
    gpu().synchronize();
    CHECK(downloaded<float>(to) == expected);
    CHECK(to.guards_intact());
  }
  CHECK(row_ops::sm_count() == gpu().context().sm_count());
}

TEST_CASE("DeepJit.ArgumentsByValueAndFromElsewhereArrive", "[gpu][sanitize]") {
  if (!has_cluster_launches()) return skip_test("no clusters before sm_90");
  const DeepJitLibrary library;
  const DeviceBuffer out(gpu(), 2 * sizeof(double));
  row_ops::Pair elsewhere{3, 4.5};
  row_ops::put_pair(static_cast<double*>(out.data()), {1, 2.5}, {&elsewhere}, nullptr);
  gpu().synchronize();
  CHECK(downloaded<double>(out) == std::vector<double>{33, 33});
}

TEST_CASE("DeepJit.ALaunchHasThreeDimensionsAndALargeCluster", "[gpu]") {
  const DeepJitLibrary library;
  const auto kernel = row_ops::jit->compile("place", R"(
extern "C" __global__ void place(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = block * threads + thread;
}
)");
  constexpr unsigned kThreads = 16 * 3 * 2 * 8 * 4 * 2;
  std::vector<unsigned> expected;
  for (unsigned i = 0; i < kThreads; ++i) expected.push_back(i);
  const bool has_clusters = has_cluster_launches();
  const DeviceBuffer out(gpu(), kThreads * sizeof(unsigned));
  for (const unsigned cluster : {1u, 8u, 16u}) {
    if (cluster > 1 && !has_clusters) continue;
    row_ops::jit->launch(kernel,
                         {.grid_dim = dim3(16, 3, 2),
                          .block_dim = dim3(8, 4, 2),
                          .cluster_dim = dim3(cluster, 1, 1),
                          .nonportable_cluster_size_allowed = true},
                         static_cast<unsigned*>(out.data()));
    gpu().synchronize();
    CHECK(downloaded<unsigned>(out) == expected);
  }
}

// A loaded kernel's launch may be captured.
TEST_CASE("DeepJit.ALaunchIsCaptured", "[gpu]") {
  const DeepJitLibrary library;
  const auto kernel = row_ops::jit->compile(
      "add", "extern \"C\" __global__ void add(int* x, int by) { x[threadIdx.x] += by; }");
  const DeviceBuffer x = uploaded(std::vector<int>(32, 1));
  const DeviceStream stream = make_stream(gpu());
  const Driver& driver = gpu().driver();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  gpu().must(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL),
             "cuStreamBeginCapture");
  row_ops::jit->launch(kernel, {.stream = stream.get(), .grid_dim = dim3(1), .block_dim = dim3(32)},
                       x.data(), 4);
  gpu().must(driver.cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
  gpu().must(driver.cuGraphInstantiateWithFlags(&executable, graph, 0),
             "cuGraphInstantiateWithFlags");
  for (int i = 0; i < 3; ++i) {
    gpu().must(driver.cuGraphLaunch(executable, stream.get()), "cuGraphLaunch");
  }
  gpu().synchronize();
  CHECK(downloaded<int>(x) == std::vector<int>(32, 13));
  gpu().must(driver.cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  gpu().must(driver.cuGraphDestroy(graph), "cuGraphDestroy");
}

TEST_CASE("DeepJit.WhatTheDriverSaysOfAKernelIsOfItsHandle", "[gpu]") {
  const DeepJitLibrary library;
  const auto kernel = row_ops::jit->compile(
      "add", "extern \"C\" __global__ void add(int* x, int by) { x[threadIdx.x] += by; }");
  int registers = 0;
  const auto get = reinterpret_cast<decltype(&::cuFuncGetAttribute)>(
      deep_jit::internal::symbol(deep_jit::cuda::driver::get_cuda_handle(), "cuFuncGetAttribute"));
  DJ_CUDA_DRIVER_CHECK(get(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->kernel_handle));
  CHECK(registers == kernel->kernel()->info().registers);
  CHECK_THROWS_AS(row_ops::jit->launch(kernel, {.grid_dim = dim3(1), .block_dim = dim3(32)}, 1),
                  deep_jit::exception::Exception);
}

}  // namespace
}  // namespace cubinery::test
