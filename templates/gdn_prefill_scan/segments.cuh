// The scan of sequences that are cut into segments (common/chunk/segments.h).  Part of
// gdn_prefill_scan.cu.
//
// A block takes a ticket, which says what it does: find N or D of a segment, carry a sequence's
// states from segment to segment, or write the outputs of a segment.  Whatever a block may wait for
// has a smaller ticket, so it runs already: no order in which blocks start makes them wait for each
// other.
#pragma once

#include "common/chunk/counters.cuh"
#include "common/chunk/segments.h"
#include "gdn_prefill_scan/carry.cuh"
#include "gdn_prefill_scan/segment.cuh"

namespace {

// The block has read the initial state, or will not.  For all threads; with producers for a warp.
__device__ void count_reader(const GdnPrefillScanParams& p, const Unit& unit,
                             const Segment& segment) {
  if (kKey.states.has_initial && !segment.is_last()) {
    if constexpr (producers(kKey) > 0) {
      if (threadIdx.x % 32 != 0) return;
      dev::count_block(p.segments.started + result_of(p, unit, segment, 0));
    } else {
      dev::arrive(p.segments.started + result_of(p, unit, segment, 0));
    }
  }
}

// The segment and the columns of a ticket, for all threads; with producers for a warp.  False:
// there is nothing to do.
__device__ bool find_ticket(const GdnPrefillScanParams& p, unsigned ticket, Unit* unit,
                            Segment* segment) {
  // Small tickets are of what others may wait for.
  const unsigned ahead = static_cast<unsigned>(p.segments.slots) * p.heads * kResults;
  const unsigned chains = static_cast<unsigned>(p.segments.chains) * p.heads * kSlices;
  const bool is_ahead = ticket < ahead;
  const bool is_chain = !is_ahead && ticket < ahead + chains;
  if (!is_ahead) ticket -= is_chain ? ahead : ahead + chains;
  // With producers a block has a multiprocessor to itself, so those who would wait come last.
  const unsigned outputs = static_cast<unsigned>(p.segments.slots) * p.heads * kSlices;
  const bool waits = producers(kKey) > 0 && !is_ahead && !is_chain && ticket >= outputs;
  if (waits) ticket -= outputs;
  const unsigned blocks = is_ahead ? kResults : kSlices;
  const int block = static_cast<int>(ticket % blocks);
  const int slot = static_cast<int>(ticket / blocks / p.heads);  // of a chain: the sequence
  unit->h = static_cast<int>(ticket / blocks % p.heads);
  unit->first_column = block * kColumns;
  unit->role = is_chain ? Role::kChain : Role::kOutputs;

  if (producers(kKey) == 0 && is_malformed(p)) {
    // The blocks of outputs fill their share of all tokens.
    if (!is_ahead && !is_chain) fill_share(p, *unit, slot);
    return false;
  }
  find_segment(p, slot, is_chain, unit, segment);
  if (segment->number < 0 || segment->number >= segment->cut.segments) return false;
  // The second segment's state is what the first one leaves.
  if (is_chain) return segment->cut.segments > 2;

  const int chunks = chunks_of(unit->sequence);
  const int begin = segment->number * segment->cut.chunks;
  const int end = segment->is_last() ? chunks : begin + segment->cut.chunks;
  if (segment->number != 0)
    segment->warm_up = chunks_to_forget(p, *unit, *segment, segment->number);
  unit->span = {.first = begin - segment->warm_up, .begin = begin, .end = end};
  if (!is_ahead) return producers(kKey) == 0 || segment->is_carried_to() == waits;

  // N and D, for a state that is carried on.
  unit->role = block < kSlices ? Role::kValues : Role::kTransition;
  if (segment->is_last()) return false;
  const bool is_needed = is_carried(p, *unit, *segment, segment->number + 1);
  unit->span.begin = end;
  if (unit->role == Role::kValues) {
    if (!is_needed && segment->number == 0) count_reader(p, *unit, *segment);
    return is_needed;
  }
  unit->first_column = (block - kSlices) * kColumns;
  return is_needed && segment->is_carried_to();
}

// The same of this block's ticket.
__device__ bool take_segment(const GdnPrefillScanParams& p, Unit* unit, Segment* segment) {
  unsigned ticket = blockIdx.x;
  if (p.segments.tickets != nullptr) {
    ticket = dev::take_ticket(p.segments.tickets, reinterpret_cast<unsigned*>(shared));
  }
  return find_ticket(p, ticket, unit, segment);
}

__device__ Destination destination_of(const GdnPrefillScanParams& p, const Unit& unit,
                                      const Segment& segment, const dev::Slots& slots) {
  if (unit.role != Role::kOutputs) {
    const long long result = result_of(p, unit, segment, segment.number);
    if (unit.role == Role::kValues) {
      // Of a segment that no state is carried to it is the state behind it.
      return {state_at(p, result),
              (segment.is_carried_to() ? p.segments.finished : p.segments.ready) + result};
    }
    if constexpr (kChannels) {
      if (computes()) store_channel_decays(p, unit, transition_at(p, result));
    } else {
      const float decay = decay_of_span(p, unit);
      if (computes()) store_decay(decay, transition_at(p, result), unit);
    }
    return {transition_at(p, result), p.segments.finished + result};
  }
  if (!segment.is_last()) return {};
  Destination to = destination_of_sequence(p, unit, slots);
  if (to.state != nullptr && kKey.states.has_initial && segment.number != 0) {
    to.counter = p.segments.started + result_of(p, unit, segment, 0);
  }
  return to;
}

// What a segment's run starts from: zero where it warms up.
__device__ void start_segment(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                              const Segment& segment, const dev::Slots& slots) {
  if (unit.role == Role::kTransition) {
    if (computes()) set_identity(state, unit);
  } else if (segment.number == 0) {
    if constexpr (kKey.states.has_initial) {
      if (computes()) load_state(state, p, slots.read, unit);
      count_reader(p, unit, segment);
    }
  } else if (unit.role == Role::kOutputs && segment.is_carried_to()) {
    load_state_behind(state, p, unit, result_of(p, unit, segment, segment.number - 1));
  }
}

// Stores the state, rounded where it is the sequence's, and tells who waits for it.
__device__ void end_segment(State& state, const Unit& unit, const Destination& to) {
  if (unit.role == Role::kOutputs) {
    if (to.state == nullptr || !computes()) return;
    // The new state may overwrite the initial one, which other blocks read.
    if (to.counter != nullptr) dev::wait_for(to.counter, 2 * kSlices);
    return store_sequence_state(state, to, unit);
  }
  if (computes() && unit.role == Role::kTransition) store_transition(state, to.state, unit);
  if (computes() && unit.role == Role::kValues) store_segment_state(state, to.state, unit);
  dev::arrive(to.counter);
}

}  // namespace
