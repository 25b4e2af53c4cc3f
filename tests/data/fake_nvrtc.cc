// An NVRTC of the last generation that cubinery cannot use: it tells its version and does nothing
// else.
#include <nvrtc.h>

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattribute-alias"
#endif

extern "C" nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 9;
  return NVRTC_SUCCESS;
}

extern "C" nvrtcResult fake_nvrtc_fails() { return NVRTC_ERROR_INTERNAL_ERROR; }

#define CUBINERY_STUB(function) \
  extern "C" __attribute__((alias("fake_nvrtc_fails"))) decltype(::function) function;
CUBINERY_STUB(nvrtcGetErrorString)
CUBINERY_STUB(nvrtcCreateProgram)
CUBINERY_STUB(nvrtcDestroyProgram)
CUBINERY_STUB(nvrtcCompileProgram)
CUBINERY_STUB(nvrtcGetProgramLogSize)
CUBINERY_STUB(nvrtcGetProgramLog)
CUBINERY_STUB(nvrtcGetCUBINSize)
CUBINERY_STUB(nvrtcGetCUBIN)
#undef CUBINERY_STUB
