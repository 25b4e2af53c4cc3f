#include "runtime/jit/driver.h"

#include <fmt/format.h>

#include "cache/version_order.h"

namespace cubinery {

std::string driver_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Status check_generation(std::string_view compiler, std::string_view path, std::string_view version,
                        int driver) {
  const std::string_view major = version.substr(0, version.find('.'));
  const std::string newest = fmt::format("{}", driver / 1000);
  if (driver == 0 || !version_less(newest, major)) return {};
  return Status(
      Code::kUnsupported,
      fmt::format("{}: {} is version {}, and the driver is for CUDA {}; needs a driver "
                  "for CUDA {}.0 or newer, or {} {}",
                  compiler, path, version, driver_version_text(driver), major, compiler, newest));
}

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& path) {
  std::shared_ptr<Driver> driver(new Driver);
  CUBINERY_RETURN_IF_ERROR(driver->load(path.empty() ? "libcuda.so.1" : path));
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::load(const std::string& path) {
  if (!library_.open(path)) {
    return Status(Code::kUnsupported,
                  fmt::format("driver: cannot open {} ({}); install the NVIDIA driver, or name its "
                              "library in Options::driver_path (CUBINERY_DRIVER)",
                              path, library_.error()));
  }
  // The version first: an old driver lacks functions that the loop below asks for.
  using GetVersion = decltype(&::cuDriverGetVersion);
  const auto get_version = reinterpret_cast<GetVersion>(library_.symbol("cuDriverGetVersion"));
  if (get_version == nullptr || get_version(&version_) != CUDA_SUCCESS) {
    return Status(Code::kUnsupported, fmt::format("driver: {} is not a CUDA driver", path));
  }
  const std::string needed = driver_version_text(kMinDriverVersion);
  if (version_ < kMinDriverVersion) {
    return Status(Code::kUnsupported, fmt::format("driver: {} is for CUDA {}; needs {} or newer",
                                                  path, driver_version_text(version_), needed));
  }
// NOLINTBEGIN(bugprone-macro-parentheses): members of this, which take none
#define CUBINERY_STRING(x) #x
#define CUBINERY_LOAD(function)                                                                 \
  function = reinterpret_cast<decltype(function)>(library_.symbol(CUBINERY_STRING(function)));  \
  if (function == nullptr) {                                                                    \
    return Status(Code::kUnsupported,                                                           \
                  fmt::format("driver: {} lacks {}; needs a driver for CUDA {} or newer", path, \
                              CUBINERY_STRING(function), needed));                              \
  }
  CUBINERY_DRIVER_FUNCTIONS(CUBINERY_LOAD)
#undef CUBINERY_LOAD
#undef CUBINERY_STRING
  // NOLINTEND(bugprone-macro-parentheses)
  const CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) return {};
  return Status(Code::kUnsupported,
                fmt::format("driver: no usable GPU: {}", check(result, "cuInit").message()));
}

Status Driver::check(CUresult result, std::string_view what) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "unknown error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) text = "no description";
  return Status(Code::kDriver,
                fmt::format("{}: {} ({}): {}", what, name, static_cast<int>(result), text));
}

void CurrentContext::push(CUcontext context) {
  status_ = driver_.check(driver_.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  pushed_ = status_.ok();
}

void CurrentContext::pop() const {
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent(&popped);
}

OutsideCapture::OutsideCapture(const Driver& driver)
    : driver_(driver),
      exchanged_(driver.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}

OutsideCapture::~OutsideCapture() {
  if (exchanged_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace cubinery
