#include "benchmarks/prepared_launch.h"

#include <stdexcept>

namespace cubinery::bench {

namespace {

internal::Owned<CUgraph, &Driver::cuGraphDestroy> record(const Gpu& gpu, const DeviceStream& stream,
                                                         const std::function<Status()>& body) {
  const Driver& cuda = gpu.driver();
  gpu.must(cuda.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
           "cuStreamBeginCapture");
  const Status launched = body();
  CUgraph graph = nullptr;
  const CUresult ended = cuda.cuStreamEndCapture(stream.get(), &graph);
  launched.value();
  gpu.must(ended, "cuStreamEndCapture");
  return {gpu.device(), graph};
}

}  // namespace

PreparedLaunch::PreparedLaunch(const Gpu& gpu, const DeviceStream& stream,
                               const std::function<Status()>& body, const Kernel& kernel)
    : gpu_(gpu), graph_(record(gpu, stream, body)) {
  const Driver& cuda = gpu.driver();
  std::size_t count = 0;
  gpu.must(cuda.cuGraphGetNodes(graph_.get(), nullptr, &count), "cuGraphGetNodes");
  if (count != 1) throw std::runtime_error("an operator launches more than one kernel");
  CUgraphNode node = nullptr;
  gpu.must(cuda.cuGraphGetNodes(graph_.get(), &node, &count), "cuGraphGetNodes");
  gpu.must(cuda.cuGraphKernelNodeGetParams(node, &params_), "cuGraphKernelNodeGetParams");
  params_.func = static_cast<CUfunction>(kernel.cuda_function());
}

CUresult PreparedLaunch::launch(Stream stream) const {
  return gpu_.driver().cuLaunchKernel(params_.func, params_.gridDimX, params_.gridDimY,
                                      params_.gridDimZ, params_.blockDimX, params_.blockDimY,
                                      params_.blockDimZ, params_.sharedMemBytes, stream,
                                      params_.kernelParams, params_.extra);
}

}  // namespace cubinery::bench
