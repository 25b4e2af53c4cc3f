// The barrier of a cluster of blocks.  Does nothing before sm_90, where a block has no cluster.
#pragma once

namespace cubinery::dev {

// For all threads of the cluster's blocks that have not ended.  What a thread has read and written
// before it arrives comes before what others do behind their wait.
__device__ inline void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

// Until all have arrived.
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace cubinery::dev
