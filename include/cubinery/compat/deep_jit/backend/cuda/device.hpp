// Which device, and which stream of it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cubinery/compat/deep_jit/backend/cuda/driver.hpp"

namespace deep_jit::cuda {

inline void check_cuda_runtime(cudaError_t error, const char* expression) {
  if (error == cudaSuccess) return;
  DJ_PANIC("{} failed with CUDA error {} ({}): {}", expression, static_cast<int>(error),
           cudaGetErrorName(error), cudaGetErrorString(error));
}
#ifndef DJ_CUDA_RUNTIME_CHECK
#define DJ_CUDA_RUNTIME_CHECK(expr) ::deep_jit::cuda::check_cuda_runtime((expr), #expr)
#endif

// That of the thread's current context, or the first: as cudaGetDevice() has it.
inline int current_device() {
  DJ_CUDA_DRIVER_CHECK(driver::lazy_cuInit(0u));
  CUdevice device = 0;
  return driver::lazy_cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

// How many libraries the process has loaded so far.
inline unsigned long long loaded_libraries() {
  unsigned long long count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

// Torch's current stream where Torch is in the process, and CUDA's default stream where it is not.
inline CUstream get_current_cuda_stream(std::int32_t device_index) {
  using Get = std::int32_t (*)(std::int32_t, void**);
  constexpr const char* kName = "aoti_torch_get_current_cuda_stream";
  static std::atomic<Get> known{nullptr};
  static std::atomic<unsigned long long> looked_at{0};  // so many libraries: Torch may come later
  Get get = known.load(std::memory_order_acquire);
  if (get == nullptr) {
    const unsigned long long loaded = loaded_libraries();
    if (looked_at.load(std::memory_order_relaxed) == loaded) return nullptr;
    get = internal::loaded_symbol<Get>(kName);
    if (get == nullptr) {  // Python loads Torch for itself
      if (void* const torch = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) {
        get = reinterpret_cast<Get>(internal::symbol(torch, kName));
      }
    }
    known.store(get, std::memory_order_release);
    looked_at.store(loaded, std::memory_order_relaxed);
    if (get == nullptr) return nullptr;
  }
  void* stream = nullptr;
  if (get(device_index, &stream) != 0) DJ_PANIC("Torch has no current stream of {}", device_index);
  return static_cast<CUstream>(stream);
}

// A device's properties.
class Device {
 public:
  explicit Device(int ordinal = current_device()) : ordinal_(ordinal) {}

  // Needs libcudart; nothing else here does.
  const cudaDeviceProp& get_prop() {
    std::call_once(props_->once,
                   [&] { DJ_CUDA_RUNTIME_CHECK(cudaGetDeviceProperties(&props_->all, ordinal_)); });
    return props_->all;
  }
  int get_index() const { return ordinal_; }
  int get_num_sms() { return attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT); }
  int get_num_l2_cache_bytes() { return attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE); }
  int get_num_smem_bytes() {
    return attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  }
  std::int64_t get_clock_rate() {
    return std::int64_t{attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)} * 1000;
  }
  int get_arch_major() { return attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR); }
  int get_arch_minor() { return attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR); }
  std::pair<int, int> get_arch_pair() { return {get_arch_major(), get_arch_minor()}; }
  // "80", "90a", "100f" or, without the family, "100a"; the number alone: "90".
  std::string get_arch(bool use_arch_family = true, bool number_only = false) {
    const auto [major, minor] = get_arch_pair();
    const std::string number = std::to_string(major * 10 + minor);
    if (number_only || major < 9) return number;
    return number + (major > 9 && use_arch_family ? "f" : "a");
  }

 private:
  struct Props {
    std::once_flag once;
    cudaDeviceProp all{};
  };

  int attribute(CUdevice_attribute what) const {
    int value = 0;
    DJ_CUDA_DRIVER_CHECK(driver::lazy_cuDeviceGetAttribute(&value, what, CUdevice{ordinal_}));
    return value;
  }

  int ordinal_;
  std::shared_ptr<Props> props_ = std::make_shared<Props>();
};

}  // namespace deep_jit::cuda
