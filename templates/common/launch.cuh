// Programmatic dependent launch.  Both do nothing in a kernel that was launched without it, and on
// architectures that do not have it.
#pragma once

namespace cubinery::dev {

// Waits until the kernels in front on the stream have ended and their writes can be seen.  Call it
// before the first access to memory that they may write.
__device__ inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel on the stream start while this one still runs.
__device__ inline void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace cubinery::dev
