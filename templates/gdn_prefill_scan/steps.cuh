// The three launches of a scan whose sequences go on from, or on to, another GPU
// (common/chunk/steps.h).  Part of gdn_prefill_scan.cu.
//
// Blocks of a launch wait for nothing but the launch in front of theirs.
#pragma once

#include "common/chunk/segments.h"
#include "gdn_prefill_scan/by_mma.cuh"
#include "gdn_prefill_scan/by_wgmma.cuh"
#include "gdn_prefill_scan/carry.cuh"
#include "gdn_prefill_scan/segment.cuh"

namespace {

__device__ bool continues(const GdnPrefillScanParams& p, const Unit& unit) {
  return p.segments.step.continues && unit.n == 0;
}
// Whether the state in front of the segment is what the start knows already.
__device__ bool is_known(const GdnPrefillScanParams& p, const Unit& unit, int number) {
  return number == 0 && !continues(p, unit);
}

__device__ unsigned* reach_of(const GdnPrefillScanParams& p, const Unit& unit,
                              const Segment& segment, int number) {
  return p.segments.finished + (segment.result + number) * p.heads + unit.h;
}

// The state in front of a segment: behind the one before it, or what has come from another GPU,
// which lies behind all others.
__device__ char* state_in_front(const GdnPrefillScanParams& p, const Unit& unit,
                                const Segment& segment, int number) {
  const long long of_last = static_cast<long long>(p.segments.slots) * kParts * p.heads + unit.h;
  return state_at(p, number == 0 ? of_last : result_of(p, unit, segment, number - 1));
}

// Where parts of a segment begin, in chunks from its first one on.
__device__ int part_begin(const GdnPrefillScanParams& p, int part) {
  return part * part_chunks(p.segments.chunks, kChunk);
}

// The segment, the part and the columns of this block.  False: there is nothing to do.
__device__ bool take_step(const GdnPrefillScanParams& p, Unit* unit, Segment* segment) {
  const Step step = p.segments.step.step;
  const bool is_chain = step == Step::kCarry;
  // At the start outputs first: a transition is forgotten soon, or not.
  const unsigned of_outputs = static_cast<unsigned>(p.segments.slots) * p.heads * kSlices;
  const bool is_transition = step == Step::kStart && blockIdx.x >= of_outputs;
  unsigned ticket = is_transition ? blockIdx.x - of_outputs : blockIdx.x;
  const unsigned blocks = is_transition ? kResults - kSlices : kSlices;
  unit->first_column = static_cast<int>(ticket % blocks) * kColumns;
  ticket /= blocks;
  unit->h = static_cast<int>(ticket % p.heads);
  ticket /= p.heads;
  if (step == Step::kFinish) {
    segment->part = static_cast<int>(ticket % kParts);
    ticket /= kParts;
  }
  const int slot = static_cast<int>(ticket);  // of a chain: the sequence
  unit->role = is_chain ? Role::kChain : is_transition ? Role::kTransition : Role::kOutputs;

  if (is_malformed(p)) {
    if (step == Step::kStart && !is_transition) fill_share(p, *unit, slot);
    return false;
  }
  find_segment(p, slot, is_chain, unit, segment);
  if (is_chain) return true;
  if (segment->number < 0 || segment->number >= segment->cut.segments) return false;

  int begin = segment->number * segment->cut.chunks;
  int end = segment->is_last() ? chunks_of(unit->sequence) : begin + segment->cut.chunks;
  if (step == Step::kFinish) {
    if (is_known(p, *unit, segment->number)) return false;
    const unsigned reach = *reach_of(p, *unit, *segment, segment->number);
    if (reach < static_cast<unsigned>(end - begin)) end = begin + static_cast<int>(reach);
    if (segment->part + 1 < kParts) end = min(end, begin + part_begin(p, segment->part + 1));
    begin += part_begin(p, segment->part);
    unit->span = {.first = begin, .begin = begin, .end = end};
    return begin < end;
  }
  unit->span = {.first = begin, .begin = is_transition ? end : begin, .end = end};
  return !is_transition || !is_known(p, *unit, segment->number);
}

// What the block works on, for which its run has no registers.
struct KeptUnit {
  Unit unit;
  Segment segment;
};
static_assert(sizeof(KeptUnit) == kKeptUnitBytes);

__device__ KeptUnit& kept_unit() {
  return *reinterpret_cast<KeptUnit*>(shared + shared_bytes(kKey) - kept_bytes(kKey));
}
// In front of keep(), which orders it before its reading.
__device__ void keep_unit(const Unit& unit, const Segment& segment) {
  if (threadIdx.x == 0) kept_unit() = {unit, segment};
}

// What the run starts from.  For all threads; uses the stages.
template <class Carrier>
__device__ void start_step(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                           const Segment& segment, const dev::Slots& slots) {
  if (p.segments.step.step == Step::kFinish) {
    if (computes()) {
      load_segment_state(state, state_in_front(p, unit, segment, segment.number), unit);
    }
    if (segment.part == 0) return;
    Carrier carrier;
    carrier.carry_once(state, p, unit,
                       result_of(p, unit, segment, segment.number, segment.part - 1));
    // Orders all warps' reading of D and N before what the stages are filled with.
    __syncthreads();
    return carrier.end();
  }
  if (!computes()) return;
  if (unit.role == Role::kTransition) return set_identity(state, unit);
  if (is_known(p, unit, segment.number)) load_state(state, p, slots.read, unit);
}

// Leaves D of decay I + D, the transition of chunks first to end - 1, at a result.
__device__ void leave_transition(const State& state, const GdnPrefillScanParams& p,
                                 const Unit& unit, int end, long long result) {
  Unit run = unit;
  run.span.end = end;
  char* const to = transition_at(p, result);
  if constexpr (kChannels) {
    store_channel_decays(p, run, to);
  } else {
    store_decay(decay_of_span(p, run), to, unit);
  }
  store_transition(state, to, unit);
}

// Leaves the state behind a part of the segment, or its transition.  For the threads that compute.
__device__ void leave_part(const State& state, const GdnPrefillScanParams& p, int part, int end) {
  const auto& [unit, segment] = kept_unit();
  const long long result = result_of(p, unit, segment, segment.number, part);
  if (unit.role == Role::kOutputs) {
    store_segment_state(state, state_at(p, result), unit);
  } else {
    leave_transition(state, p, unit, end, result);
  }
}

// The end of the run of part `part`, in a start's run of the unit's span.
__device__ int end_of_part(const GdnPrefillScanParams& p, const Unit& unit, int part) {
  if (part + 1 == kParts) return unit.span.end;
  return min(unit.span.end, unit.span.first + part_begin(p, part + 1));
}

// The reach of the transition that this block has columns of.
__device__ void tell_reach(const GdnPrefillScanParams& p, unsigned reach) {
  const auto& [unit, segment] = kept_unit();
  if (unit.role != Role::kTransition || threadIdx.x != 0) return;
  atomicMax(reach_of(p, unit, segment, segment.number), reach);
}

// Carries the state through the unit's span, of a transition as far as it is not forgotten.  At the
// start each part leaves what is behind it.  run(of outputs, first, end, checkpoint) runs some of
// the span's chunks and returns the one behind the last one.
template <class Run>
__device__ void run_parts(State& state, const GdnPrefillScanParams& p, long long checkpoint,
                          Run run) {
  const auto& [unit, segment] = kept_unit();
  if (p.segments.step.step == Step::kFinish) {
    run(true, unit.span.first, unit.span.end, checkpoint);
    return;
  }
  constexpr int kForgotten = 2 * kParts;  // added to `part` where nothing has to be run any more
  int part = 0;
  while (true) {
    if (part < kForgotten) {
      const int begin = unit.span.first;
      const int first = begin + part_begin(p, part);
      const int before = checkpoints_before(p, first) - checkpoints_before(p, begin);
      const int at =
          run(unit.role == Role::kOutputs, first, end_of_part(p, unit, part), checkpoint + before);
      // The run has no registers for what follows from it.
      asm volatile("" : "+r"(part));
      if (at < end_of_part(p, unit, part)) {
        tell_reach(p, at - unit.span.first);
        state = {};
        part += kForgotten;
      }
    }
    const bool is_forgotten = part >= kForgotten;
    const int end = end_of_part(p, unit, part % kForgotten);
    const bool is_last = end == unit.span.end;
    // Also where it is forgotten: columns of another block may not be, yet.
    if (computes() && (!is_last || !is_forgotten)) {
      leave_part(state, p, is_last ? kParts - 1 : part % kForgotten, end);
    }
    if (is_last) return is_forgotten ? void() : tell_reach(p, kWholeReach);
    ++part;
  }
}

__device__ void run_step_by_mma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                long long checkpoint) {
  WarpCopier copier(p, unit);
  start_copies(copier, p, unit);
  run_parts(state, p, checkpoint, [&](bool of_outputs, int first, int end, long long at) {
    if (of_outputs) return run_chunks<true>(state, p, unit, copier, first, end, at);
    return run_chunks<false>(state, p, unit, copier, first, end, 0);
  });
}

