// Second kernel of a prefill: carries the state of every sequence and head through its chunks and
// writes the outputs.  For a chunk with keys K, queries Q, values V (a row each token), the state S
// in front of it and its WY factors (common/chunk/wy.h):
//
//   V' = V - k_in (K S)      U = T V'      O = q_in (Q S) + P U      S <- decay S + K^T (v_out U)
//
// One warp <-> (sequence, head, 16 value columns), for all tokens.  Everything is computed
// transposed, with the warp's value columns as rows, so that S^T stays in registers as fp32
// accumulators from the first chunk to the last and every product takes its left operand from the
// registers that the one before it left (common/tile/tile.cuh).  Warps share K, Q and the WY
// factors in shared memory.  by_mma.cuh has the chunks for every GPU, by_wgmma.cuh for Hopper;
// producers.cuh makes WY factors beside them, so that no first kernel is needed, and units.cuh has
// such a block go through many sequences and heads; segments.cuh cuts long sequences, segment.cuh
// and carry.cuh have what it needs; tickets.cuh has both, and handover.cuh what that takes.
#include "common/checkpoints.cuh"
#include "common/launch.cuh"
#include "common/slots.cuh"
#include "gdn_prefill_scan/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnPrefillScanKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnPrefillScanKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_prefill_scan: key outside the tuning space");

#include "gdn_prefill_scan/by_mma.cuh"
#include "gdn_prefill_scan/by_wgmma.cuh"
#include "gdn_prefill_scan/chunk.cuh"
#include "gdn_prefill_scan/producers.cuh"
#include "gdn_prefill_scan/segments.cuh"
#include "gdn_prefill_scan/steps.cuh"

namespace {

// The sequence, head and columns of this block.  False: there is nothing to do.
__device__ bool take_sequence(const GdnPrefillScanParams& p, Unit* unit) {
  const int rank = blockIdx.x / (kSlices * p.heads);
  unit->n = rank;
  unit->h = static_cast<int>(blockIdx.x / kSlices % p.heads);
  unit->first_column = static_cast<int>(blockIdx.x % kSlices * kColumns);
  if constexpr (kKey.varlen) {
    unit->n = p.order[rank];
    if (unit->n == dev::kMalformed) {
      // Every block fills its share of all tokens.
      fill_share(p, *unit, rank);
      return false;
    }
    unit->sequence = dev::packed_sequence<kChunk, kKey.cu_seqlens_dtype>(unit->n, p.cu_seqlens);
  } else {
    unit->sequence = dev::dense_sequence<kChunk>(unit->n, p.tokens);
  }
  unit->span = {.first = 0, .begin = 0, .end = chunks_of(unit->sequence)};
  return true;
}

template <bool kWgmma = kKey.wgmma>
__device__ void run_span(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                         long long checkpoint) {
  if constexpr (kWgmma) {
    run_span_by_wgmma(state, p, unit, checkpoint);
  } else {
    run_span_by_mma(state, p, unit, checkpoint);
  }
}

template <bool kWgmma = kKey.wgmma>
__device__ void run_chain(const GdnPrefillScanParams& p, const Unit& unit, const Segment& segment) {
  if constexpr (kWgmma) {
    carry_states<TmaCarrier<>>(p, unit, segment);
  } else {
    carry_states<MmaCarrier>(p, unit, segment);
  }
}

template <bool kWgmma = kKey.wgmma>
__device__ void run_step(const GdnPrefillScanParams& p, const Unit& unit, const Segment& segment,
                         const dev::Slots& slots, const dev::CheckpointRows& checkpoints) {
  if constexpr (kWgmma) {
    run_step_with<TmaCarrier<>, true>(p, unit, segment, slots, checkpoints);
  } else {
    run_step_with<MmaCarrier, false>(p, unit, segment, slots, checkpoints);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(threads(kKey), resident_blocks(kKey))
    gdn_prefill_scan(const __grid_constant__ GdnPrefillScanParams p) {
  dev::wait_for_previous_kernel();
  if constexpr (producers(kKey) > 0) return run_all_units(p);
  Unit unit{};
  Segment segment{};
  if constexpr (kKey.segments) {
    if (kKey.context_parallel ? !take_step(p, &unit, &segment)
                              : !take_segment(p, &unit, &segment)) {
      return;
    }
    unit = uniform(unit);  // both follow from a ticket
    segment = uniform(segment);
  } else {
    if (!take_sequence(p, &unit)) return;
  }
  const dev::Slots slots = dev::slots_of<kKey>(p.states, unit.n);
  const dev::CheckpointRows checkpoints =
      dev::checkpoint_rows<kKey>(p, unit.n, unit.sequence.tokens);
  if (slots.kind == dev::Slots::Kind::kSkip) return;
  if (slots.kind != dev::Slots::Kind::kCompute || !checkpoints.fit) {
    const float fill = slots.kind == dev::Slots::Kind::kZero ? 0.0f : dev::nan();
    return fill_span(p, unit, fill);
  }
  if constexpr (kKey.context_parallel) {
    return run_step(p, unit, segment, slots, checkpoints);
  } else if constexpr (kKey.segments) {
    if (unit.role == Role::kChain) return run_chain(p, unit, segment);
    keep(destination_of(p, unit, segment, slots), unit, checkpoints);
  } else {
    keep(destination_of_sequence(p, unit, slots), unit, checkpoints);
  }
  if constexpr (kKey.wgmma) prepare_span_by_wgmma(p, unit);
  State state{};
  if constexpr (kKey.segments) {
    start_segment(state, p, unit, segment, slots);
  } else if (kKey.states.has_initial && computes()) {
    load_state(state, p, slots.read, unit);
  }
  run_span(state, p, unit, checkpoints.first + checkpoints_before(p, unit.span.begin));
  const Destination to = kept().destination;
  if constexpr (kKey.segments) {
    end_segment(state, unit, to);
  } else if (to.state != nullptr && computes()) {
    store_sequence_state(state, to, unit);
  }
}
