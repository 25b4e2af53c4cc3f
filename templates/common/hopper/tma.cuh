// Copies by TMA (from sm_90 on) from global to shared memory, and the barriers in
// shared memory (mbarrier) that count their bytes.
//
// TMA reaches shared memory by another way than ld and st do, the asynchronous proxy:
// show_to_tma() stands between accesses of the one kind and of the other.  Only TMA's
// writes need none in front of reads: the barrier that counts them orders both.
#pragma once

#include "common/shared.cuh"
#include "cubinery/tensor_map.h"

namespace cubinery::dev {

// Orders this thread's accesses to shared memory so far, with ld, st and cp.async, before those of
// TMA and of wgmma for whoever waits for this thread.
__device__ inline void show_to_tma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for accesses to global memory, in front of TMA's.
__device__ inline void show_global_to_tma() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// A barrier whose phase ends when so many threads have come: one that has said how many bytes are
// copied, when they are there; or some that leave shared memory to TMA.
__device__ inline void set_up_barrier(unsigned barrier, int threads = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Comes to a barrier, without waiting.  What the thread has done comes before what they do who wait
// for the phase.
__device__ inline void come_to(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The phase is over after `bytes` more.  For the one thread.
__device__ inline void expect_bytes(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the phase is over; phases have the parities 0, 1, 0, 1 ...
__device__ inline void wait_for_phase(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred over;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t"
      "@!over bra again;\n\t"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether this lane is the one of its warp that acts for it; always the same one.  Where the
// compiler sees this choice, it knows that what TMA instructions take from registers of
// the warp is one lane's; else it makes a loop over all that lanes may have.  For whole warps.
__device__ inline bool is_elected() {
  unsigned elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

// Starts copying a box of a tensor, whose first element has these coordinates.  What lies outside
// of the tensor becomes zeros.
__device__ inline void copy_box(unsigned shared, const TensorMap& map, int x0, int x1, int x2,
                                int x3, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(&map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(barrier)
      : "memory");
}

// Starts copying bytes.  Requires: all three are multiples of 16.
__device__ inline void copy_run(unsigned shared, const void* global, int bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// Starts copying a box from shared memory into a tensor; this thread's boxes form a group.
__device__ inline void write_box(const TensorMap& map, int x0, int x1, int x2, int x3,
                                 unsigned shared) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n\t"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(shared)
      : "memory");
}

// Starts copying bytes from shared memory; likewise.  Requires: all three are multiples of 16.
__device__ inline void write_run(void* global, unsigned shared, int bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
      "cp.async.bulk.commit_group;" ::"l"(global),
      "r"(shared), "r"(bytes)
      : "memory");
}

// Waits until this thread's boxes and runs have been read from shared memory.
__device__ inline void wait_for_boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Behind the last use of a barrier, so that its memory can have another one.
__device__ inline void take_down_barrier(unsigned barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace cubinery::dev
