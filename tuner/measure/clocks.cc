#include "tuner/measure/clocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace cubinery {
namespace {

// Of nvml.h, which the toolkit need not have: "Device Queries" and "Initialization and Cleanup" of
// https://docs.nvidia.com/deploy/nvml-api/.
using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlClockSm = 1;
constexpr int kNvmlClockMemory = 2;
using NvmlInit = int (*)();
using NvmlShutdown = int (*)();
using NvmlDeviceByBusId = int (*)(const char* bus_id, NvmlDevice* device);
using NvmlClockInfo = int (*)(NvmlDevice device, int clock, unsigned* mhz);

// "00000000:17:00.0", or nothing where the driver does not say.
std::string bus_id_of(const Device& device) {
  const Driver& driver = device.driver();
  CUdevice ordinal = 0;
  int domain = 0, bus = 0, slot = 0;
  const auto ask = [&](int* value, CUdevice_attribute attribute) {
    return driver.cuDeviceGetAttribute(value, attribute, ordinal) == CUDA_SUCCESS;
  };
  if (driver.cuDeviceGet(&ordinal, device.ordinal()) != CUDA_SUCCESS ||
      !ask(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) ||
      !ask(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) ||
      !ask(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)) {
    return "";
  }
  return fmt::format("{:08X}:{:02X}:{:02X}.0", domain, bus, slot);
}

}  // namespace

ClockReader::ClockReader(const Device& device) : bus_id_(bus_id_of(device)) {}

ClockReader::~ClockReader() {
  if (!started_) return;
  const auto shutdown = reinterpret_cast<NvmlShutdown>(library_.symbol("nvmlShutdown"));
  if (shutdown != nullptr) shutdown();
}

bool ClockReader::open() {
  if (tried_) return handle_ != nullptr;
  tried_ = true;
  if (bus_id_.empty() || !library_.open("libnvidia-ml.so.1")) return false;
  const auto init = reinterpret_cast<NvmlInit>(library_.symbol("nvmlInit_v2"));
  const auto find =
      reinterpret_cast<NvmlDeviceByBusId>(library_.symbol("nvmlDeviceGetHandleByPciBusId_v2"));
  if (init == nullptr || find == nullptr || init() != kNvmlSuccess) return false;
  started_ = true;
  if (find(bus_id_.c_str(), &handle_) != kNvmlSuccess) handle_ = nullptr;
  return handle_ != nullptr;
}

Clocks ClockReader::read() {
  if (!open()) return {};
  const auto info = reinterpret_cast<NvmlClockInfo>(library_.symbol("nvmlDeviceGetClockInfo"));
  if (info == nullptr) return {};
  const auto mhz = [&](int clock) {
    unsigned value = 0;
    return info(handle_, clock, &value) == kNvmlSuccess ? static_cast<int>(value) : 0;
  };
  return {.sm_mhz = mhz(kNvmlClockSm), .memory_mhz = mhz(kNvmlClockMemory)};
}

std::string driver_version(const Driver& driver) {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (file >> version) return version;
  // "NVRM version: NVIDIA UNIX ... Module  580.159.04  ...": the first word of digits and dots.
  std::ifstream proc("/proc/driver/nvidia/version");
  while (proc >> version) {
    if (version.find_first_not_of("0123456789.") == version.npos &&
        std::count(version.begin(), version.end(), '.') > 0) {
      return version;
    }
  }
  return "CUDA " + driver_version_text(driver.version());
}

}  // namespace cubinery
