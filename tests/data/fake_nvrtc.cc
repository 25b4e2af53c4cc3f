// An NVRTC that tells its version and compiles nothing: built as the last generation that cubinery
// cannot use, and as one that never was, so that its libnvrtc-builtins is not on this machine.  As
// the real one does, it opens that library by name before it compiles.
#include <dlfcn.h>
#include <nvrtc.h>

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattribute-alias"
#endif

extern "C" nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = CUBINERY_FAKE_MAJOR;
  *minor = CUBINERY_FAKE_MINOR;
  return NVRTC_SUCCESS;
}

extern "C" nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int,
                                          const char* const*, const char* const*) {
  *program = nullptr;
  return NVRTC_SUCCESS;
}

extern "C" nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return dlopen(CUBINERY_FAKE_BUILTINS, RTLD_NOW | RTLD_LOCAL) == nullptr
             ? NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
             : NVRTC_ERROR_COMPILATION;
}

extern "C" const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE ? "no builtins" : "fake";
}

extern "C" nvrtcResult fake_nvrtc_fails() { return NVRTC_ERROR_INTERNAL_ERROR; }

#define CUBINERY_STUB(function) \
  extern "C" __attribute__((alias("fake_nvrtc_fails"))) decltype(::function) function;
CUBINERY_STUB(nvrtcDestroyProgram)
CUBINERY_STUB(nvrtcGetProgramLogSize)
CUBINERY_STUB(nvrtcGetProgramLog)
CUBINERY_STUB(nvrtcAddNameExpression)
CUBINERY_STUB(nvrtcGetLoweredName)
CUBINERY_STUB(nvrtcGetCUBINSize)
CUBINERY_STUB(nvrtcGetCUBIN)
#undef CUBINERY_STUB
