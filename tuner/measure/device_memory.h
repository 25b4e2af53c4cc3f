// Device memory, streams, graphs and events whose failures are values.
//
//   std::shared_ptr<const Device> device = device_of(context).value();
//   DeviceMemory x = DeviceMemory::allocate(device, bytes).value();
//   x.fill(pattern).value();
//
// Objects make the device's context current for themselves and keep it retained.  Each is for one
// thread at a time.  Errors are kDriver unless said otherwise.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "cubinery/context.h"
#include "cubinery/kernel.h"
#include "cubinery/status.h"
#include "runtime/jit/device.h"

namespace cubinery {

// kUnsupported: the context has none.
Result<std::shared_ptr<const Device>> device_of(const Context& context);

namespace internal {

// A handle of the driver; kDestroy is the member of Driver that ends it.
template <class Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<const Device> device, Handle handle)
      : device_(std::move(device)), handle_(handle) {}
  ~Owned() {
    if (handle_ == Handle{}) return;
    const CurrentContext current(device_->driver(), device_->context());
    (device_->driver().*kDestroy)(handle_);
  }
  Owned(Owned&& other) noexcept
      : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  Handle get() const { return handle_; }
  // Requires: not default-constructed, not moved from.
  const Device& device() const { return *device_; }
  std::shared_ptr<const Device> shared_device() const { return device_; }

 private:
  std::shared_ptr<const Device> device_;
  Handle handle_{};
};

}  // namespace internal

class DeviceMemory {
 public:
  DeviceMemory() = default;  // no memory: data() is null, bytes() 0
  // Not initialised; data() is never null.  Where there is not enough memory, is_out_of_memory() of
  // the error, whose message says how much was asked for and how much is free.
  static Result<DeviceMemory> allocate(std::shared_ptr<const Device> device, std::size_t bytes);

  std::size_t bytes() const { return bytes_; }
  CUdeviceptr address() const { return memory_.get(); }
  void* data() const { return reinterpret_cast<void*>(address()); }

  // All of these have happened, for every stream, when they return.
  // Requires of both: offset + the span's size <= bytes().
  Status upload(std::span<const std::byte> from, std::size_t offset = 0) const;
  Status download(std::span<std::byte> to, std::size_t offset = 0) const;
  // Every byte.
  Status set(unsigned char value) const;
  // Copies of `pattern`, the last one cut.  Requires: !pattern.empty().
  Status fill(std::span<const std::byte> pattern) const;

 private:
  internal::Owned<CUdeviceptr, &Driver::cuMemFree> memory_;
  std::size_t bytes_ = 0;
};

// Whether an error of allocate() or of a launch says that memory is short.
bool is_out_of_memory(const Status& status);

// A stream that does not wait for the default stream.
class DeviceStream {
 public:
  static Result<DeviceStream> create(std::shared_ptr<const Device> device);
  Stream get() const { return stream_.get(); }
  const Device& device() const { return stream_.device(); }
  std::shared_ptr<const Device> shared_device() const { return stream_.shared_device(); }
  Status synchronize() const;

 private:
  internal::Owned<CUstream, &Driver::cuStreamDestroy> stream_;
};

class DeviceGraph {
 public:
  // What `body` enqueues on the stream, captured on this thread.  Errors of `body` are returned.
  static Result<DeviceGraph> capture(const DeviceStream& stream,
                                     const std::function<Status()>& body);
  Status launch(const DeviceStream& stream) const;

 private:
  internal::Owned<CUgraphExec, &Driver::cuGraphExecDestroy> executable_;
};

class DeviceEvent {
 public:
  static Result<DeviceEvent> create(std::shared_ptr<const Device> device);
  Status record(const DeviceStream& stream) const;
  // Milliseconds since `start`; waits for this event.  Requires: both were recorded.
  Result<double> since(const DeviceEvent& start) const;

 private:
  internal::Owned<CUevent, &Driver::cuEventDestroy> event_;
};

}  // namespace cubinery
