// The GPU as tests and benchmarks see it: driver, context, memory, streams and graphs.  Failures of
// CUDA here are failures of the test machine and throw std::runtime_error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/options.h"
#include "cubinery/status.h"
#include "runtime/jit/driver.h"

namespace cubinery::test {

// A directory under the temporary directory, removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One device with its primary context, current on the thread that opened it.
class Gpu {
 public:
  // kUnsupported: no driver or no device.
  static Result<std::unique_ptr<const Gpu>> open(const Options& options);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Driver& driver() const { return *driver_; }
  CUcontext cuda_context() const { return cuda_context_; }
  const Context& context() const { return *context_; }
  const Options& options() const { return options_; }
  std::string name() const;
  std::size_t free_bytes() const;
  void synchronize() const;
  // Throws unless `result` is CUDA_SUCCESS.
  void must(CUresult result, const char* what) const;

 private:
  Gpu() = default;
  Options options_;
  std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
  CUcontext cuda_context_ = nullptr;
  std::optional<Context> context_;
};

// Device memory between two guard bands.  Bands and memory start out as all one bits: NaN in every
// float type, -1 in every integer type.
class DeviceBuffer {
 public:
  static constexpr std::size_t kGuardBytes = 4096;
  static constexpr unsigned char kPoison = 0xff;

  DeviceBuffer() = default;
  DeviceBuffer(const Gpu& gpu, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }

  std::size_t bytes() const { return bytes_; }
  CUdeviceptr address() const { return base_ + kGuardBytes; }
  void* data() const { return reinterpret_cast<void*>(address()); }
  // Requires: offset + bytes.size() <= bytes().
  void upload(std::span<const std::byte> bytes, std::size_t offset = 0) const;
  std::vector<std::byte> download(std::size_t offset, std::size_t count) const;
  std::vector<std::byte> download() const { return download(0, bytes_); }
  bool guards_intact() const;

 private:
  void swap(DeviceBuffer& other) noexcept;

  const Gpu* gpu_ = nullptr;
  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0;
};

class TestStream {
 public:
  explicit TestStream(const Gpu& gpu);
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  CUstream get() const { return stream_; }
  void synchronize() const;

 private:
  const Gpu& gpu_;
  CUstream stream_ = nullptr;
};

// What `body` enqueues on the stream, captured.
class Graph {
 public:
  Graph(const Gpu& gpu, const TestStream& stream, const std::function<Status()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const;
  CUgraph get() const { return graph_; }

 private:
  const Gpu& gpu_;
  const TestStream& stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

// Calls body(0) ... body(count - 1) from as many threads as there are processors.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace cubinery::test
