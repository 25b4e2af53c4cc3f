// Numbers that all lanes of a warp have alike.
#pragma once

namespace cubinery::dev {

// x, which is the same in all lanes.  So the compiler knows it, and keeps x once for the warp: a
// value that came from memory would take a register of every lane.
template <class T>
__device__ T uniform(T x) {
  return static_cast<T>(__shfl_sync(0xffffffffu, x, 0));
}

}  // namespace cubinery::dev
