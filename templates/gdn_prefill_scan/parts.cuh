// The scan of sequences that are cut into parts (common/chunk/segments.h).  Part of gdn_prefill_scan.cu.
//
// A block takes a ticket, which says what it does: find N or D of a part, carry a sequence's states
// from part to part, or write the outputs of a part.  Whatever a block may wait for has a smaller
// ticket, so it runs already: no order in which blocks start makes them wait for each other.
#pragma once

#include "common/chunk/counters.cuh"
#include "common/chunk/segments.h"
#include "gdn_prefill_scan/carry.cuh"
#include "gdn_prefill_scan/part.cuh"

namespace {

// The block has read the initial state, or will not.  For all threads.
__device__ void count_reader(const GdnPrefillScanParams& p, const Unit& unit, const Part& part) {
  if (kKey.states.has_initial && !part.is_last()) {
    dev::arrive(p.parts.started + result_of(p, unit, part, 0));
  }
}

// The part and the columns of this block, by its ticket.  False: there is nothing to do.
__device__ bool take_part(const GdnPrefillScanParams& p, Unit* unit, Part* part) {
  unsigned ticket = blockIdx.x;
  if (p.parts.tickets != nullptr) {
    ticket = dev::take_ticket(p.parts.tickets, reinterpret_cast<unsigned*>(shared));
  }
  // Small tickets are of what others may wait for.
  const unsigned ahead = static_cast<unsigned>(p.parts.slots) * p.heads * kResults;
  const unsigned chains = static_cast<unsigned>(p.parts.chains) * p.heads * kSlices;
  const bool is_ahead = ticket < ahead;
  const bool is_chain = !is_ahead && ticket < ahead + chains;
  if (!is_ahead) ticket -= is_chain ? ahead : ahead + chains;
  const unsigned blocks = is_ahead ? kResults : kSlices;
  const int block = static_cast<int>(ticket % blocks);
  const int slot = static_cast<int>(ticket / blocks / p.heads);  // of a chain: the sequence
  unit->h = static_cast<int>(ticket / blocks % p.heads);
  unit->first_column = block * kColumns;
  unit->role = is_chain ? Role::kChain : Role::kOutputs;

  if constexpr (kKey.varlen) {
    if (p.order[0] == dev::kMalformed) {
      // The blocks of outputs fill their share of all tokens.
      if (!is_ahead && !is_chain) {
        fill_output(p, *unit, p.tokens * slot / p.parts.slots,
                    p.tokens * (slot + 1) / p.parts.slots, dev::nan());
      }
      return false;
    }
    const int tokens = p.parts.chunks * kChunk;
    unit->n = is_chain ? slot
                       : dev::sequence_of_slot<kKey.cu_seqlens_dtype>(slot, tokens, p.cu_seqlens,
                                                                      p.sequences);
    unit->sequence = dev::packed_sequence<kChunk, kKey.cu_seqlens_dtype>(unit->n, p.cu_seqlens);
    part->result = unit->sequence.first / tokens;
    part->number = is_chain ? 0 : static_cast<int>(slot - part->result - unit->n);
    part->cut = cut(chunks_of(unit->sequence), p.parts.chunks);
  } else {
    unit->sequence = dev::dense_sequence<kChunk>(0, p.tokens);
    part->cut = cut(chunks_of(unit->sequence), p.parts.chunks);
    unit->n = is_chain ? slot : slot / part->cut.parts;
    unit->sequence = dev::dense_sequence<kChunk>(unit->n, p.tokens);
    part->result = unit->n * (part->cut.parts - 1);
    part->number = is_chain ? 0 : slot % part->cut.parts;
  }
  if (part->number < 0 || part->number >= part->cut.parts) return false;
  // The second part's state is what the first one leaves.
  if (is_chain) return part->cut.parts > 2;

  const int chunks = chunks_of(unit->sequence);
  const int begin = part->number * part->cut.chunks;
  const int end = part->is_last() ? chunks : begin + part->cut.chunks;
  if (part->number != 0) part->warm_up = chunks_to_forget(p, *unit, *part, part->number);
  unit->span = {.first = begin - part->warm_up, .begin = begin, .end = end};
  if (!is_ahead) return true;

  // N and D, for a state that is carried on.
  unit->role = block < kSlices ? Role::kValues : Role::kTransition;
  if (part->is_last()) return false;
  const bool is_needed = is_carried(p, *unit, *part, part->number + 1);
  unit->span.begin = end;
  if (unit->role == Role::kValues) {
    if (!is_needed && part->number == 0) count_reader(p, *unit, *part);
    return is_needed;
  }
  unit->first_column = (block - kSlices) * kColumns;
  return is_needed && part->is_carried_to();
}

__device__ Destination destination_of(const GdnPrefillScanParams& p, const Unit& unit,
                                      const Part& part, const dev::Slots& slots) {
  if (unit.role != Role::kOutputs) {
    const long long result = result_of(p, unit, part, part.number);
    if (unit.role == Role::kValues) {
      // Of a part that no state is carried to it is the state behind it.
      return {state_at(p, result),
              (part.is_carried_to() ? p.parts.finished : p.parts.ready) + result};
    }
    const float decay = decay_of_span(p, unit);
    if (computes()) store_decay(decay, transition_at(p, result), unit);
    return {transition_at(p, result), p.parts.finished + result};
  }
  if (!part.is_last()) return {};
  Destination to = destination_of_sequence(p, unit, slots);
  if (to.state != nullptr && kKey.states.has_initial && part.number != 0) {
    to.counter = p.parts.started + result_of(p, unit, part, 0);
  }
  return to;
}

// What a part's run starts from: zero where it warms up.
__device__ void start_part(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                           const Part& part, const dev::Slots& slots) {
  if (unit.role == Role::kTransition) {
    if (computes()) set_identity(state, unit);
  } else if (part.number == 0) {
    if constexpr (kKey.states.has_initial) {
      if (computes()) load_state(state, p, slots.read, unit);
      count_reader(p, unit, part);
    }
  } else if (unit.role == Role::kOutputs && part.is_carried_to()) {
    load_state_behind(state, p, unit, result_of(p, unit, part, part.number - 1));
  }
}

// Stores the state, rounded where it is the sequence's, and tells who waits for it.
__device__ void end_part(State& state, const Unit& unit, const Destination& to) {
  if (unit.role == Role::kOutputs) {
    if (to.state == nullptr || !computes()) return;
    // The new state may overwrite the initial one, which other blocks read.
    if (to.counter != nullptr) dev::wait_for(to.counter, 2 * kSlices);
    return store_sequence_state(state, to, unit);
  }
  if (computes() && unit.role == Role::kTransition) store_transition(state, to.state, unit);
  if (computes() && unit.role == Role::kValues) store_part_state(state, to.state, unit);
  dev::arrive(to.counter);
}

}  // namespace