template <bool kWgmma = kKey.wgmma>
__device__ void run_step_by_wgmma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                  long long checkpoint) {
  if (kTma && copies()) {
    if (dev::is_elected()) TmaCopier(unit).run(p, unit);
    __syncwarp();
    return;
  }
  Turn turn;
  run_parts(state, p, checkpoint, [&](bool of_outputs, int first, int end, long long at) {
    if (of_outputs) return run_chunks_by_wgmma<true>(state, p, unit, first, end, &turn, at);
    return run_chunks_by_wgmma<false>(state, p, unit, first, end, &turn, 0);
  });
}

// Of segments `first` to first + 31, a bit for each whose transition was not forgotten.
__device__ unsigned segments_to_carry_over(const GdnPrefillScanParams& p, const Unit& unit,
                                           const Segment& segment, int first) {
  const int number = first + static_cast<int>(threadIdx.x % 32);
  const bool is_one = number < segment.cut.segments && !is_known(p, unit, number) &&
                      *reach_of(p, unit, segment, number) == kWholeReach;
  return __ballot_sync(0xffffffffu, is_one);
}

// Carries the states of the unit's sequence from segment to segment, and leaves the last one where
// the sequence's goes.  For all threads.
template <class Carrier>
__device__ void carry_on(const GdnPrefillScanParams& p, const Unit& unit, const Segment& segment,
                         const dev::Slots& slots) {
  Carrier carrier;
  State state{};
  const int segments = segment.cut.segments;
  int held = -2;  // the segment that `state` lies behind; -1: in front of all
  if (continues(p, unit)) {
    if (computes()) {
      load_state(state, p, slots.read, unit);
      // The sequence's last state may go where it was.
      store_segment_state(state, state_in_front(p, unit, segment, 0), unit);
    }
    held = -1;
  }
  for (int first = 0; first < segments; first += 32) {
    unsigned over = segments_to_carry_over(p, unit, segment, first);
    for (int number = first; over != 0;) {
      const int gap = __ffs(over) - 1;
      over >>= gap;
      number += gap;
      const int steps = over == 0xffffffffu ? 32 : __ffs(~over) - 1;
      if (number - 1 != held && computes()) {
        load_segment_state(state, state_in_front(p, unit, segment, number), unit);
      }
      carrier.carry(state, p, unit, result_of(p, unit, segment, number), steps);
      over = steps == 32 ? 0 : over >> steps;
      number += steps;
      held = number - 1;
    }
  }
  if (!computes() || !slots.store) return;
  if (held != segments - 1) {
    load_segment_state(state, state_in_front(p, unit, segment, segments), unit);
  }
  store_state(state, p.states.written, slots.write, unit);
}

// What a block does, for all threads.
template <class Carrier, bool kWgmma>
__device__ void run_step_with(const GdnPrefillScanParams& p, const Unit& unit,
                              const Segment& segment, const dev::Slots& slots,
                              const dev::CheckpointRows& checkpoints) {
  if (unit.role == Role::kChain) return carry_on<Carrier>(p, unit, segment, slots);
  keep_unit(unit, segment);
  keep({}, unit, checkpoints);
  State state{};
  start_step<Carrier>(state, p, unit, segment, slots);
  const long long checkpoint = checkpoints.first + checkpoints_before(p, unit.span.begin);
  if constexpr (kWgmma) {
    prepare_span_by_wgmma(p, unit);
    run_step_by_wgmma(state, p, kept_unit().unit, checkpoint);
  } else {
    run_step_by_mma(state, p, kept_unit().unit, checkpoint);
  }
}

}  // namespace
