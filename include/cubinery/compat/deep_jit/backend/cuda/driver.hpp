// libcuda, which is opened and not linked.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "cubinery/compat/deep_jit/utils/env.hpp"
#include "cubinery/compat/deep_jit/utils/lazy.hpp"

namespace deep_jit::cuda::driver {

inline std::string path() {
  const std::string chosen = internal::variable("CUBINERY_DRIVER");
  return chosen.empty() ? "libcuda.so.1" : chosen;
}

DJ_DECL_LAZY_DL_HANDLE(get_cuda_handle, path())

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuInit)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGetErrorName)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGetErrorString)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxGetDevice)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuDeviceGet)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuDeviceGetAttribute)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuFuncSetAttribute)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLaunchKernelEx)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamBatchMemOp)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuTensorMapEncodeTiled)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryLoadFromFile)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryUnload)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryGetKernelCount)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryEnumerateKernels)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuKernelGetFunction)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAddressFree)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAddressReserve)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemCreate)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemExportToShareableHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAccess)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAllocationGranularity)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAllocationPropertiesFromHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemImportFromShareableHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemMap)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemMapArrayAsync)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemRelease)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemRetainAllocationHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemSetAccess)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemUnmap)

inline void check_cuda_driver(CUresult error, const char* expression) {
  if (error == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* text = nullptr;
  lazy_cuGetErrorName(error, &name);
  lazy_cuGetErrorString(error, &text);
  DJ_PANIC("{} failed with CUDA error {} ({}): {}", expression, static_cast<int>(error),
           name == nullptr ? "unknown" : name, text == nullptr ? "unknown" : text);
}
#ifndef DJ_CUDA_DRIVER_CHECK
#define DJ_CUDA_DRIVER_CHECK(expr) ::deep_jit::cuda::driver::check_cuda_driver((expr), #expr)
#endif

}  // namespace deep_jit::cuda::driver
