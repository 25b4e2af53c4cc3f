// What a Kernel shares.
#pragma once

#include <cuda.h>

#include <memory>

#include "cubinery/fields.h"
#include "cubinery/kernel.h"
#include "runtime/jit/device.h"

namespace cubinery {

struct Kernel::State {
  KernelInfo info;
  std::shared_ptr<const Device> device;
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
  unsigned threads = 0;
  unsigned shared_bytes = 0;
  std::size_t param_bytes = 0;

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

// The context of the kernel's device, current on this thread for the lifetime of what is returned.
// Launches and tensor maps make it current themselves; around several of them it is done once.
inline CurrentContext with_context_of(const Kernel& kernel) {
  const Device& device = *kernel.state().device;
  return CurrentContext(device.driver(), device.context());
}

// "the __global__ function takes a parameter of 8 bytes; accepted: ...": what is wrong with a
// kernel whose parameter is not spec.param_bytes long.
std::string wrong_parameter(std::size_t bytes, std::size_t accepted);

// Loads a cubin on a device and puts its code there.
// kDriver: the driver refuses it.  kInvalidKey: the kernel's parameter is not spec.param_bytes
// long.  `blames_cubin`, if given: whether an error is the cubin's fault, so that another one may
// do better; it is not where the device has no memory left, say.
Result<Kernel> load_kernel(std::shared_ptr<const Device> device, const KernelSpec& spec,
                           KernelInfo info, const std::string& cubin, bool* blames_cubin = nullptr);

}  // namespace cubinery
