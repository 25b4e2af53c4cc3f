// One kernel of an operator's launch, launched by itself and bare.
#pragma once

#include <cuda.h>

#include <functional>

#include "benchmarks/bench.h"

namespace cubinery::bench {

// Function, grid and parameters of a kernel as a graph recorded them, ready for cuLaunchKernel.
class PreparedLaunch {
 public:
  // The launch of `kernel` among those that `body` enqueues on `stream`: the one with
  // `shared_bytes` of dynamic shared memory.  Throws std::runtime_error unless there is one.
  PreparedLaunch(const Gpu& gpu, const DeviceStream& stream, const std::function<Status()>& body,
                 const Kernel& kernel, int shared_bytes);

  CUresult launch(Stream stream) const;

 private:
  const Gpu& gpu_;
  internal::Owned<CUgraph, &Driver::cuGraphDestroy> graph_;  // owns the parameters
  CUDA_KERNEL_NODE_PARAMS params_{};
};

}  // namespace cubinery::bench
