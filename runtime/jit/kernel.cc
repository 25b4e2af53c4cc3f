#include "cubinery/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "cache/cubin_note.h"
#include "codegen/arch.h"
#include "runtime/jit/kernel_state.h"

namespace cubinery {
namespace {

// The most dynamic shared memory that a kernel may use without asking for it.
constexpr unsigned kPlainSharedBytes = 48 * 1024;
// The most threads of a block along z, on every device.
constexpr unsigned kMostBlockZ = 64;

// Apart for the sake of launches.
[[gnu::noinline]] Status driver_error(const Kernel::State& state, CUresult result,
                                      const char* call) {
  const Status failed = state.device->driver().check(result, call);
  return internal::key_error(failed.code(), failed.message(), state.info.canonical);
}

Status from_driver(const Kernel::State& state, CUresult result, const char* call) {
  return result == CUDA_SUCCESS ? Status() : driver_error(state, result, call);
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
  Loader(Kernel::State* state, const Recipe& recipe)
      : state_(state), recipe_(recipe), driver_(state->device->driver()) {}

  Status load(const std::string& cubin) {
    const CurrentContext current(driver_, state_->device->context());
    CUBINERY_RETURN_IF_ERROR(current.status().clone());
    const OutsideCapture outside(driver_);
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuLibraryLoadData(&state_->library, cubin.data(), nullptr, nullptr, 0,
                                        nullptr, nullptr, 0),
              "cuLibraryLoadData"));
    CUkernel kernel = nullptr;
    const std::string& symbol = recipe_.symbol.empty() ? state_->info.symbol : recipe_.symbol;
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuLibraryGetKernel(&kernel, state_->library, symbol.c_str()),
              "cuLibraryGetKernel"));
    CUBINERY_RETURN_IF_ERROR(recipe_.param_bytes ? check_parameter(kernel)
                                                 : add_parameters(kernel, cubin, symbol));
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuKernelGetFunction(&state_->function, kernel), "cuKernelGetFunction"));
    CUBINERY_RETURN_IF_ERROR(set_limits(kernel));
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
    state_->parameters = {bytes};
    if (bytes == *recipe_.param_bytes) return {};
    blames_cubin_ = true;
    return internal::key_error(Code::kInvalidKey, wrong_parameter(bytes, *recipe_.param_bytes),
                               state_->info.canonical);
  }

  // As many as the cubin says: a question for one more is an error that tools for CUDA report.
  Status add_parameters(CUkernel kernel, const std::string& cubin, const std::string& symbol) {
    const std::optional<KernelParameters> parameters = read_parameters(cubin, symbol);
    const int count = parameters ? parameters->count : 0;
    for (int i = 0; i < count; ++i) {
      std::size_t offset = 0;
      std::size_t bytes = 0;
      CUBINERY_RETURN_IF_ERROR(
          check(driver_.cuKernelGetParamInfo(kernel, static_cast<std::size_t>(i), &offset, &bytes),
                "cuKernelGetParamInfo"));
      state_->parameters.push_back(bytes);
    }
    return {};
  }

  // What a block may have.
  Status set_limits(CUkernel kernel) {
    if (state_->threads != 0 && state_->shared_bytes <= kPlainSharedBytes) return {};
    CUdevice device = 0;
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuDeviceGet(&device, state_->device->ordinal()), "cuDeviceGet"));
    if (state_->threads != 0) return allow_shared_bytes(kernel, device, state_->shared_bytes);
    int threads = 0;
    int own_bytes = 0;
    int most_bytes = 0;
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                           kernel, device),
              "cuKernelGetAttribute"));
    CUBINERY_RETURN_IF_ERROR(
        check(driver_.cuKernelGetAttribute(&own_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel,
                                           device),
              "cuKernelGetAttribute"));
    CUBINERY_RETURN_IF_ERROR(state_->device->attribute(
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &most_bytes));
    state_->most_threads = static_cast<unsigned>(threads);
    state_->most_shared_bytes = static_cast<unsigned>(std::max(0, most_bytes - own_bytes));
    if (has_clusters(state_->device->major())) {
      // Clusters of more than 8 blocks; where the driver does not take it, a launch says so.
      (void)driver_.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
                                         kernel, device);
    }
    return allow_shared_bytes(kernel, device, state_->most_shared_bytes);
  }

  Status allow_shared_bytes(CUkernel kernel, CUdevice device, unsigned bytes) {
    return check(driver_.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              static_cast<int>(bytes), kernel, device),
                 "cuKernelSetAttribute");
  }

  Kernel::State* state_;
  const Recipe& recipe_;
  const Driver& driver_;
  bool blames_cubin_ = false;
};

