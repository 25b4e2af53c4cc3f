#include "runtime/jit/device.h"

#include <fmt/format.h>

#include <array>

namespace cubinery {

Result<std::shared_ptr<const Device>> Device::open(std::shared_ptr<const Driver> driver,
                                                   int ordinal) {
  std::shared_ptr<Device> device(new Device(std::move(driver)));
  CUBINERY_RETURN_IF_ERROR(device->load(ordinal));
  return std::shared_ptr<const Device>(std::move(device));
}

Device::~Device() {
  // In a forked child it is the parent's, and the driver may hang.
  if (context_ == nullptr || !process_.is_current()) return;
  const OutsideCapture outside(*driver_);
  for (CUlibrary library : refused_) driver_->cuLibraryUnload(library);
  driver_->cuDevicePrimaryCtxRelease(device_);
}

void Device::unload(CUlibrary library) const {
  if (!process_.is_current()) return;
  const OutsideCapture outside(*driver_);
  const std::lock_guard lock(mutex_);
  refused_.push_back(library);
  // After the driver has shut down (static destructors) this fails, and there is nothing left to
  // unload.
  const auto is_gone = [&](CUlibrary one) {
    const CUresult result = driver_->cuLibraryUnload(one);
    return result < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
           result > CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  };
  std::erase_if(refused_, is_gone);
}

Status Device::attribute(CUdevice_attribute attribute, int* value) const {
  return driver_->check(driver_->cuDeviceGetAttribute(value, attribute, device_),
                        "cuDeviceGetAttribute");
}

Status Device::load(int ordinal) {
  int count = 0;
  CUBINERY_RETURN_IF_ERROR(driver_->check(driver_->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("Options::device = {}; accepted: 0 to {}, or kNoDevice ({} devices are "
                    "visible)",
                    ordinal, count - 1, count));
  }
  ordinal_ = ordinal;
  CUBINERY_RETURN_IF_ERROR(driver_->check(driver_->cuDeviceGet(&device_, ordinal), "cuDeviceGet"));
  CUBINERY_RETURN_IF_ERROR(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major_));
  CUBINERY_RETURN_IF_ERROR(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor_));
  CUBINERY_RETURN_IF_ERROR(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sm_count_));
  std::array<char, 256> name{};
  CUBINERY_RETURN_IF_ERROR(driver_->check(
      driver_->cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device_),
      "cuDeviceGetName"));
  name_ = name.data();
  const OutsideCapture outside(*driver_);
  return driver_->check(driver_->cuDevicePrimaryCtxRetain(&context_, device_),
                        "cuDevicePrimaryCtxRetain");
}

}  // namespace cubinery
