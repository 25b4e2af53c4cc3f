// What a Kernel shares.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <vector>

#include "cubinery/kernel.h"
#include "runtime/jit/device.h"
#include "runtime/jit/recipe.h"

namespace cubinery {

struct Kernel::State {
  KernelInfo info;
  std::shared_ptr<const Device> device;
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
  // Of a block, as the key says; 0 threads: each launch says.
  unsigned threads = 0;
  unsigned shared_bytes = 0;
  // Of a block, where each launch says.
  unsigned most_threads = 0;
  unsigned most_shared_bytes = 0;
  std::vector<std::size_t> parameters;  // their sizes

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

// The context of the kernel's device, current on this thread for the lifetime of what is returned.
// Launches make it current themselves; around several of them it is done once.
inline CurrentContext with_context_of(const Kernel& kernel) {
  const Device& device = *kernel.state().device;
  return CurrentContext(device.driver(), device.context());
}

// "the __global__ function takes a parameter of 8 bytes; accepted: ...": what is wrong with a
// kernel whose parameter is not as long as its key says.
std::string wrong_parameter(std::size_t bytes, std::size_t accepted);

// Loads a cubin on a device and puts its code there.
// kDriver: the driver refuses it.  kInvalidKey: the kernel's parameter is not as long as the recipe
// says.  `blames_cubin`, if given: whether an error is the cubin's fault, so that another one may
// do better; it is not where the device has no memory left, say.
Result<Kernel> load_kernel(std::shared_ptr<const Device> device, const Recipe& recipe,
                           KernelInfo info, const std::string& cubin, bool* blames_cubin = nullptr);

}  // namespace cubinery
