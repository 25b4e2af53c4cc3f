// Counters in global memory, by which blocks of one launch wait for each other.  Whoever is waited
// for must run already: common/chunk/segments.h takes tickets for that.
#pragma once

namespace cubinery::dev {

// The next number, one for each block, from 0 on in the order in which blocks start.  For all
// threads; `shared` is a word of shared memory.
__device__ inline unsigned take_ticket(unsigned* tickets, unsigned* shared) {
  if (threadIdx.x == 0) *shared = atomicAdd(tickets, 1u);
  // Orders the number before its reading.
  __syncthreads();
  const unsigned ticket = *static_cast<volatile unsigned*>(shared);
  // Orders the reading before the word's next use.
  __syncthreads();
  return ticket;
}

// Counts this block.  What its threads have read and written in front of their last barrier comes
// before what they do who have waited for the count.  For one thread.
__device__ inline void count_block(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// The same for what they have read and written so far.  For all threads.
__device__ inline void arrive(unsigned* counter) {
  // Orders the block's accesses before the counting by its first thread.
  __syncthreads();
  if (threadIdx.x == 0) count_block(counter);
}

// Waits until `blocks` have arrived.  For a whole warp.
__device__ inline void wait_for(const unsigned* counter, unsigned blocks) {
  if (threadIdx.x % 32 == 0) {
    unsigned count;
    while (true) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
      if (count >= blocks) break;
      __nanosleep(64);
    }
  }
  // Orders the count before what the other lanes do.
  __syncwarp();
}

}  // namespace cubinery::dev
