// An NVRTC for kernels that are launched on a GPU that is not there: it compiles, by the NVRTC that
// CUBINERY_REAL_NVRTC names, an empty kernel of the same name, parameter and architecture.
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdlib>
#include <string>

#include "tests/data/param_bytes.h"

namespace {

using cubinery::test::param_bytes;

// Opens what NVRTC opens by name, too.
void* open_real() {
  const char* path = std::getenv("CUBINERY_REAL_NVRTC");
  void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) return nullptr;
  const auto version = reinterpret_cast<decltype(&nvrtcVersion)>(dlsym(library, "nvrtcVersion"));
  int major = 0, minor = 0;
  if (version != nullptr && version(&major, &minor) == NVRTC_SUCCESS) {
    std::string builtins(path);
    builtins.resize(builtins.rfind('/') + 1);
    builtins += "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
    dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

template <class Function, class... Arguments>
nvrtcResult call_real(Function*, const char* name, Arguments... arguments) {
  static void* const kReal = open_real();
  void* const function = kReal != nullptr ? dlsym(kReal, name) : nullptr;
  if (function == nullptr) return NVRTC_ERROR_INTERNAL_ERROR;
  return reinterpret_cast<Function*>(function)(arguments...);
}

// "gdn_decode/gdn_decode.cu": "gdn_decode".
std::string kernel_of(const char* path) {
  std::string name(path != nullptr ? path : "");
  name.erase(0, name.rfind('/') + 1);
  return name.substr(0, name.find('.'));
}

}  // namespace

#define CUBINERY_REAL(function, ...) call_real(&function, #function, __VA_ARGS__)

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  return CUBINERY_REAL(nvrtcVersion, major, minor);
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_INTERNAL_ERROR ? "no NVRTC in CUBINERY_REAL_NVRTC" : "refused";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* path,
                               int count, const char* const* headers, const char* const* names) {
  const std::string kernel = kernel_of(path);
  const auto bytes = param_bytes().find(kernel);
  if (bytes == param_bytes().end()) {
    return CUBINERY_REAL(nvrtcCreateProgram, program, source, path, count, headers, names);
  }
  const std::string stub = "struct alignas(8) Params { char bytes[" +
                           std::to_string(bytes->second) + "]; };\nextern \"C\" __global__ void " +
                           kernel + "(const __grid_constant__ Params params) {}\n";
  return CUBINERY_REAL(nvrtcCreateProgram, program, stub.c_str(), path, 0, nullptr, nullptr);
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  return CUBINERY_REAL(nvrtcDestroyProgram, program);
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  return CUBINERY_REAL(nvrtcCompileProgram, program, count, options);
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  return CUBINERY_REAL(nvrtcGetProgramLogSize, program, size);
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return CUBINERY_REAL(nvrtcGetProgramLog, program, log);
}

nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char* const name) {
  return CUBINERY_REAL(nvrtcAddNameExpression, program, name);
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char* const name, const char** symbol) {
  return CUBINERY_REAL(nvrtcGetLoweredName, program, name, symbol);
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  return CUBINERY_REAL(nvrtcGetCUBINSize, program, size);
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return CUBINERY_REAL(nvrtcGetCUBIN, program, cubin);
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* size) {
  return CUBINERY_REAL(nvrtcGetPTXSize, program, size);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  return CUBINERY_REAL(nvrtcGetPTX, program, ptx);
}

}  // extern "C"
