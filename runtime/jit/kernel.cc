#include "cubinery/kernel.h"

#include <fmt/format.h>

#include <array>

#include "codegen/arch.h"
#include "runtime/jit/kernel_state.h"

namespace cubinery {
namespace {

// The most dynamic shared memory that a kernel may use without asking for it.
constexpr unsigned kPlainSharedBytes = 48 * 1024;

Status from_driver(const Kernel::State& state, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return {};
  const Status failed = state.device->driver().check(result, call);
  return internal::key_error(failed.code(), failed.message(), state.info.canonical);
}

// Whether this is said of the image, not of the device or the process.
bool is_of_image(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:  // no image at all
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
    case CUDA_ERROR_NOT_FOUND:  // no such kernel in it
      return true;
    default:
      return false;
  }
}

// Loads a cubin into a kernel's state.
class Loader {
 public:
  explicit Loader(Kernel::State* state) : state_(state), driver_(state->device->driver()) {}

  Status load(const std::string& cubin) {
    const CurrentContext current(driver_, state_->device->context());
    CUBINERY_RETURN_IF_ERROR(current.status().clone());
    const OutsideCapture outside(driver_);
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuLibraryLoadData(&state_->library, cubin.data(), nullptr, nullptr, 0,
                                        nullptr, nullptr, 0),
              "cuLibraryLoadData"));
    CUkernel kernel = nullptr;
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuLibraryGetKernel(&kernel, state_->library, state_->info.kernel.c_str()),
              "cuLibraryGetKernel"));
    CUBINERY_RETURN_IF_ERROR(check_parameter(kernel));
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuKernelGetFunction(&state_->function, kernel), "cuKernelGetFunction"));
    if (state_->shared_bytes > kPlainSharedBytes) {
      CUdevice device = 0;
      CUBINERY_RETURN_IF_ERROR(
          check(driver_.cuDeviceGet(&device, state_->device->ordinal()), "cuDeviceGet"));
      CUBINERY_RETURN_IF_ERROR(check(
          driver_.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       static_cast<int>(state_->shared_bytes), kernel, device),
          "cuKernelSetAttribute"));
    }
    // CUDA loads code lazily, which stalls the first launch and deadlocks with a kernel that waits
    // for it.
    return check(driver_.cuFuncLoad(state_->function), "cuFuncLoad");
  }

  // Of the error of load().
  bool blames_cubin() const { return blames_cubin_; }

 private:
  Status check(CUresult result, const char* call) {
    blames_cubin_ = is_of_image(result);
    return from_driver(*state_, result, call);
  }

  // The kernel's parameter must be as long as the struct that launches will pass.
  Status check_parameter(CUkernel kernel) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuKernelGetParamInfo(kernel, 0, &offset, &bytes), "cuKernelGetParamInfo"));
    if (bytes == state_->param_bytes) return {};
    blames_cubin_ = true;
    return internal::key_error(Code::kInvalidKey, wrong_parameter(bytes, state_->param_bytes),
                               state_->info.canonical);
  }

  Kernel::State* state_;
  const Driver& driver_;
  bool blames_cubin_ = false;
};

}  // namespace

std::string wrong_parameter(std::size_t bytes, std::size_t accepted) {
  return fmt::format(
      "the __global__ function takes a parameter of {} bytes; accepted: the struct Fields::Params "
      "of {} bytes",
      bytes, accepted);
}

Kernel::State::~State() {
  if (library != nullptr) device->unload(library);
}

Result<Kernel> load_kernel(std::shared_ptr<const Device> device, const KernelSpec& spec,
                           KernelInfo info, const std::string& cubin, bool* blames_cubin) {
  auto state = std::make_shared<Kernel::State>();
  state->info = std::move(info);
  state->device = std::move(device);
  state->threads = spec.threads;
  state->shared_bytes = spec.shared_bytes;
  state->param_bytes = spec.param_bytes;
  Loader loader(state.get());
  Status status = loader.load(cubin);
  if (blames_cubin != nullptr) *blames_cubin = loader.blames_cubin();
  if (!status.ok()) return status;
  return Kernel(std::move(state));
}

const KernelInfo& Kernel::info() const& { return state_->info; }

void* Kernel::cuda_function() const { return state_->function; }

Status Kernel::launch_bytes(Stream stream, const Launch& launch, const void* params,
                            std::size_t bytes) const {
  const State& state = *state_;
  if (bytes != state.param_bytes) {
    return internal::key_error(
        Code::kInvalidArgument,
        fmt::format("params has {} bytes; accepted: {}", bytes, state.param_bytes),
        state.info.canonical);
  }
  const bool has_cluster = launch.cluster_x * launch.cluster_y * launch.cluster_z != 1;
  if ((has_cluster || launch.enable_pdl) && !has_clusters(state.device->major())) {
    return internal::key_error(
        Code::kUnsupported,
        fmt::format("clusters and launches with PDL need sm_90 or newer; the device is sm_{}{}",
                    state.device->major(), state.device->minor()),
        state.info.canonical);
  }
  std::array<CUlaunchAttribute, 2> attributes{};  // on the stack: two threads may launch at once
  unsigned count = 0;
  if (has_cluster) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count++].value.clusterDim = {launch.cluster_x, launch.cluster_y, launch.cluster_z};
  }
  if (launch.enable_pdl) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  const CUlaunchConfig config{.gridDimX = launch.grid_x,
                              .gridDimY = launch.grid_y,
                              .gridDimZ = launch.grid_z,
                              .blockDimX = state.threads,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .sharedMemBytes = state.shared_bytes,
                              .hStream = stream,
                              .attrs = attributes.data(),
                              .numAttrs = count};
  const Driver& driver = state.device->driver();
  const CurrentContext current = with_context_of(*this);
  CUBINERY_RETURN_IF_ERROR(current.status().clone());
  void* arguments[] = {const_cast<void*>(params)};
  return from_driver(state, driver.cuLaunchKernelEx(&config, state.function, arguments, nullptr),
                     "cuLaunchKernelEx");
}

}  // namespace cubinery
