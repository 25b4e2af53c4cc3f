// The GPU as tests and benchmarks see it.  Failures of CUDA here are failures of the test machine
// and throw cubinery::Error.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/options.h"
#include "cubinery/status.h"
#include "tuner/measure/device_memory.h"

namespace cubinery::test {

// One device with its primary context, current on the thread that opened it.
class Gpu {
 public:
  // Errors: those of Context::create().
  static Result<std::unique_ptr<const Gpu>> open(const Options& options);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const std::shared_ptr<const Device>& device() const { return device_; }
  const Driver& driver() const { return device_->driver(); }
  const Context& context() const { return context_; }
  const Options& options() const { return options_; }
  const std::string& name() const { return device_->name(); }
  std::size_t free_bytes() const;
  void synchronize() const;
  // Throws unless `result` is CUDA_SUCCESS.
  void must(CUresult result, const char* what) const;

 private:
  Gpu(const Options& options, const Context& context, std::shared_ptr<const Device> device)
      : options_(options),
        context_(context),
        device_(std::move(device)),
        current_(device_->driver(), device_->context()) {}

  Options options_;
  Context context_;
  std::shared_ptr<const Device> device_;
  CurrentContext current_;
};

// Device memory between two guard bands.  Bands and memory start out as kPoison.
class DeviceBuffer {
 public:
  DeviceBuffer(const Gpu& gpu, std::size_t bytes);

  std::size_t bytes() const { return bytes_; }
  void* data() const;
  // Requires: offset + bytes.size() <= bytes().
  void upload(std::span<const std::byte> bytes, std::size_t offset = 0) const;
  std::vector<std::byte> download(std::size_t offset, std::size_t count) const;
  std::vector<std::byte> download() const { return download(0, bytes_); }
  bool guards_intact() const;

 private:
  std::size_t bytes_;
  DeviceMemory memory_;
};

DeviceStream make_stream(const Gpu& gpu);

}  // namespace cubinery::test
