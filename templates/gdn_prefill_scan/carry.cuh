// Carries a sequence's states from part to part: S <- decay S + D S + N.  Part of
// gdn_prefill_scan.cu.
//
// One block does so for a sequence, a head and some value columns.  It puts the state behind a
// segment where the segment's N was, and goes on to the next one, while others compute the
// segment's outputs.
#pragma once

#include "common/chunk/counters.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "common/uniform.cuh"
#include "gdn_prefill_scan/segment.cuh"

namespace {

constexpr int kResults = kSlices + kKey.key_dim / kColumns;  // blocks that find N and D
// With context_parallel N and D are another launch's, and so are those who wait for states.
constexpr bool kCounts = !kKey.context_parallel;

// With producers the threads that compute carry; else all of the block do.
constexpr int kCarrying = producers(kKey) > 0 ? kComputing : threads(kKey);
// A barrier of theirs.
__device__ void sync_carrying() {
  if constexpr (producers(kKey) > 0) {
    sync_computing();
  } else {
    __syncthreads();
  }
}

// The state behind a segment, once it is there.  For all threads.
__device__ void load_state_behind(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                  long long result) {
  if (!computes()) return;
  dev::wait_for(p.segments.ready + result, kSlices);
  load_segment_state(state, state_at(p, result), unit);
}

// Puts it there.  For all threads.
__device__ void store_state_behind(const State& state, const GdnPrefillScanParams& p,
                                   const Unit& unit, long long result) {
  if (computes()) store_segment_state(state, state_at(p, result), unit);
  if constexpr (kCounts) {
    dev::arrive(p.segments.ready + result);
  } else {
    // Orders the last slice's reading before the copies of the next run.
    __syncthreads();
  }
}

// Brings D and N of the segments that a state is carried over to shared memory, in slices: 16
// columns of D, and 16 rows of N, of the block's columns.  For the threads that copy.
class SliceCopier {
 public:
  static constexpr int kRing = kKey.segments ? ring_slices(kKey) : 2;
  static constexpr int kStates = kTransitionSlice;  // N's part, behind D's
  static constexpr int kDecay = kTransitionSlice - kDecayBytes;

  __device__ SliceCopier(long long result, int slices) : result_(result), slices_(slices) {}

  static __device__ unsigned place(int slice) {
    return dev::shared_address(shared) + carried_state_bytes(kKey) +
           slice % kRing * slice_bytes(kKey);
  }

  // Starts copying the next slice, if there is one; waits for the segment that it is of.
  __device__ void copy_next(const GdnPrefillScanParams& p, const Unit& unit) {
    if (next_ < slices_) {
      const int k = next_ % kKeys;
      if (k == 0) {
        if (next_ != 0) result_ += result_step(p);
        if constexpr (kCounts) dev::wait_for(p.segments.finished + result_, kResults);
      }
      dev::copy_bytes<kTransitionSlice, kCopiers>(place(next_),
                                                  transition_at(p, result_) + k * kTransitionSlice);
      dev::copy_bytes<kStateRowBytes, kCopiers>(place(next_) + kStates,
                                                state_at(p, result_) + state_row_at(unit, k));
      ++next_;
    }
    dev::commit_copies();  // also when the group is empty: groups are counted
  }

