// The GPUs of this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cubinery/status.h"
#include "runtime/jit/driver.h"

namespace cubinery {

struct Gpu {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int major = 0;
  int minor = 0;
  std::optional<std::string> arch;  // "sm_90a"; nullopt: none that we know
};

// kDriver: CUDA refused to say.
Result<std::vector<Gpu>> list_gpus(const Driver& driver);

// The architectures to compile for here, each once, in the order of the GPUs.  kUnsupported: no
// driver, no GPU, or none whose architecture is known.
Result<std::vector<std::string>> gpu_architectures(const std::string& driver_path);

}  // namespace cubinery
