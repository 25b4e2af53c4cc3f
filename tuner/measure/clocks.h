// What the management library of the driver (NVML) and the kernel module say of a GPU.
#pragma once

#include <string>

#include "results/records.h"
#include "runtime/jit/device.h"
#include "runtime/jit/dynamic_library.h"

namespace cubinery {

// The clocks of one GPU.  For one thread at a time.
class ClockReader {
 public:
  // Opens nothing yet.
  explicit ClockReader(const Device& device);
  ~ClockReader();
  ClockReader(const ClockReader&) = delete;
  ClockReader& operator=(const ClockReader&) = delete;

  // Zeros without NVML (libnvidia-ml.so.1) or where it does not say.  The first call opens it.
  Clocks read();

 private:
  bool open();

  std::string bus_id_;  // "00000000:17:00.0"; empty: the driver does not say
  DynamicLibrary library_;
  bool tried_ = false;
  bool started_ = false;
  void* handle_ = nullptr;  // null: NVML has no such GPU
};

// "580.159.04", of the kernel module; "CUDA 13.0" where it does not say.
std::string driver_version(const Driver& driver);

}  // namespace cubinery
