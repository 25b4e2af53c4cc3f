// Kernels from texts on a GPU: what reaches the device of a launch.
#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "codegen/arch.h"
#include "tests/cache/temp_dir.h"
#include "tests/gpu/gpu_test.h"

namespace cubinery::test {
namespace {

Kernel kernel_of(const KernelSource& source) {
  Result<Kernel> kernel = gpu().context().get(source);
  if (!kernel) FAIL(kernel.error().message() << kernel.error().log());
  return *std::move(kernel);
}

void must_launch(const Status& status) {
  if (!status.ok()) FAIL(status.message());
  gpu().synchronize();
}

template <class T>
std::vector<T> numbers_in(const DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.download();
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

bool device_has_clusters() { return has_clusters(parse_arch(gpu().context().arch())->major); }

struct alignas(32) Wide {
  double x[4];
};
struct Odd {
  char bytes[3];
};
struct Large {
  int x[1000];  // 4,000 bytes
};

TEST_CASE("SourceKernel.ArgumentsOfEverySortArrive", "[gpu][sanitize]") {
  const Kernel kernel = kernel_of({.name = "ns::take<short>", .source = R"(
struct alignas(32) Wide { double x[4]; };
struct Odd { char bytes[3]; };
struct Large { int x[1000]; };
namespace ns {
template <class T>
__global__ void take(char c, Odd odd, T s, Wide wide, bool b, double* out, Large large, float f,
                     long long l) {
  out[0] = c;
  out[1] = odd.bytes[0] + odd.bytes[1] + odd.bytes[2];
  out[2] = s;
  out[3] = wide.x[0] + wide.x[3];
  out[4] = b;
  out[5] = large.x[0] + large.x[999];
  out[6] = f;
  out[7] = l;
}
})"});
  CHECK(kernel.parameter_bytes() == std::vector<std::size_t>{1, 3, 2, 32, 1, 8, 4000, 4, 8});
  const DeviceBuffer out(gpu(), 8 * sizeof(double));
  Large large{};
  large.x[0] = 1000;
  large.x[999] = 24;
  must_launch(kernel.launch(nullptr, {.block = {1}}, 'a', Odd{{1, 2, 3}}, short{-5},
                            Wide{{1.5, 0, 0, 2.25}}, true, static_cast<double*>(out.data()), large,
                            0.5f, std::int64_t{1} << 40));
  CHECK(numbers_in<double>(out) ==
        std::vector<double>{97, 6, -5, 3.75, 1, 1024, 0.5, 1099511627776.0});
  CHECK(out.guards_intact());
}

TEST_CASE("SourceKernel.GridsAndBlocksHaveThreeDimensions", "[gpu][sanitize]") {
  const Kernel kernel = kernel_of({.name = "place", .source = R"(
__global__ void place(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = block * threads + thread;
})"});
  constexpr unsigned kThreads = 2 * 3 * 5 * 7 * 4 * 3;
  const DeviceBuffer out(gpu(), kThreads * sizeof(unsigned));
  must_launch(kernel.launch(nullptr, {.grid = {2, 3, 5}, .block = {7, 4, 3}}, out.data()));
  std::vector<unsigned> expected;
  for (unsigned i = 0; i < kThreads; ++i) expected.push_back(i);
  CHECK(numbers_in<unsigned>(out) == expected);
}

TEST_CASE("SourceKernel.ABlockMayHaveAllSharedMemoryOfTheDevice", "[gpu][sanitize]") {
  const Kernel kernel = kernel_of({.name = "last", .source = R"(
__global__ void last(int* out, unsigned ints) {
  extern __shared__ int memory[];
  __shared__ int own[64];
  own[threadIdx.x] = 7;
  memory[ints - 1] = 35;
  __syncthreads();
  if (threadIdx.x == 0) *out = memory[ints - 1] + own[63];
})"});
  int most = 0;
  REQUIRE(
      gpu().device()->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &most).ok());
  const DeviceBuffer out(gpu(), sizeof(int));
  const auto launch = [&](unsigned bytes) {
    return kernel.launch(nullptr, {.block = {64}, .shared_bytes = bytes}, out.data(), bytes / 4);
  };
  const unsigned own = 64 * sizeof(int);
  for (const unsigned bytes : {48u * 1024, 64u * 1024, static_cast<unsigned>(most) - own}) {
    INFO(bytes);
    must_launch(launch(bytes));
    CHECK(numbers_in<int>(out) == std::vector<int>{42});
  }
  CHECK(launch(static_cast<unsigned>(most) - own + 4).code() == Code::kInvalidArgument);
}

TEST_CASE("SourceKernel.ClustersOfMoreThanEightBlocks", "[gpu][sanitize]") {
  if (!device_has_clusters()) return skip_test("no clusters before sm_90");
  const Kernel kernel = kernel_of({.name = "ranks", .source = R"(
__global__ void ranks(unsigned* out) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  out[blockIdx.x] = rank;
})"});
  for (const unsigned size : {2u, 8u, 16u}) {
    INFO(size);
    const DeviceBuffer out(gpu(), 32 * sizeof(unsigned));
    must_launch(
        kernel.launch(nullptr, {.grid = {32}, .block = {32}, .cluster = {size}}, out.data()));
    std::vector<unsigned> expected;
    for (unsigned i = 0; i < 32; ++i) expected.push_back(i % size);
    CHECK(numbers_in<unsigned>(out) == expected);
  }
}

// Every block waits for all.
TEST_CASE("SourceKernel.ACooperativeGridMeets", "[gpu]") {
  const Kernel kernel = kernel_of({.name = "meet", .source = R"(
__global__ void meet(unsigned* arrived, unsigned* out) {
  __threadfence();
  atomicAdd(arrived, 1);
  while (atomicAdd(arrived, 0) < gridDim.x) {}
  out[blockIdx.x] = *(volatile unsigned*)arrived;
})"});
  const unsigned blocks = static_cast<unsigned>(gpu().context().sm_count());
  const DeviceBuffer arrived(gpu(), sizeof(unsigned));
  const DeviceBuffer out(gpu(), blocks * sizeof(unsigned));
  arrived.upload(std::vector<std::byte>(sizeof(unsigned)));
  must_launch(kernel.launch(nullptr, {.grid = {blocks}, .block = {1}, .cooperative = true},
                            arrived.data(), out.data()));
  CHECK(numbers_in<unsigned>(out) == std::vector<unsigned>(blocks, blocks));
  // More blocks than can be there at once are the driver's to refuse.
  const Status status =
      kernel.launch(nullptr, {.grid = {1u << 20}, .block = {1024}, .cooperative = true},
                    arrived.data(), out.data());
  CHECK(status.code() == Code::kDriver);
  CHECK(status.message().find("COOPERATIVE_LAUNCH_TOO_LARGE") != std::string_view::npos);
}

constexpr const char* kAddOne = R"(
#include "common/launch.cuh"
__global__ void add_one(unsigned* x, int n) {
  cubinery::dev::wait_for_previous_kernel();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
})";

TEST_CASE("SourceKernel.DependentLaunchesAreInOrder", "[gpu]") {
  if (!device_has_clusters()) return skip_test("no PDL before sm_90");
  const Kernel kernel = kernel_of({.name = "add_one", .source = kAddOne});
  constexpr int kCount = 100000;
  const DeviceBuffer x(gpu(), kCount * sizeof(unsigned));
  x.upload(std::vector<std::byte>(x.bytes()));
  for (int i = 0; i < 50; ++i) {
    CHECK(kernel
              .launch(nullptr, {.grid = {(kCount + 255) / 256}, .block = {256}, .enable_pdl = true},
                      x.data(), kCount)
              .ok());
  }
  gpu().synchronize();
  CHECK(numbers_in<unsigned>(x) == std::vector<unsigned>(kCount, 50));
}

TEST_CASE("SourceKernel.ALaunchIsCaptured", "[gpu]") {
  const Kernel kernel = kernel_of({.name = "add_one", .source = kAddOne});
  const DeviceBuffer x(gpu(), 100 * sizeof(unsigned));
  x.upload(std::vector<std::byte>(x.bytes()));
  const DeviceStream stream = make_stream(gpu());
  const Driver& driver = gpu().driver();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  gpu().must(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL),
             "cuStreamBeginCapture");
  for (int i = 0; i < 3; ++i) {
    CHECK(kernel.launch(stream.get(), {.block = {128}}, x.data(), 100).ok());
  }
  gpu().must(driver.cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
  gpu().must(driver.cuGraphInstantiateWithFlags(&executable, graph, 0),
             "cuGraphInstantiateWithFlags");
  for (int i = 0; i < 4; ++i) {
    gpu().must(driver.cuGraphLaunch(executable, stream.get()), "cuGraphLaunch");
  }
  gpu().synchronize();
  CHECK(numbers_in<unsigned>(x) == std::vector<unsigned>(100, 12));
  gpu().must(driver.cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  gpu().must(driver.cuGraphDestroy(graph), "cuGraphDestroy");
}

}  // namespace
}  // namespace cubinery::test
