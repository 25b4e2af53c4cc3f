// What units of cut sequences (common/chunk/segments.h) leave for each other, where a block goes
// through many (units.cuh): how a unit starts, what it leaves, and what carries states at a block's
// end.  Part of gdn_prefill_scan.cu, for keys with producers.
#pragma once

#include "gdn_prefill_scan/by_wgmma.cuh"
#include "gdn_prefill_scan/segments.cuh"

namespace {

// Of a unit, beside what units.cuh has.
template <bool kSegments>
struct Handover {};
template <>
struct Handover<true> {
  Segment segment;
  unsigned* ready;    // tells that the state which it starts from is there; null: an initial one
  unsigned* started;  // counts those who have read an initial state; null: nobody asks
  unsigned* counter;  // of outputs: `started`, to be waited for; else counts who has left N or D
  float decay;        // of D
};

// Counts the block, behind what the threads that compute have read and written.
__device__ void count_computing(unsigned* counter) {
  // Orders their accesses before the counting by the first of them.
  sync_computing();
  if (threadIdx.x == 0) dev::count_block(counter);
}

// A state that is stored as the sequences' are.  `from`: null for zeros, which it has already.
__device__ void load_state_from(State& state, const char* from, const Unit& unit) {
  if (from == nullptr) return;
  state.template load<kKey.states.dtype>(dev::as<kKey.states.dtype>(static_cast<const void*>(from)),
                                         warp_column(unit));
}

// For the threads that compute.
template <class Work>
__device__ void start_unit(State& state, const Work& work, const Unit& unit) {
  if (unit.role == Role::kTransition) {
    set_identity(state, unit);
  } else if (work.from != nullptr && work.ready != nullptr) {
    dev::wait_for(work.ready, kSlices);
    load_segment_state(state, work.from, unit);
  } else {
    load_state_from(state, work.from, unit);
  }
  if (work.started != nullptr) count_computing(work.started);
}

// Stores the state, rounded where it is the sequence's, and tells who waits for it.
template <class Work>
__device__ void end_unit(State& state, const Work& work, const Unit& unit) {
  if (unit.role == Role::kOutputs) {
    if (work.to == nullptr) return;
    // The new state may overwrite the initial one, which other units read.
    if (work.counter != nullptr) dev::wait_for(work.counter, 2 * kSlices);
    return store_sequence_state(state, {.state = work.to}, unit);
  }
  if (unit.role == Role::kTransition) {
    store_decay(work.decay, work.to, unit);
    store_transition(state, work.to, unit);
  } else {
    store_segment_state(state, work.to, unit);
  }
  count_computing(work.counter);
}

// What a block ends with, if it is a chain.  `emptied`: a barrier, that TMA has no more to do in
// shared memory.
template <class Work>
__device__ void carry_at_end(const GdnPrefillScanParams& p, const Work& work, unsigned emptied) {
  static_assert(producers(kKey) == 0 || !kKey.segments || stages_hold_carry(kKey));
  const Unit unit = uniform(work.unit);
  if (unit.role != Role::kChain) return;
  dev::wait_for_phase(emptied, 0);
  carry_states<TmaCarrier<>>(p, unit, uniform(work.segment));
}

}  // namespace
