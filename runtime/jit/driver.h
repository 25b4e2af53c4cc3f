// libcuda, opened at run time: a table of the driver's functions and the conversion of its errors.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <string_view>

#include "cubinery/status.h"
#include "runtime/jit/dynamic_library.h"

namespace cubinery {

// Every driver function that the project calls, by the name that cuda.h gives it.  cuda.h defines
// some of them as macros for a versioned symbol (cuMemAlloc -> cuMemAlloc_v2): members and symbols
// get that name.
#define CUBINERY_DRIVER_FUNCTIONS(F)   \
  F(cuInit)                            \
  F(cuDriverGetVersion)                \
  F(cuGetErrorName)                    \
  F(cuGetErrorString)                  \
  F(cuDeviceGet)                       \
  F(cuDeviceGetCount)                  \
  F(cuDeviceGetName)                   \
  F(cuDeviceGetAttribute)              \
  F(cuDevicePrimaryCtxRetain)          \
  F(cuDevicePrimaryCtxRelease)         \
  F(cuCtxPushCurrent)                  \
  F(cuCtxPopCurrent)                   \
  F(cuCtxGetCurrent)                   \
  F(cuCtxSynchronize)                  \
  F(cuThreadExchangeStreamCaptureMode) \
  F(cuLibraryLoadData)                 \
  F(cuLibraryUnload)                   \
  F(cuLibraryGetKernel)                \
  F(cuKernelGetAttribute)              \
  F(cuKernelGetFunction)               \
  F(cuKernelGetParamInfo)              \
  F(cuKernelSetAttribute)              \
  F(cuFuncLoad)                        \
  F(cuLaunchKernel)                    \
  F(cuLaunchKernelEx)                  \
  F(cuTensorMapEncodeTiled)            \
  F(cuMemAlloc)                        \
  F(cuMemFree)                         \
  F(cuMemcpyHtoD)                      \
  F(cuMemcpyDtoH)                      \
  F(cuMemcpyDtoDAsync)                 \
  F(cuMemsetD8)                        \
  F(cuMemGetInfo)                      \
  F(cuStreamCreate)                    \
  F(cuStreamDestroy)                   \
  F(cuStreamSynchronize)               \
  F(cuStreamQuery)                     \
  F(cuStreamBeginCapture)              \
  F(cuStreamEndCapture)                \
  F(cuGraphInstantiateWithFlags)       \
  F(cuGraphLaunch)                     \
  F(cuGraphExecDestroy)                \
  F(cuGraphDestroy)                    \
  F(cuGraphGetNodes)                   \
  F(cuGraphKernelNodeGetParams)        \
  F(cuEventCreate)                     \
  F(cuEventDestroy)                    \
  F(cuEventRecord)                     \
  F(cuEventSynchronize)                \
  F(cuEventElapsedTime)

// Drivers from 570 on.  Cubins of NVRTC 13 need one for CUDA 13.0 (580).
inline constexpr int kMinDriverVersion = 12080;

// "13.0" for 13000.
std::string driver_version_text(int version);

// kUnsupported: the compiler at `path`, of `version` ("13.0"), is of a newer generation of CUDA
// than this driver, which takes cubins of its own and of older ones.  `driver`: Driver::version();
// 0: of no driver.
Status check_generation(std::string_view compiler, std::string_view path, std::string_view version,
                        int driver);

// The open driver.  Immutable after open(); safe to use from any thread.
class Driver {
 public:
  // Loads libcuda (`path`, or libcuda.so.1 by the loader's rules) and calls cuInit.
  // kUnsupported: not found (says where it looked), too old (says which it is and which it takes),
  // or no usable GPU.
  static Result<std::shared_ptr<const Driver>> open(const std::string& path);

  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // OK, or kDriver with `what` and CUDA's name and text for the error.
  Status check(CUresult result, std::string_view what) const;

  int version() const { return version_; }  // 13000 for CUDA 13.0

#define CUBINERY_DECLARE(name) decltype(&::name) name = nullptr;
  CUBINERY_DRIVER_FUNCTIONS(CUBINERY_DECLARE)
#undef CUBINERY_DECLARE

 private:
  Driver() = default;
  Status load(const std::string& path);

  DynamicLibrary library_;
  int version_ = 0;
};

// Makes a CUDA context current on this thread for its lifetime; costs nothing to speak of when it
// already is.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    if (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) push(context);
  }
  ~CurrentContext() {
    if (pushed_) pop();
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  const Status& status() const { return status_; }
  const Driver& driver() const { return driver_; }

 private:
  void push(CUcontext context);
  void pop() const;

  const Driver& driver_;
  Status status_;
  bool pushed_ = false;
};

// While it lives, this thread may load and unload code though a stream is being captured, by this
// thread or, in the global mode, by any: CUDA takes such calls for a fault of the capture's owner
// and invalidates the graph, unless the thread says that they have nothing to do with it.
class OutsideCapture {
 public:
  explicit OutsideCapture(const Driver& driver);
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the thread's own
  bool exchanged_;
};

}  // namespace cubinery
