#include "tests/gpu/device.h"

#include <algorithm>
#include <utility>

#include "harness/memory.h"

namespace cubinery::test {

Result<std::unique_ptr<const Gpu>> Gpu::open(const Options& options) {
  Result<Context> context = Context::create(options);
  if (!context) return std::move(context).error();
  Result<std::shared_ptr<const Device>> device = device_of(*context);
  if (!device) return std::move(device).error();
  std::unique_ptr<const Gpu> gpu(new Gpu(options, *context, *std::move(device)));
  CUBINERY_RETURN_IF_ERROR(gpu->current_.status().clone());
  return gpu;
}

std::size_t Gpu::free_bytes() const {
  std::size_t free = 0, total = 0;
  must(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return free;
}

void Gpu::synchronize() const { must(driver().cuCtxSynchronize(), "cuCtxSynchronize"); }

void Gpu::must(CUresult result, const char* what) const { driver().check(result, what).value(); }

DeviceBuffer::DeviceBuffer(const Gpu& gpu, std::size_t bytes)
    : bytes_(bytes),
      memory_(DeviceMemory::allocate(gpu.device(), bytes + 2 * kGuardBytes).value()) {
  memory_.set(static_cast<unsigned char>(kPoison)).value();
}

void* DeviceBuffer::data() const { return static_cast<std::byte*>(memory_.data()) + kGuardBytes; }

void DeviceBuffer::upload(std::span<const std::byte> bytes, std::size_t offset) const {
  memory_.upload(bytes, kGuardBytes + offset).value();
}

std::vector<std::byte> DeviceBuffer::download(std::size_t offset, std::size_t count) const {
  std::vector<std::byte> bytes(count);
  memory_.download(bytes, kGuardBytes + offset).value();
  return bytes;
}

bool DeviceBuffer::guards_intact() const {
  std::vector<std::byte> guards(2 * kGuardBytes);
  memory_.download(std::span(guards).first(kGuardBytes)).value();
  memory_.download(std::span(guards).subspan(kGuardBytes), kGuardBytes + bytes_).value();
  return std::all_of(guards.begin(), guards.end(), [](std::byte byte) { return byte == kPoison; });
}

DeviceStream make_stream(const Gpu& gpu) { return DeviceStream::create(gpu.device()).value(); }

}  // namespace cubinery::test
