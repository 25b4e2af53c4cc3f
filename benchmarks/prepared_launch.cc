#include "benchmarks/prepared_launch.h"

#include <stdexcept>
#include <vector>

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
                               const std::function<Status()>& body, const Kernel& kernel,
                               int shared_bytes)
    : gpu_(gpu), graph_(record(gpu, stream, body)) {
  const Driver& cuda = gpu.driver();
  std::size_t count = 0;
  gpu.must(cuda.cuGraphGetNodes(graph_.get(), nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> nodes(count);
  gpu.must(cuda.cuGraphGetNodes(graph_.get(), nodes.data(), &count), "cuGraphGetNodes");
  int found = 0;
  for (const CUgraphNode node : nodes) {
    CUDA_KERNEL_NODE_PARAMS params{};
    gpu.must(cuda.cuGraphKernelNodeGetParams(node, &params), "cuGraphKernelNodeGetParams");
    if (params.sharedMemBytes != static_cast<unsigned>(shared_bytes)) continue;
    ++found;
    params_ = params;
  }
  if (found != 1) throw std::runtime_error("cannot tell the kernels of a launch apart");
  params_.func = static_cast<CUfunction>(kernel.cuda_function());
}

CUresult PreparedLaunch::launch(Stream stream) const {
  return gpu_.driver().cuLaunchKernel(params_.func, params_.gridDimX, params_.gridDimY,
                                      params_.gridDimZ, params_.blockDimX, params_.blockDimY,
                                      params_.blockDimZ, params_.sharedMemBytes, stream,
                                      params_.kernelParams, params_.extra);
}

}  // namespace cubinery::bench
