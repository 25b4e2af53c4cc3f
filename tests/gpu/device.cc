#include "tests/gpu/device.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cubinery::test {

TemporaryDirectory::TemporaryDirectory()
    : path_((std::filesystem::temp_directory_path() / "cubinery_test_XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<std::unique_ptr<const Gpu>> Gpu::open(const Options& options) {
  std::unique_ptr<Gpu> gpu(new Gpu);
  gpu->options_ = options;
  Result<std::shared_ptr<const Driver>> driver = Driver::open(options.driver_path);
  if (!driver) return std::move(driver).error();
  gpu->driver_ = *driver;
  const Driver& cuda = gpu->driver();
  CUBINERY_RETURN_IF_ERROR(
      cuda.check(cuda.cuDeviceGet(&gpu->device_, options.device), "cuDeviceGet"));
  CUBINERY_RETURN_IF_ERROR(
      cuda.check(cuda.cuDevicePrimaryCtxRetain(&gpu->cuda_context_, gpu->device_),
                 "cuDevicePrimaryCtxRetain"));
  CUBINERY_RETURN_IF_ERROR(
      cuda.check(cuda.cuCtxPushCurrent(gpu->cuda_context_), "cuCtxPushCurrent"));
  Result<Context> context = Context::create(options);
  if (!context) return std::move(context).error();
  gpu->context_ = *context;
  return std::unique_ptr<const Gpu>(std::move(gpu));
}

Gpu::~Gpu() {
  context_.reset();
  if (cuda_context_ == nullptr) return;
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent(&popped);
  driver().cuDevicePrimaryCtxRelease(device_);
}

std::string Gpu::name() const {
  std::array<char, 256> text{};
  must(driver().cuDeviceGetName(text.data(), static_cast<int>(text.size()), device_),
       "cuDeviceGetName");
  return text.data();
}

std::size_t Gpu::free_bytes() const {
  std::size_t free = 0, total = 0;
  must(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return free;
}

void Gpu::synchronize() const { must(driver().cuCtxSynchronize(), "cuCtxSynchronize"); }

void Gpu::must(CUresult result, const char* what) const {
  const Status status = driver().check(result, what);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

DeviceBuffer::DeviceBuffer(const Gpu& gpu, std::size_t bytes) : gpu_(&gpu), bytes_(bytes) {
  const std::size_t total = bytes + 2 * kGuardBytes;
  gpu.must(gpu.driver().cuMemAlloc(&base_, total), "cuMemAlloc");
  gpu.must(gpu.driver().cuMemsetD8(base_, kPoison, total), "cuMemsetD8");
  gpu.synchronize();  // streams of the tests do not wait for the default stream
}

DeviceBuffer::~DeviceBuffer() {
  if (base_ != 0) gpu_->driver().cuMemFree(base_);
}

void DeviceBuffer::swap(DeviceBuffer& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
}

void DeviceBuffer::upload(std::span<const std::byte> bytes, std::size_t offset) const {
  if (bytes.empty()) return;
  gpu_->must(gpu_->driver().cuMemcpyHtoD(address() + offset, bytes.data(), bytes.size()),
             "cuMemcpyHtoD");
  gpu_->synchronize();
}

std::vector<std::byte> DeviceBuffer::download(std::size_t offset, std::size_t count) const {
  std::vector<std::byte> bytes(count);
  if (count == 0) return bytes;
  gpu_->must(gpu_->driver().cuMemcpyDtoH(bytes.data(), address() + offset, count), "cuMemcpyDtoH");
  return bytes;
}

bool DeviceBuffer::guards_intact() const {
  if (base_ == 0) return true;
  std::vector<std::byte> guards(2 * kGuardBytes);
  gpu_->must(gpu_->driver().cuMemcpyDtoH(guards.data(), base_, kGuardBytes), "cuMemcpyDtoH");
  gpu_->must(
      gpu_->driver().cuMemcpyDtoH(guards.data() + kGuardBytes, address() + bytes_, kGuardBytes),
      "cuMemcpyDtoH");
  return std::all_of(guards.begin(), guards.end(),
                     [](std::byte byte) { return byte == std::byte{kPoison}; });
}

TestStream::TestStream(const Gpu& gpu) : gpu_(gpu) {
  gpu.must(gpu.driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

TestStream::~TestStream() { gpu_.driver().cuStreamDestroy(stream_); }

void TestStream::synchronize() const {
  gpu_.must(gpu_.driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

Graph::Graph(const Gpu& gpu, const TestStream& stream, const std::function<Status()>& body)
    : gpu_(gpu), stream_(stream) {
  const Driver& cuda = gpu.driver();
  gpu.must(cuda.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
           "cuStreamBeginCapture");
  const Status status = body();
  const CUresult end = cuda.cuStreamEndCapture(stream.get(), &graph_);
  if (!status.ok()) throw std::runtime_error("in a capture: " + std::string(status.message()));
  gpu.must(end, "cuStreamEndCapture");
  gpu.must(cuda.cuGraphInstantiateWithFlags(&executable_, graph_, 0),
           "cuGraphInstantiateWithFlags");
}

Graph::~Graph() {
  gpu_.driver().cuGraphExecDestroy(executable_);
  gpu_.driver().cuGraphDestroy(graph_);
}

void Graph::launch() const {
  gpu_.must(gpu_.driver().cuGraphLaunch(executable_, stream_.get()), "cuGraphLaunch");
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> threads;
  const std::int64_t workers =
      std::min<std::int64_t>(count, std::max(1u, std::thread::hardware_concurrency()));
  for (std::int64_t i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
}

}  // namespace cubinery::test