 private:
  long long result_;
  int slices_;
  int next_ = 0;
};

// By mma.sync.
struct MmaCarrier {
  static __device__ void end() {}
  // Carries the state over `steps` segments, the first of which has this result, and leaves it
  // behind each.  For all threads.
  template <bool kLeaves = true>
  static __device__ void carry(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                               long long result, int steps) {
    SliceCopier copier(result, steps * kKeys);
    if (copies()) {
      for (int i = 0; i < SliceCopier::kRing - 1; ++i) copier.copy_next(p, unit);
    }
    // This lane's part of the state as an operand: registers are needed for the products.
    char* const old = reinterpret_cast<char*>(shared) + threadIdx.x / 32 * kKeys * 256 * kSize;
    for (int step = 0; step < steps; ++step, result += result_step(p)) {
      if (computes()) {
#pragma unroll
        for (int k = 0; k < kKeys; ++k) {
          dev::store_tile<kKey.dtype>(old, k, dev::round_to<kKey.dtype>(state.tiles[k]));
        }
      }
#pragma unroll
      for (int m = 0; m < kKeys; ++m) {
        if (copies()) dev::wait_copies<SliceCopier::kRing - 2>();
        // Orders the copies of this slice before its reading, and the last slice's reading before
        // the copies into the place that it leaves.
        __syncthreads();
        if (copies()) copier.copy_next(p, unit);
        if (!computes()) continue;
        const unsigned slice = SliceCopier::place(step * kKeys + m);
        if (m == 0) scale_state(state, slice + SliceCopier::kDecay);
        add(state.tiles[m], dev::to_float(dev::load_tile<DType::kF32>(slice + SliceCopier::kStates,
                                                                      threadIdx.x / 32)));
        const Tile column = dev::load_tile<kKey.dtype>(dev::shared_address(old), m);
#pragma unroll
        for (int k = 0; k < kKeys; ++k) {
          dev::Acc added{};
          dev::mma(kSumApart ? added : state.tiles[k], column,
                   dev::load_tile<kKey.dtype>(slice, k));
          if constexpr (kSumApart) add(state.tiles[k], added);
        }
      }
      // Also orders the last slice's reading before the copies of the next run.
      if constexpr (kLeaves) store_state_behind(state, p, unit, result);
    }
  }
  // Carries it over one, and leaves it nowhere.  Orders nothing behind its last reading.
  static __device__ void carry_once(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                    long long result) {
    carry<false>(state, p, unit, result, 1);
  }
};

// The same by wgmma: D^T and N of a segment are brought by TMA.
template <bool kWgmma = kKey.wgmma>  // so that keys without wgmma do not compile it
class TmaCarrier {
 public:
  // For all threads.
  __device__ TmaCarrier() {
    if (threadIdx.x == 0) {
      for (int i = 0; i <= kHalves; ++i) dev::set_up_barrier(barrier(i));
    }
    dev::show_to_tma();
    // Orders the barriers before their use.
    sync_carrying();
  }

  __device__ void carry(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                        long long result, int steps) {
    if (!computes()) return;
    wait_for_segment(p, result);
    copy_states(p, unit, result);
    for (int half = 0; half < kHalves; ++half) copy_half(p, result, half);
    if (steps > 1) wait_for_segment(p, result + result_step(p));
    for (int step = 0; step < steps; ++step, result += result_step(p), ++phase_) {
      const bool is_last = step + 1 == steps;
      const long long next = result + result_step(p);
      dev::wait_for_phase(barrier(0), phase_ % 2);
      Tile s[kKeys];
      add_states(state, s);
      dev::show_to_tma();
      // Orders the reading of N before the next one's copy, and the storing of the last state
      // before its counting.
      sync_computing();
      if (!is_last) copy_states(p, unit, next);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        dev::wait_for_phase(barrier(1 + half), phase_ % 2);
        multiply_half(state, s, half);
      }
      // What takes long, while products run.
      if (step + 2 < steps) wait_for_segment(p, next + result_step(p));
      if (step != 0) count(p, result - result_step(p));
      dev::wait_for_products<1>();
      // Orders all warps' products with the first half before the next one's copy.
      sync_computing();
      if (!is_last) copy_half(p, next, 0);
      dev::finish_products<0>(state.tiles);
      // The same for the second half.
      sync_computing();
      if (!is_last) copy_half(p, next, 1);
      store_segment_state(state, state_at(p, result), unit);
    }
    // Orders the storing of the last state before its counting.
    sync_computing();
    count(p, result - result_step(p));
  }

