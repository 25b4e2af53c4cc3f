// Every driver function that the project calls, weak: fake_driver.cc has the ones that do
// something.
#include "runtime/jit/driver.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattribute-alias"
#endif

extern "C" CUresult fake_driver_not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

#define CUBINERY_STUB(function) \
  extern "C"                    \
      __attribute__((weak, alias("fake_driver_not_supported"))) decltype(::function) function;
CUBINERY_DRIVER_FUNCTIONS(CUBINERY_STUB)
#undef CUBINERY_STUB
