#include "cli/gpus.h"

#include <algorithm>
#include <array>

#include "codegen/arch.h"

namespace cubinery {
namespace {

Result<Gpu> describe(const Driver& driver, int ordinal) {
  Gpu gpu{.ordinal = ordinal, .name = {}, .arch = {}};
  CUdevice device = 0;
  CUBINERY_RETURN_IF_ERROR(driver.check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  std::array<char, 256> name{};
  CUBINERY_RETURN_IF_ERROR(
      driver.check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device),
                   "cuDeviceGetName"));
  gpu.name = name.data();
  CUBINERY_RETURN_IF_ERROR(driver.check(
      driver.cuDeviceGetAttribute(&gpu.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
      "cuDeviceGetAttribute"));
  CUBINERY_RETURN_IF_ERROR(driver.check(
      driver.cuDeviceGetAttribute(&gpu.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
      "cuDeviceGetAttribute"));
  if (const std::optional<Arch> arch = native_arch(gpu.major, gpu.minor)) gpu.arch = arch->name();
  return gpu;
}

}  // namespace

Result<std::vector<Gpu>> list_gpus(const Driver& driver) {
  int count = 0;
  CUBINERY_RETURN_IF_ERROR(driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  std::vector<Gpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Result<Gpu> gpu = describe(driver, ordinal);
    if (!gpu) return std::move(gpu).error();
    gpus.push_back(*std::move(gpu));
  }
  return gpus;
}

Result<std::vector<std::string>> gpu_architectures(const std::string& driver_path) {
  Result<std::shared_ptr<const Driver>> driver = Driver::open(driver_path);
  if (!driver) return std::move(driver).error();
  Result<std::vector<Gpu>> gpus = list_gpus(**driver);
  if (!gpus) return std::move(gpus).error();
  std::vector<std::string> archs;
  for (const Gpu& gpu : *gpus) {
    if (gpu.arch && std::find(archs.begin(), archs.end(), *gpu.arch) == archs.end()) {
      archs.push_back(*gpu.arch);
    }
  }
  if (archs.empty()) {
    return Status(Code::kUnsupported, gpus->empty() ? "the driver reports no GPU"
                                                    : "the GPU's architecture is not known");
  }
  return archs;
}

}  // namespace cubinery
