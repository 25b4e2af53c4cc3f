// What Python's tests see of a GPU that is not there: the fake libcuda of tests/data/fake_driver.h,
// and arrays "on" its device, in C for ctypes.  fake_gpu.py builds it.
#include <dlpack/dlpack.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/data/fake_driver.h"
#include "tests/data/param_bytes.h"

using cubinery::test::FakeSettings;

extern "C" FakeSettings* fake_driver_settings();

namespace {

struct FakeArray {
  DLTensor tensor;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};
// ctypes calls without the interpreter's lock, the module asks for views with it.
std::mutex mutex;
std::unordered_map<const void*, FakeArray> arrays;  // by the address of the Python object
std::atomic<void*> current_stream = nullptr;

int view(void* object, DLTensor* out) {
  const std::lock_guard lock(mutex);
  *out = arrays.at(object).tensor;
  return 0;
}

int work_stream(DLDeviceType, std::int32_t, void** stream) {
  *stream = current_stream;
  return 0;
}

// DLPack's exchange API, as far as consumers of views use it.
struct {
  std::uint32_t major = 1;
  std::uint32_t minor = 2;
  void* previous = nullptr;
  void* allocate = nullptr;
  void* from_object = nullptr;
  void* to_object = nullptr;
  int (*view)(void*, DLTensor*) = ::view;
  int (*stream)(DLDeviceType, std::int32_t, void**) = work_stream;
} exchange_api;

// Graphs are what their launches take, events the time when they are recorded.
std::map<unsigned, float> costs;
float now = 0;
std::size_t captured_from = 0;

}  // namespace

struct CUgraph_st {
  float ms;
};
struct CUgraphExec_st {
  float ms;
};
struct CUevent_st {
  float at;
};

extern "C" {

CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
  captured_from = fake_driver_settings()->launches.size();
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  float ms = 0;
  const auto& launches = fake_driver_settings()->launches;
  for (std::size_t i = captured_from; i < launches.size(); ++i) {
    if (launches[i].config.hStream != stream) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    const auto cost = costs.find(launches[i].config.blockDimX);
    ms += cost == costs.end() ? 1 : cost->second;
  }
  *graph = new CUgraph_st{ms};
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->ms};
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream) {
  now += executable->ms;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  delete executable;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = new CUevent_st{0};
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream) {
  event->at = now;
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  *ms = end->at - start->at;
  return CUDA_SUCCESS;
}

void fake_prepare() { fake_driver_settings()->param_bytes = cubinery::test::param_bytes(); }

int fake_launches() { return static_cast<int>(fake_driver_settings()->launches.size()); }
void fake_forget_launches() { fake_driver_settings()->launches.clear(); }
// Requires: fake_launches() > 0.
void* fake_stream_of_launch() { return fake_driver_settings()->launches.back().config.hStream; }
// The same: of the last launch the kernel's symbol, the bytes of its parameters, and grid, block,
// dynamic shared memory, cluster, cooperative and programmatic launch, as 12 numbers.
const char* fake_kernel_of_launch() {
  return fake_driver_settings()->launches.back().kernel.c_str();
}
int fake_arguments_of_launch(const char** bytes) {
  const std::vector<char>& arguments = fake_driver_settings()->launches.back().arguments;
  *bytes = arguments.data();
  return static_cast<int>(arguments.size());
}
void fake_config_of_launch(unsigned* to) {
  const cubinery::test::FakeLaunch& launch = fake_driver_settings()->launches.back();
  const CUlaunchConfig& config = launch.config;
  const unsigned given[] = {config.gridDimX,
                            config.gridDimY,
                            config.gridDimZ,
                            config.blockDimX,
                            config.blockDimY,
                            config.blockDimZ,
                            config.sharedMemBytes,
                            1,
                            1,
                            1,
                            0,
                            0};
  std::copy(std::begin(given), std::end(given), to);
  for (const CUlaunchAttribute& attribute : launch.attributes) {
    const CUlaunchAttributeValue& value = attribute.value;
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        to[7] = value.clusterDim.x, to[8] = value.clusterDim.y, to[9] = value.clusterDim.z;
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        to[10] = static_cast<unsigned>(value.cooperative);
        break;
      default:
        to[11] = static_cast<unsigned>(value.programmaticStreamSerializationAllowed);
    }
  }
}
// A stream is captured, and whether a call has invalidated that.
void fake_capture(int capturing) {
  fake_driver_settings()->capturing = capturing != 0;
  fake_driver_settings()->invalidated = false;
}
int fake_invalidated() { return fake_driver_settings()->invalidated ? 1 : 0; }
void fake_refuse_launches(int code) {
  fake_driver_settings()->launch = static_cast<CUresult>(code);
}

// What a launch with so many threads in a block takes, on the clock of events; else a millisecond.
void fake_set_cost(unsigned block, float ms) { costs[block] = ms; }

void* fake_exchange_api() { return &exchange_api; }
void fake_set_current_stream(void* stream) { current_stream = stream; }

void fake_add_array(const void* object, const DLTensor* tensor) {
  const std::lock_guard lock(mutex);
  FakeArray& array = arrays[object];
  array.tensor = *tensor;
  array.shape.assign(tensor->shape, tensor->shape + tensor->ndim);
  array.tensor.shape = array.shape.data();
  if (tensor->strides == nullptr) return;
  array.strides.assign(tensor->strides, tensor->strides + tensor->ndim);
  array.tensor.strides = array.strides.data();
}

int fake_arrays() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(arrays.size());
}

void fake_remove_array(const void* object) {
  const std::lock_guard lock(mutex);
  arrays.erase(object);
}

}  // extern "C"
