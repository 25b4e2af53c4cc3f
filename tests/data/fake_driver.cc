// The functions of the fake libcuda that do something; fake_driver_stubs.cc has all others.
#include "tests/data/fake_driver.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/cubin_note.h"

namespace {

cubinery::test::FakeSettings settings;
std::mutex mutex;  // of the settings that calls change, and of `kernels`

// Any addresses; nobody looks behind them.
int context;
thread_local CUcontext current = nullptr;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// A library is the address of its cubin, a kernel and its function that of their name.
std::set<std::string> kernels;

template <class Handle>
const std::string& name_of(Handle kernel) {
  return *reinterpret_cast<const std::string*>(kernel);
}

// Of kernels in the cubins that were loaded, by name.
std::map<std::string, std::vector<std::size_t>> sizes_in_cubins;

template <class Number>
Number number_at(const char* bytes, std::size_t offset) {
  Number number = 0;
  std::memcpy(&number, bytes + offset, sizeof(number));
  return number;
}

// The whole file, whose size callers do not say.
std::string_view cubin_at(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return {};
  const auto table = number_at<std::uint64_t>(bytes, 40);
  const auto count = number_at<std::uint16_t>(bytes, 60);
  std::uint64_t end = table + std::uint64_t{64} * count;
  for (std::uint64_t i = 0; i < count; ++i) {
    const char* header = bytes + table + 64 * i;
    const bool is_in_file = number_at<std::uint32_t>(header, 4) != 8;
    const std::uint64_t size = is_in_file ? number_at<std::uint64_t>(header, 32) : 0;
    end = std::max(end, number_at<std::uint64_t>(header, 24) + size);
  }
  return {bytes, static_cast<std::size_t>(end)};
}

// The sizes of a kernel's parameters, as the last cubin with a kernel of the name says.
std::vector<std::size_t> parameters_of(const std::string& kernel) {
  const auto given = settings.param_bytes.find(kernel);
  if (given != settings.param_bytes.end()) return {given->second};
  const auto found = sizes_in_cubins.find(kernel);
  return found != sizes_in_cubins.end() ? found->second : std::vector<std::size_t>{0};
}

// Of calls that must not be made while a stream is captured.
bool is_forbidden() {
  if (!settings.capturing || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  settings.invalidated = true;
  return true;
}

}  // namespace

extern "C" {

cubinery::test::FakeSettings* fake_driver_settings() { return &settings; }

CUresult cuInit(unsigned) { return settings.init; }

CUresult cuDriverGetVersion(int* version) {
  *version = settings.version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
    case CUDA_ERROR_NO_DEVICE:
      *name = "CUDA_ERROR_NO_DEVICE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_IMAGE:
      *name = "CUDA_ERROR_INVALID_IMAGE";
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (error != CUDA_ERROR_NO_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *text = "no CUDA-capable device is detected";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = settings.devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, settings.name.c_str(), static_cast<std::size_t>(length));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = settings.major;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = settings.minor;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = settings.sm_count;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = settings.l2_bytes;
      return settings.get_attribute;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = settings.clock_khz;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = settings.shared_bytes_per_block;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = settings.shared_bytes_per_sm;
      return settings.get_attribute;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice) {
  const std::lock_guard lock(mutex);
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (settings.retain_context != CUDA_SUCCESS) return settings.retain_context;
  ++settings.contexts;
  *retained = reinterpret_cast<CUcontext>(&context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  const std::lock_guard lock(mutex);
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  --settings.contexts;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* found) {
  *found = current;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (settings.current_device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = settings.current_device;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext pushed) {
  const std::lock_guard lock(mutex);
  ++settings.pushed;
  ++settings.pushes;
  current = pushed;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* popped) {
  const std::lock_guard lock(mutex);
  --settings.pushed;
  *popped = current;
  current = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* loaded, const void* image, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  const std::lock_guard lock(mutex);
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (settings.load_library != CUDA_SUCCESS) return settings.load_library;
  if (settings.refused_images > 0) return --settings.refused_images, CUDA_ERROR_INVALID_IMAGE;
  ++settings.libraries;
  settings.loaders.insert(std::this_thread::get_id());
  *loaded = reinterpret_cast<CUlibrary>(new std::string(cubin_at(image)));
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  const std::lock_guard lock(mutex);
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (settings.refused_unloads > 0)
    return --settings.refused_unloads, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  --settings.libraries;
  delete reinterpret_cast<std::string*>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* found, CUlibrary library, const char* name) {
  const std::lock_guard lock(mutex);
  const std::string* stored = &*kernels.insert(name).first;
  *found = reinterpret_cast<CUkernel>(const_cast<std::string*>(stored));
  if (const auto parameters = cubinery::read_parameters(name_of(library), name)) {
    sizes_in_cubins[name] = parameters->sizes;
  }
  return settings.get_kernel;
}

CUresult cuKernelGetFunction(CUfunction* found, CUkernel kernel) {
  *found = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* bytes) {
  const std::lock_guard lock(mutex);
  const std::vector<std::size_t> sizes = parameters_of(name_of(kernel));
  if (index >= sizes.size()) {
    ++settings.absent_parameters;
    return CUDA_ERROR_INVALID_VALUE;
  }
  *offset = 0;
  *bytes = sizes[index];
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel, CUdevice) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = settings.threads_per_block;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = settings.own_shared_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice) {
  const std::lock_guard lock(mutex);
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    settings.large_clusters.insert(name_of(kernel));
    return settings.set_cluster;
  }
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  settings.shared_bytes[name_of(kernel)].insert(value);
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction) {
  const std::lock_guard lock(mutex);
  return is_forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

// The map starts with the address.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank,
                                void* address, const cuuint64_t*, const cuuint64_t* strides,
                                const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  const std::lock_guard lock(mutex);
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (settings.encode != CUDA_SUCCESS) return settings.encode;
  settings.map_strides.emplace_back(strides, strides + rank - 1);
  std::memcpy(map, &address, sizeof(address));
  return CUDA_SUCCESS;
}

// Memory of the host.
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  auto memory = std::make_unique<char[]>(bytes);
  *address = reinterpret_cast<CUdeviceptr>(memory.get());
  settings.memory[*address] = std::move(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
  return settings.memory.erase(address) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(0x7000);  // any address
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }

CUresult cuStreamQuery(CUstream) {
  return settings.stream_runs ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void**) {
  const std::lock_guard lock(mutex);
  if (settings.launch != CUDA_SUCCESS) return settings.launch;
  const std::string& kernel = name_of(function);
  std::vector<char> given;
  const std::vector<std::size_t> sizes = parameters_of(kernel);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const char* bytes = static_cast<const char*>(arguments[i]);
    given.insert(given.end(), bytes, bytes + sizes[i]);
  }
  settings.launches.push_back({.kernel = kernel,
                               .config = *config,
                               .attributes = {config->attrs, config->attrs + config->numAttrs},
                               .arguments = std::move(given)});
  settings.launches.back().config.attrs = nullptr;
  return CUDA_SUCCESS;
}

}  // extern "C"
