// A tensor map: where and how a tensor lies, as TMA wants it.  The driver fills it on the host.
// Compiled by the host and by NVRTC.
#pragma once

namespace cubinery {

// cuda.h's CUtensorMap.  Kernels have it in their parameters.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

}  // namespace cubinery
