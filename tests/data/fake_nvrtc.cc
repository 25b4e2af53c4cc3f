// An NVRTC that tells its version and compiles nothing, unless it is told what comes of it: built
// as one that cubinery cannot use, and as one that never was, so that its libnvrtc-builtins is not
// on this machine.  As the real one does, it opens that library by name before it compiles.
#include "tests/data/fake_nvrtc.h"

#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>
#include <cstddef>

namespace {

cubinery::test::NvrtcSettings& settings() {
  static cubinery::test::NvrtcSettings all{.major = CUBINERY_FAKE_MAJOR,
                                           .minor = CUBINERY_FAKE_MINOR};
  return all;
}

nvrtcResult put(const std::string& text, std::size_t terminator, char* to) {
  std::copy_n(text.c_str(), text.size() + terminator, to);
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

cubinery::test::NvrtcSettings* fake_nvrtc_settings();
cubinery::test::NvrtcSettings* fake_nvrtc_settings() { return &settings(); }

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = settings().major;
  *minor = settings().minor;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int,
                               const char* const*, const char* const*) {
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }

nvrtcResult nvrtcCompileProgram(nvrtcProgram, int count, const char* const* options) {
  settings().options.clear();
  for (int i = 0; i < count; ++i) settings().options.append(" ").append(options[i]);
  if (dlopen(CUBINERY_FAKE_BUILTINS, RTLD_NOW | RTLD_LOCAL) == nullptr) {
    return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
  }
  return settings().cubin.empty() ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE ? "no builtins" : "fake";
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_ERROR_INTERNAL_ERROR; }

nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) { return NVRTC_ERROR_INTERNAL_ERROR; }
nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char*, const char**) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t* size) {
  *size = settings().cubin.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* cubin) { return put(settings().cubin, 0, cubin); }

nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t* size) {
  *size = settings().ptx.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* ptx) { return put(settings().ptx, 1, ptx); }

}  // extern "C"
