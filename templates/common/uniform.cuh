// Numbers that all lanes of a warp, or all threads of a block, have alike.
#pragma once

namespace cubinery::dev {

// x, which is the same in all lanes.  So the compiler knows that lanes do not part where it
// decides, and leaves out what shuffles behind it would need if they did.
__device__ inline bool all_lanes(bool x) { return __all_sync(0xffffffffu, x); }

// x, which is the same in all lanes.  So the compiler knows it, and keeps x once for the warp: a
// value that came from memory would take a register of every lane.
template <class T>
__device__ T uniform(T x) {
  return static_cast<T>(__shfl_sync(0xffffffffu, x, 0));
}

// The same for an address that descriptors are computed from (hopper/wgmma.cuh): a reduction leaves
// its result where the warp keeps them.  What a loop carries from round to round, the compiler
// would keep in a register of every lane, and move at each use.
__device__ inline unsigned uniform_address(unsigned address) {
  return __reduce_or_sync(0xffffffffu, address);
}

// The bits that any of kWarps warps has; each has the same x in all lanes.  For all their threads,
// whose barrier is `sync`; `shared` is kWarps words of shared memory.
template <int kWarps, class Sync>
__device__ unsigned or_over_warps(unsigned x, unsigned* shared, Sync sync) {
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  // Orders the words before their reading.
  sync();
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) bits |= static_cast<volatile unsigned*>(shared)[i];
  // Orders the reading before the words' next use.
  sync();
  return bits;
}

}  // namespace cubinery::dev
