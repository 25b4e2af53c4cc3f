// The units of a block by tickets, where sequences are cut into segments (segments.cuh): so that no
// order in which blocks run makes them wait for each other.  Part of gdn_prefill_scan.cu, for keys
// with producers.
//
// A block takes its next ticket when the copies of its last unit have started.  A chain is its last
// one: registers of what carries states are those of what computes, whose code the compiler wants
// to end there.  So a launch has as many blocks more as it has chains, and those that find no
// ticket end.
#pragma once

#include "gdn_prefill_scan/units.cuh"

namespace {

__device__ unsigned tickets_of(const GdnPrefillScanParams& p) {
  return segment_tickets(kKey, static_cast<unsigned>(p.segments.slots),
                         static_cast<unsigned>(p.segments.chains)) *
         p.heads;
}

// For one warp.  It has few registers, and keeps what it has found in the next record.
template <int kProducers = producers(kKey)>
class TicketPlanner {
 public:
  __device__ explicit TicketPlanner(const GdnPrefillScanParams& p) : p_(p) {}

  __device__ void run() {
    bool is_chain = false;
    do {
      const unsigned ticket = take_ticket();
      if (ticket >= tickets_of(p_)) break;
      is_chain = plan(ticket);
      // Without counters each ticket has a block, and nobody waits for others.
    } while (!is_chain && p_.segments.tickets != nullptr);
    // The last record, which may have a chain.
    const unsigned place = records_.take();
    // Orders the lanes' reading of it before its writing.
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    Unit& unit = work_at(place).unit;
    unit.role = is_chain ? Role::kChain : Role::kOutputs;
    unit.span.end = 0;
    dev::come_to(planned_at(place));
  }

 private:
  __device__ unsigned take_ticket() {
    if (p_.segments.tickets == nullptr) return blockIdx.x;
    if (records_.taken() > 0) dev::wait_for_phase(brought_at(), (records_.taken() - 1) % 2);
    unsigned ticket = 0;
    if (threadIdx.x % 32 == 0) ticket = atomicAdd(p_.segments.tickets, 1u);
    return dev::uniform(ticket);
  }

  // Whether it is a chain.
  __device__ bool plan(unsigned ticket) {
    Work& work = work_at(records_.next());
    const bool is_first_lane = threadIdx.x % 32 == 0;
    {
      Unit unit{};
      Segment segment{};
      if (!find_ticket(p_, ticket, &unit, &segment)) return false;
      // Orders the lanes' reading of a record that was not shown before its writing.
      __syncwarp();
      if (is_first_lane) {
        work.unit = unit;
        work.segment = segment;
      }
    }
    // Orders these before their reading.
    __syncwarp();
    const Unit& unit = work.unit;
    const dev::Slots slots = dev::slots_of<kKey>(p_.states, unit.n);
    const dev::CheckpointRows checkpoints =
        dev::checkpoint_rows<kKey>(p_, unit.n, unit.sequence.tokens);
    if (slots.kind == dev::Slots::Kind::kSkip) return false;
    if (slots.kind != dev::Slots::Kind::kCompute || !checkpoints.fit) {
      fill_span(p_, unit, slots.kind == dev::Slots::Kind::kZero ? 0.0f : dev::nan());
      return false;
    }
    if (unit.role == Role::kChain) return true;
    if (is_first_lane) {
      work.plan = plan_of(p_, unit);
      work.checkpoint = checkpoints.first + checkpoints_before(p_, unit.span.begin);
      work.offset_from = checkpoints.from;
      work.offset_to = checkpoints.to;
      find_start(work, slots);
      find_end(work, slots);
    }
    // Orders these before their reading.
    __syncwarp();
    if (unit.span.first == unit.span.end) {  // a sequence without tokens
      copy_state(unit, work.from, work.to);
      return false;
    }
    if (unit.role == Role::kTransition) {
      const float decay = decay_of_span(p_, unit);
      if (is_first_lane) work.decay = decay;
    }
    const unsigned place = records_.take();
    if (is_first_lane) dev::come_to(planned_at(place));
    return false;
  }

  // What the unit starts from.
  __device__ void find_start(Work& work, const dev::Slots& slots) const {
    const Unit& unit = work.unit;
    const Segment& segment = work.segment;
    work.from = nullptr;
    work.ready = work.started = nullptr;
    if (unit.role == Role::kTransition) return;
    if (segment.number == 0) {
      work.from = initial_of(p_, unit, slots.read);
      if (kKey.states.has_initial && !segment.is_last()) {
        work.started = p_.segments.started + result_of(p_, unit, segment, 0);
      }
    } else if (unit.role == Role::kOutputs && segment.is_carried_to()) {
      const long long before = result_of(p_, unit, segment, segment.number - 1);
      work.from = state_at(p_, before);
      work.ready = p_.segments.ready + before;
    }
  }

  // What it leaves, and who is told or waited for.
  __device__ void find_end(Work& work, const dev::Slots& slots) const {
    const Unit& unit = work.unit;
    const Segment& segment = work.segment;
    work.counter = nullptr;
    if (unit.role == Role::kOutputs) {
      work.to = nullptr;
      if (segment.is_last()) work.to = destination_of_sequence(p_, unit, slots).state;
      if (kKey.states.has_initial && segment.is_last() && segment.number != 0) {
        work.counter = p_.segments.started + result_of(p_, unit, segment, 0);
      }
      return;
    }
    const long long result = result_of(p_, unit, segment, segment.number);
    const bool is_known = unit.role == Role::kValues && !segment.is_carried_to();
    work.to = unit.role == Role::kValues ? state_at(p_, result) : transition_at(p_, result);
    work.counter = (is_known ? p_.segments.ready : p_.segments.finished) + result;
  }

  const GdnPrefillScanParams& p_;
  Records records_;
};

// Where cu_seqlens is malformed each slot's share of all tokens is filled.
__device__ void fill_slots(const GdnPrefillScanParams& p) {
  if (threadIdx.x >= 32) return;
  const int units = p.segments.slots * p.heads * kSlices;
  for (int i = static_cast<int>(blockIdx.x); i < units; i += static_cast<int>(gridDim.x)) {
    const Unit unit{.h = i / kSlices % p.heads, .first_column = i % kSlices * kColumns};
    fill_share(p, unit, i / kSlices / p.heads);
  }
}

}  // namespace