// What is wrong with a launch.
enum class Fault : int {
  kNone,
  kArguments,
  kGrid,
  kNoClusters,  // on the device; PDL neither
  kCluster,
  kBlockOfKey,  // given though the key says it
  kBlock,
  kSharedBytes
};

// The arguments of a launch, as far as a kernel can check them.
struct ArgumentSizes {
  const std::size_t* bytes;
  std::size_t count;
};

bool takes(const std::vector<std::size_t>& parameters, const ArgumentSizes& sizes) {
  if (sizes.count != parameters.size()) return false;
  for (std::size_t i = 0; i < sizes.count; ++i) {
    if (sizes.bytes[i] != parameters[i]) return false;
  }
  return true;
}

bool is_empty(const Dim3& extents) { return extents.x == 0 || extents.y == 0 || extents.z == 0; }

bool is_one(const Dim3& extents) { return extents.x == 1 && extents.y == 1 && extents.z == 1; }

bool divides(const Dim3& cluster, const Dim3& grid) {
  return !is_empty(cluster) && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 &&
         grid.z % cluster.z == 0;
}

bool has_threads(const Dim3& block, unsigned most) {
  return !is_empty(block) && block.x <= most && block.y <= most && block.z <= kMostBlockZ &&
         std::uint64_t{block.x} * block.y * block.z <= most;
}

Fault fault_of(const Kernel::State& state, const Launch& launch, const ArgumentSizes& sizes) {
  if (!takes(state.parameters, sizes)) return Fault::kArguments;
  if (is_empty(launch.grid)) return Fault::kGrid;
  const bool has_cluster = !is_one(launch.cluster);
  if ((has_cluster || launch.enable_pdl) && !has_clusters(state.device->major())) {
    return Fault::kNoClusters;
  }
  if (has_cluster && !divides(launch.cluster, launch.grid)) return Fault::kCluster;
  const Dim3& block = launch.block;
  if (state.threads != 0) {
    const bool is_given = block.x != 0 || block.y != 1 || block.z != 1 || launch.shared_bytes != 0;
    return is_given ? Fault::kBlockOfKey : Fault::kNone;
  }
  if (!has_threads(block, state.most_threads)) return Fault::kBlock;
  return launch.shared_bytes <= state.most_shared_bytes ? Fault::kNone : Fault::kSharedBytes;
}

std::string text_of(const Dim3& extents) {
  return fmt::format("{} x {} x {}", extents.x, extents.y, extents.z);
}

std::string wrong_arguments(const Kernel::State& state, const ArgumentSizes& sizes) {
  const std::vector<std::size_t>& parameters = state.parameters;
  if (state.threads != 0 && sizes.count == 1) {
    return fmt::format("params has {} bytes; accepted: {}", sizes.bytes[0], parameters[0]);
  }
  if (sizes.count != parameters.size()) {
    return fmt::format("{} has {} argument{}; accepted: {}, of [{}] bytes", state.info.kernel,
                       sizes.count, sizes.count == 1 ? "" : "s", parameters.size(),
                       fmt::join(parameters, ", "));
  }
  std::size_t at = 0;
  while (sizes.bytes[at] == parameters[at]) ++at;
  return fmt::format("argument {} of {} has {} bytes; accepted: {}", at + 1, state.info.kernel,
                     sizes.bytes[at], parameters[at]);
}

