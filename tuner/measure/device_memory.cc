#include "tuner/measure/device_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/jit/context_state.h"

namespace cubinery {
namespace {

constexpr std::string_view kOutOfMemory = "CUDA_ERROR_OUT_OF_MEMORY";

// Calls `call(driver)` with the device's context current.
template <class Call>
Status with(const Device& device, std::string_view what, Call&& call) {
  const CurrentContext current(device.driver(), device.context());
  CUBINERY_RETURN_IF_ERROR(current.status().clone());
  return device.driver().check(call(device.driver()), what);
}

// "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: 4096 MiB asked for, 120 of 81559 MiB free on NVIDIA H200".
Status out_of_memory(const Device& device, std::size_t bytes) {
  std::size_t free = 0, total = 0;
  const Status asked = with(device, "cuMemGetInfo", [&](const Driver& driver) {
    return driver.cuMemGetInfo(&free, &total);
  });
  const std::string is_free = asked.ok() ? fmt::format("{} of {} MiB free", free >> 20, total >> 20)
                                         : std::string(asked.message());
  return Status(Code::kDriver, fmt::format("cuMemAlloc: {}: {} MiB asked for, {} on {}",
                                           kOutOfMemory, bytes >> 20, is_free, device.name()));
}

// Waits for the copy of memory that the host can page out, which other streams do not.
Status settle(const Device& device) {
  return with(device, "cuCtxSynchronize",
              [](const Driver& driver) { return driver.cuCtxSynchronize(); });
}

}  // namespace

Result<std::shared_ptr<const Device>> device_of(const Context& context) {
  CUBINERY_RETURN_IF_ERROR(context.state().process.check());
  if (context.state().device == nullptr) {
    return Status(Code::kUnsupported, "the context has no device (Options::device = kNoDevice)");
  }
  return context.state().device;
}

bool is_out_of_memory(const Status& status) {
  return status.message().find(kOutOfMemory) != std::string_view::npos;
}

Result<DeviceMemory> DeviceMemory::allocate(std::shared_ptr<const Device> device,
                                            std::size_t bytes) {
  CUdeviceptr address = 0;
  const Status status = with(*device, "cuMemAlloc", [&](const Driver& driver) {
    return driver.cuMemAlloc(&address, std::max<std::size_t>(1, bytes));
  });
  if (is_out_of_memory(status)) return out_of_memory(*device, bytes);
  CUBINERY_RETURN_IF_ERROR(status.clone());
  DeviceMemory memory;
  memory.memory_ = {std::move(device), address};
  memory.bytes_ = bytes;
  return memory;
}

Status DeviceMemory::upload(std::span<const std::byte> from, std::size_t offset) const {
  if (from.empty()) return {};
  CUBINERY_RETURN_IF_ERROR(with(memory_.device(), "cuMemcpyHtoD", [&](const Driver& driver) {
    return driver.cuMemcpyHtoD(address() + offset, from.data(), from.size());
  }));
  return settle(memory_.device());
}

Status DeviceMemory::download(std::span<std::byte> to, std::size_t offset) const {
  if (to.empty()) return {};
  // The copy waits for the default stream only.
  CUBINERY_RETURN_IF_ERROR(settle(memory_.device()));
  return with(memory_.device(), "cuMemcpyDtoH", [&](const Driver& driver) {
    return driver.cuMemcpyDtoH(to.data(), address() + offset, to.size());
  });
}

Status DeviceMemory::set(unsigned char value) const {
  if (bytes_ == 0) return {};
  CUBINERY_RETURN_IF_ERROR(with(memory_.device(), "cuMemsetD8", [&](const Driver& driver) {
    return driver.cuMemsetD8(address(), value, bytes_);
  }));
  return settle(memory_.device());
}

Status DeviceMemory::fill(std::span<const std::byte> pattern) const {
  const std::size_t first = std::min(pattern.size(), bytes_);
  CUBINERY_RETURN_IF_ERROR(upload(pattern.first(first)));
  for (std::size_t done = first; done < bytes_;) {
    const std::size_t count = std::min(done, bytes_ - done);
    CUBINERY_RETURN_IF_ERROR(with(memory_.device(), "cuMemcpyDtoDAsync", [&](const Driver& driver) {
      return driver.cuMemcpyDtoDAsync(address() + done, address(), count, nullptr);
    }));
    done += count;
  }
  return bytes_ == 0 ? Status() : settle(memory_.device());
}

Result<DeviceStream> DeviceStream::create(std::shared_ptr<const Device> device) {
  CUstream stream = nullptr;
  CUBINERY_RETURN_IF_ERROR(with(*device, "cuStreamCreate", [&](const Driver& driver) {
    return driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  }));
  DeviceStream created;
  created.stream_ = {std::move(device), stream};
  return created;
}

Status DeviceStream::synchronize() const {
  return with(device(), "cuStreamSynchronize",
              [&](const Driver& driver) { return driver.cuStreamSynchronize(get()); });
}

Result<DeviceGraph> DeviceGraph::capture(const DeviceStream& stream,
                                         const std::function<Status()>& body) {
  const Device& device = stream.device();
  CUBINERY_RETURN_IF_ERROR(with(device, "cuStreamBeginCapture", [&](const Driver& driver) {
    return driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  }));
  Status launched = body();
  CUgraph graph = nullptr;
  Status ended = with(device, "cuStreamEndCapture", [&](const Driver& driver) {
    return driver.cuStreamEndCapture(stream.get(), &graph);
  });
  const internal::Owned<CUgraph, &Driver::cuGraphDestroy> captured(stream.shared_device(), graph);
  CUBINERY_RETURN_IF_ERROR(std::move(launched));
  CUBINERY_RETURN_IF_ERROR(std::move(ended));
  CUgraphExec executable = nullptr;
  CUBINERY_RETURN_IF_ERROR(with(device, "cuGraphInstantiate", [&](const Driver& driver) {
    return driver.cuGraphInstantiateWithFlags(&executable, graph, 0);
  }));
  DeviceGraph made;
  made.executable_ = {stream.shared_device(), executable};
  return made;
}

Status DeviceGraph::launch(const DeviceStream& stream) const {
  return with(stream.device(), "cuGraphLaunch", [&](const Driver& driver) {
    return driver.cuGraphLaunch(executable_.get(), stream.get());
  });
}

Result<DeviceEvent> DeviceEvent::create(std::shared_ptr<const Device> device) {
  CUevent event = nullptr;
  CUBINERY_RETURN_IF_ERROR(with(*device, "cuEventCreate", [&](const Driver& driver) {
    return driver.cuEventCreate(&event, CU_EVENT_DEFAULT);
  }));
  DeviceEvent created;
  created.event_ = {std::move(device), event};
  return created;
}

Status DeviceEvent::record(const DeviceStream& stream) const {
  return with(event_.device(), "cuEventRecord", [&](const Driver& driver) {
    return driver.cuEventRecord(event_.get(), stream.get());
  });
}

Result<double> DeviceEvent::since(const DeviceEvent& start) const {
  CUBINERY_RETURN_IF_ERROR(with(event_.device(), "cuEventSynchronize", [&](const Driver& driver) {
    return driver.cuEventSynchronize(event_.get());
  }));
  float ms = 0;
  CUBINERY_RETURN_IF_ERROR(with(event_.device(), "cuEventElapsedTime", [&](const Driver& driver) {
    return driver.cuEventElapsedTime(&ms, start.event_.get(), event_.get());
  }));
  return double{ms};
}

}  // namespace cubinery
