#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "cubinery/compat/deep_jit/backend/cuda/options.hpp"
#include "cubinery/compat/deep_jit/utils/gil.hpp"
#include "cubinery/compat/deep_jit/utils/no_ref_ptr.hpp"
#include "cubinery/kernel.h"

namespace deep_jit::cuda {

template <typename T>
void* kernel_arg_pointer(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>, "kernel parameters are copied byte by byte");
  if constexpr (std::is_base_of_v<NoRefPtr, T>) {
    return value.ptr;
  } else {
    return const_cast<void*>(static_cast<const void*>(std::addressof(value)));
  }
}

// A kernel on the device of its runtime.  Thread-safe but for unload().
class Kernel {
 public:
  CUfunction kernel_handle;

  Kernel(std::string label, cubinery::Kernel kernel, int device)
      : kernel_handle(static_cast<CUfunction>(kernel.cuda_function())),
        label_(std::move(label)),
        kernel_(std::move(kernel)),
        device_(device) {}

  template <typename... Args>
  void launch(const LaunchOptions& options, const Args&... args) const {
    DJ_HOST_ASSERT(kernel_, "kernel must be loaded before launch");
    const GilScopedRelease release;
    const cubinery::Launch launch = options.launch();
    const CUstream stream = options.stream ? *options.stream : get_current_cuda_stream(device_);
    const void* const pointers[] = {kernel_arg_pointer(args)..., nullptr};
    std::size_t index = 0;
    const std::size_t bytes[] = {bytes_of(args, index++)..., 0};
    const cubinery::Status status =
        kernel_->launch_array(stream, launch, pointers, bytes, sizeof...(Args));
    if (!status.ok()) throw exception::Exception(status, label_);
  }
  // The cubin goes when nothing else, say a captured graph's owner, has a copy of the kernel.
  void unload() noexcept {
    kernel_.reset();
    kernel_handle = nullptr;
  }
  // cubinery's own: resources, parameters.
  const std::optional<cubinery::Kernel>& kernel() const { return kernel_; }

 private:
  template <typename T>
  std::size_t bytes_of(const T& value, std::size_t index) const {
    if constexpr (std::is_base_of_v<NoRefPtr, T>) {  // as many as the kernel takes
      DJ_HOST_ASSERT(value.ptr != nullptr, "argument {} is at a null NoRefPtr", index + 1);
      return index < kernel_->parameter_bytes().size() ? kernel_->parameter_bytes()[index] : 0;
    } else {
      return sizeof(value);
    }
  }

  std::string label_;
  std::optional<cubinery::Kernel> kernel_;
  int device_;
};

}  // namespace deep_jit::cuda