std::string text_of(Fault fault, const Kernel::State& state, const Launch& launch,
                    const ArgumentSizes& sizes) {
  switch (fault) {
    case Fault::kNone:
      break;
    case Fault::kArguments:
      return wrong_arguments(state, sizes);
    case Fault::kGrid:
      return fmt::format("grid is {}; accepted: at least 1 each way", text_of(launch.grid));
    case Fault::kNoClusters:
      return fmt::format(
          "clusters and launches with PDL need sm_90 or newer; the device is sm_{}{}",
          state.device->major(), state.device->minor());
    case Fault::kCluster:
      return fmt::format(
          "cluster is {}; accepted: at least 1 each way, and what divides the grid of {}",
          text_of(launch.cluster), text_of(launch.grid));
    case Fault::kBlockOfKey:
      return fmt::format(
          "block is {} and shared_bytes {}; accepted: none, the key says {} threads and {} bytes",
          text_of(launch.block), launch.shared_bytes, state.threads, state.shared_bytes);
    case Fault::kBlock:
      return fmt::format("block is {}; accepted: 1 to {} threads, z at most {}",
                         text_of(launch.block), state.most_threads, kMostBlockZ);
    case Fault::kSharedBytes:
      return fmt::format(
          "shared_bytes is {}; accepted: at most {}, what the device gives a block "
          "less the kernel's own",
          launch.shared_bytes, state.most_shared_bytes);
  }
  return {};
}

// Apart from launch_array(), whose stack and registers errors would take.
[[gnu::noinline]] Status refused(Fault fault, const Kernel::State& state, const Launch& launch,
                                 const ArgumentSizes& sizes) {
  return internal::key_error(
      fault == Fault::kNoClusters ? Code::kUnsupported : Code::kInvalidArgument,
      text_of(fault, state, launch, sizes), state.info.canonical);
}

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

Result<Kernel> load_kernel(std::shared_ptr<const Device> device, const Recipe& recipe,
                           KernelInfo info, const std::string& cubin, bool* blames_cubin) {
  auto state = std::make_shared<Kernel::State>();
  state->info = std::move(info);
  state->device = std::move(device);
  state->threads = recipe.threads;
  state->shared_bytes = recipe.shared_bytes;
  Loader loader(state.get(), recipe);
  Status status = loader.load(cubin);
  if (blames_cubin != nullptr) *blames_cubin = loader.blames_cubin();
  if (!status.ok()) return status;
  return Kernel(std::move(state));
}

const KernelInfo& Kernel::info() const& { return state_->info; }

void* Kernel::cuda_function() const { return state_->function; }

const std::vector<std::size_t>& Kernel::parameter_bytes() const& { return state_->parameters; }

Status Kernel::launch_array(Stream stream, const Launch& launch, const void* const* arguments,
                            const std::size_t* bytes, std::size_t count) const {
  const State& state = *state_;
  const ArgumentSizes sizes{bytes, count};
  const Fault fault = fault_of(state, launch, sizes);
  if (fault != Fault::kNone) return refused(fault, state, launch, sizes);
  std::array<CUlaunchAttribute, 3> attributes;  // on the stack: two threads may launch at once
  unsigned used = 0;
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    attributes[used] = {};
    attributes[used].id = id;
    return attributes[used++].value;
  };
  if (!is_one(launch.cluster)) {
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {launch.cluster.x, launch.cluster.y,
                                                             launch.cluster.z};
  }
  if (launch.enable_pdl) {
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed = 1;
  }
  if (launch.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  const bool has_key = state.threads != 0;
  const CUlaunchConfig config{.gridDimX = launch.grid.x,
                              .gridDimY = launch.grid.y,
                              .gridDimZ = launch.grid.z,
                              .blockDimX = has_key ? state.threads : launch.block.x,
                              .blockDimY = launch.block.y,  // 1 with a key
                              .blockDimZ = launch.block.z,
                              .sharedMemBytes = has_key ? state.shared_bytes : launch.shared_bytes,
                              .hStream = stream,
                              .attrs = attributes.data(),
                              .numAttrs = used};
  const Driver& driver = state.device->driver();
  const CurrentContext current = with_context_of(*this);
  CUBINERY_RETURN_IF_ERROR(current.status().clone());
  return from_driver(
      state,
      driver.cuLaunchKernelEx(&config, state.function, const_cast<void**>(arguments), nullptr),
      "cuLaunchKernelEx");
}

}  // namespace cubinery