  // The same over one segment, and leaves the state nowhere.  No place in shared memory is used
  // twice, so nothing is ordered, also behind its last reading.
  __device__ void carry_once(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                             long long result) {
    if (!computes()) return;
    copy_states(p, unit, result);
    for (int half = 0; half < kHalves; ++half) copy_half(p, result, half);
    dev::wait_for_phase(barrier(0), phase_ % 2);
    Tile s[kKeys];
    add_states(state, s);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      dev::wait_for_phase(barrier(1 + half), phase_ % 2);
      multiply_half(state, s, half);
    }
    dev::finish_products<0>(state.tiles);
    ++phase_;
  }

  // Gives the shared memory back.  For all threads, behind the last carry().
  __device__ void end() {
    if (threadIdx.x != 0) return;
    for (int i = 0; i <= kHalves; ++i) dev::take_down_barrier(barrier(i));
  }

 private:
  static constexpr int kHalves = kTransitionHalves;
  static constexpr int kStateBytes = kKeys * kStateRowBytes;

  // decay S + N, and S as an operand.
  static __device__ void add_states(State& state, Tile (&s)[kKeys]) {
#pragma unroll
    for (int k = 0; k < kKeys; ++k) s[k] = dev::round_to<kKey.dtype>(state.tiles[k]);
    scale_state(state, decay());
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      add(state.tiles[k], dev::to_float(dev::load_tile<DType::kF32>(
                              states(), k * kKey.warps + dev::ThisThreadInLoop::number() / 32)));
    }
  }
  static __device__ void multiply_half(State& state, const Tile (&s)[kKeys], int half) {
    dev::start_products();
#pragma unroll
    for (int k = 0; k < kKeys / kHalves; ++k) {
      dev::multiply<kKey.dtype, true, true>(state.tiles, s[half * (kKeys / kHalves) + k],
                                            TransitionHalf::by_columns(place_of_half(half), k));
    }
    dev::commit_products();
  }

  static __device__ unsigned place_of_half(int half) {
    return dev::shared_address(shared) + half * kTransitionHalf;
  }
  static __device__ unsigned states() { return place_of_half(kHalves); }
  static __device__ unsigned decay() { return states() + kStateBytes; }
  // Of the copies of N, then of those of D's halves.
  static __device__ unsigned barrier(int i) { return decay() + kDecayBytes + i * 8; }

  // Waits for the N and D of a segment.
  static __device__ void wait_for_segment(const GdnPrefillScanParams& p, long long result) {
    if (!kCounts || threadIdx.x >= 32) return;
    dev::wait_for(p.segments.finished + result, kResults);
    // Orders what the waiting has shown this thread before what TMA reads.
    dev::show_global_to_tma();
  }
  static __device__ void copy_states(const GdnPrefillScanParams& p, const Unit& unit,
                                     long long result) {
    if (threadIdx.x != 0) return;
    dev::expect_bytes(barrier(0), kStateBytes + kDecayBytes);
    dev::copy_run(states(), state_at(p, result) + state_row_at(unit, 0), kStateBytes, barrier(0));
    dev::copy_run(decay(), transition_at(p, result) + kTransitionRows, kDecayBytes, barrier(0));
  }
  static __device__ void copy_half(const GdnPrefillScanParams& p, long long result, int half) {
    if (threadIdx.x != 0) return;
    dev::expect_bytes(barrier(1 + half), kTransitionHalf);
    dev::copy_run(place_of_half(half), transition_at(p, result) + half * kTransitionHalf,
                  kTransitionHalf, barrier(1 + half));
  }
  // Counts the block, by a thread that copies nothing.
  static __device__ void count(const GdnPrefillScanParams& p, long long result) {
    if (kCounts && threadIdx.x == kComputing - 1) dev::count_block(p.segments.ready + result);
  }

  int phase_ = 0;  // of the barriers
};

// Of segments `first` to first + 31, a bit for each that a state is carried to.  For all threads.
__device__ unsigned segments_carried_to(const GdnPrefillScanParams& p, const Unit& unit,
                                        const Segment& segment, int first) {
  constexpr int kWarps = kCarrying / 32;
  constexpr int kEach = (32 + kWarps - 1) / kWarps;
  const int warp = threadIdx.x / 32;
  const int last = segment.cut.segments - 1;
  unsigned carried = 0;  // of every kWarps-th segment
#pragma unroll
  for (int i = 0; i < kEach; ++i) {  // their loads overlap
    const int at = i * kWarps + warp;
    const bool is_one = is_carried(p, unit, segment, first + at < last ? first + at : last);
    if (is_one && at < 32 && first + at <= last) carried |= 1u << at;
  }
  // Not where TMA copies to: that would need another fence.
  unsigned char* const words = shared + (kKey.wgmma ? carry_bytes(kKey) - 4 * kWarps : 0);
  return dev::or_over_warps<kWarps>(carried, reinterpret_cast<unsigned*>(words), sync_carrying);
}

// Carries the states of the unit's sequence, from every segment whose state is known to those
// behind it.  For all threads.
template <class Carrier>
__device__ void carry_states(const GdnPrefillScanParams& p, const Unit& unit,
                             const Segment& segment) {
  constexpr int kAtOnce = 31;
  Carrier carrier;
  State state;
  int held = -1;  // the segment that `state` lies behind; -1: none
  for (int first = 1; first + 1 < segment.cut.segments; first += kAtOnce) {
    const unsigned carried = dev::uniform(segments_carried_to(p, unit, segment, first));
    unsigned over = carried & carried >> 1;  // segments that a state is carried to and on from
    int number = first;
    while (over != 0) {
      const int gap = __ffs(over) - 1;
      over >>= gap;
      number += gap;
      const int steps = __ffs(~over) - 1;
      // Where it goes on from the segments looked at before, the state is still in registers; the
      // stored one may not be whole before the blocks of other columns have run.
      if (number - 1 != held) {
        load_state_behind(state, p, unit, result_of(p, unit, segment, number - 1));
      }
      carrier.carry(state, p, unit, result_of(p, unit, segment, number), steps);
      over >>= steps;
      number += steps;
      held = number - 1;
    }
  }
}

}  // namespace
