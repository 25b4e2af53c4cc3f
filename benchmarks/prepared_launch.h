// The kernel of an operator's launch, launched bare.
#pragma once

#include <cuda.h>

#include <functional>

#include "benchmarks/bench.h"

namespace cubinery::bench {

// Function, grid and parameters of a kernel as a graph recorded them, ready for cuLaunchKernel.
class PreparedLaunch {
 public:
  // What `body` enqueues on `stream`: one launch of `kernel`, else throws std::runtime_error.
  PreparedLaunch(const Gpu& gpu, const DeviceStream& stream, const std::function<Status()>& body,
                 const Kernel& kernel);

  CUresult launch(Stream stream) const;

 private:
  const Gpu& gpu_;
  internal::Owned<CUgraph, &Driver::cuGraphDestroy> graph_;  // owns the parameters
  CUDA_KERNEL_NODE_PARAMS params_{};
};

}  // namespace cubinery::bench
