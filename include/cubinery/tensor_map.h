// What a tensor map is to the project: bytes that the driver fills and the copy engine reads.
// Compiled by the host and by NVRTC.
#pragma once

namespace cubinery {

// cuda.h's CUtensorMap.  Kernels have it in their parameters.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

}  // namespace cubinery
