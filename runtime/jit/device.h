// One GPU: its properties and its primary context.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cubinery/status.h"
#include "runtime/jit/driver.h"
#include "runtime/jit/owner_process.h"

namespace cubinery {

// Immutable; keeps the device's primary context retained while it lives.
class Device {
 public:
  // kInvalidArgument: no such ordinal.  kDriver: the context cannot be made.
  static Result<std::shared_ptr<const Device>> open(std::shared_ptr<const Driver> driver,
                                                    int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return *driver_; }
  const OwnerProcess& process() const { return process_; }
  CUcontext context() const { return context_; }
  int ordinal() const { return ordinal_; }
  int major() const { return major_; }
  int minor() const { return minor_; }
  int sm_count() const { return sm_count_; }
  const std::string& name() const { return name_; }
  Status attribute(CUdevice_attribute attribute, int* value) const;  // kDriver

  // Now, or, where CUDA refuses because of a capture, with a later one or at the device's end.
  void unload(CUlibrary library) const;

 private:
  explicit Device(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}
  Status load(int ordinal);

  const OwnerProcess process_;
  std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int ordinal_ = 0;
  int major_ = 0;
  int minor_ = 0;
  int sm_count_ = 0;
  std::string name_;
  mutable std::mutex mutex_;                // of the following
  mutable std::vector<CUlibrary> refused_;  // to be unloaded
};

}  // namespace cubinery
