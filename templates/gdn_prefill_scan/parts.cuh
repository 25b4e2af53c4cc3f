// The scan of sequences that are cut into parts (common/parts.h).  Part of gdn_prefill_scan.cu.
//
// A block takes a ticket, which says what it does: write the outputs of a part, or find what parts
// behind it need, N or D.  Whatever a block may wait for has a smaller ticket, so it runs already:
// no order in which blocks start makes them wait for each other.
#pragma once

#include "common/counters.cuh"
#include "common/parts.h"
#include "common/warp.cuh"
#include "gdn_prefill_scan/chunk.cuh"

namespace {

struct Part {
  Cut cut;
  int number;        // in its sequence
  long long result;  // of the sequence's first part

  __device__ bool is_last() const { return number + 1 == cut.parts; }
};

// The same, known to be so in all lanes.
__device__ Part uniform(const Part& part) {
  return {.cut = {.parts = dev::uniform(part.cut.parts), .chunks = dev::uniform(part.cut.chunks)},
          .number = dev::uniform(part.number),
          .result = dev::uniform(part.result)};
}

constexpr int kResults = kSlices + kKey.key_dim / kColumns;  // blocks that find N and D

// The logarithm of what a state may be multiplied by and count as forgotten: half a unit in fp32's
// last place.
constexpr float kForgotten = -24.0f;

// Chunks in front of part `number`, which is not the first, that forget what is in front of them,
// as few as possible; 0: there are none within half a part and the 32 that a warp looks at.
__device__ int chunks_to_forget(const GdnPrefillScanParams& p, const Unit& unit, const Part& part,
                                int number) {
  const int i = threadIdx.x % 32;
  const bool may = i < part.cut.chunks / 2;
  float bound = 0.0f;
  if (may) {
    const char* record = record_of(p, unit, number * part.cut.chunks - 1 - i);
    bound = *reinterpret_cast<const float*>(record + kRecord.bound);
  }
  const float sum = dev::sum_of_lanes_before(bound) + bound;
  return __ffs(__ballot_sync(0xffffffffu, may && sum <= kForgotten));
}

// Whether the state in front of part `number`, which is not the first, has to be carried there.
__device__ bool is_carried(const GdnPrefillScanParams& p, const Unit& unit, const Part& part,
                           int number) {
  return chunks_to_forget(p, unit, part, number) == 0;
}

// The last part in front of this one that no state is carried to.  Requires: one is carried to
// this.
__device__ int chain_start(const GdnPrefillScanParams& p, const Unit& unit, const Part& part) {
  constexpr int kAtOnce = 4;  // their loads overlap
  for (int last = part.number - 1;; last -= kAtOnce) {
    bool carried[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      carried[i] = is_carried(p, unit, part, last - i > 1 ? last - i : 1);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (last - i <= 0) return 0;
      if (!carried[i]) return last - i;
    }
  }
}

// Where N and D of part `number` are told of, and where they lie.
__device__ long long result_of(const GdnPrefillScanParams& p, const Unit& unit, const Part& part,
                               int number) {
  return (part.result + number) * p.heads + unit.h;
}
__device__ char* state_at(const GdnPrefillScanParams& p, long long result) {
  return static_cast<char*>(p.parts.states) +
         result * part_state_bytes(kKey.key_dim, kKey.value_dim);
}
__device__ char* transition_at(const GdnPrefillScanParams& p, long long result) {
  return static_cast<char*>(p.parts.transitions) +
         result * part_transition_bytes(kKey.key_dim, kKey.dtype);
}

// A slice of a transition, and the decay's place in it.
constexpr int kTransitionSlice = transition_slice_bytes(kKey.key_dim, kKey.dtype);
constexpr int kDecayAt = kTransitionSlice - 16;

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
  const bool is_ahead = ticket < ahead;
  const unsigned blocks = is_ahead ? kResults : kSlices;
  if (!is_ahead) ticket -= ahead;
  const int block = static_cast<int>(ticket % blocks);
  const int slot = static_cast<int>(ticket / blocks / p.heads);
  unit->h = static_cast<int>(ticket / blocks % p.heads);

  if constexpr (kKey.varlen) {
    if (p.order[0] == dev::kMalformed) {
      // The blocks of outputs fill their share of all tokens.
      unit->first_column = block % kSlices * kColumns;
      if (!is_ahead) {
        fill_output(p, *unit, p.tokens * slot / p.parts.slots,
                    p.tokens * (slot + 1) / p.parts.slots, dev::nan());
      }
      return false;
    }
    const int tokens = p.parts.chunks * kChunk;
    unit->n = dev::sequence_of_slot<kKey.cu_seqlens_dtype>(slot, tokens, p.cu_seqlens, p.sequences);
    unit->sequence = dev::packed_sequence<kChunk, kKey.cu_seqlens_dtype>(unit->n, p.cu_seqlens);
    part->result = unit->sequence.first / tokens;
    part->number = static_cast<int>(slot - part->result - unit->n);
    part->cut = cut(chunks_of(unit->sequence), p.parts.chunks);
  } else {
    unit->sequence = dev::dense_sequence<kChunk>(0, p.tokens);
    part->cut = cut(chunks_of(unit->sequence), p.parts.chunks);
    unit->n = slot / part->cut.parts;
    unit->sequence = dev::dense_sequence<kChunk>(unit->n, p.tokens);
    part->result = unit->n * (part->cut.parts - 1);
    part->number = slot % part->cut.parts;
  }
  if (part->number < 0 || part->number >= part->cut.parts) return false;

  const int chunks = chunks_of(unit->sequence);
  const int begin = part->number * part->cut.chunks;
  const int end = part->is_last() ? chunks : begin + part->cut.chunks;
  unit->span = {.first = begin, .begin = begin, .end = end};
  unit->first_column = block * kColumns;
  unit->role = Role::kOutputs;
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
  return is_needed && part->number != 0 && is_carried(p, *unit, *part, part->number);
}

// Tile of N^T: of 16 keys, and of this warp's columns.
__device__ int part_tile(const Unit& unit, int k) {
  return k * (kKey.value_dim / 16) + warp_column(unit) / 16;
}

__device__ void store_part_state(const State& state, char* to, const Unit& unit) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::store_tile<DType::kF32>(to, part_tile(unit, k),
                                 dev::round_to<DType::kF32>(state.tiles[k]));
  }
}

__device__ void load_part_state(State& state, const char* from, const Unit& unit) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    state.tiles[k] =
        dev::to_float<DType::kF32>(dev::load_tile<DType::kF32>(from, part_tile(unit, k)));
  }
}

// The identity's columns of this warp, as a state.
__device__ void set_identity(State& state, const Unit& unit) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::for_each_element([&](int r, int c, int j) {
      const int column = warp_column(unit) + dev::tile_row() + 8 * r;
      const int row = 16 * k + dev::tile_column() + 8 * c + j;
      state.tiles[k].x[r][c][j] = row == column ? 1.0f : 0.0f;
    });
  }
}

// The product of the chunks' decays.  For a whole warp.
__device__ float decay_of_span(const GdnPrefillScanParams& p, const Unit& unit) {
  float decay = 1.0f;
  for (int i = unit.span.first + threadIdx.x % 32; i < unit.span.end; i += 32) {
    decay *= *reinterpret_cast<const float*>(record_of(p, unit, i) + kRecord.decay);
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) decay *= __shfl_xor_sync(0xffffffffu, decay, step);
  return decay;
}

// This warp's columns of a transition.
__device__ char* slice_at(char* transition, const Unit& unit) {
  return transition + warp_column(unit) / 16 * kTransitionSlice;
}

__device__ void store_decay(float decay, char* transition, const Unit& unit) {
  if (threadIdx.x % 32 == 0) {
    *reinterpret_cast<float*>(slice_at(transition, unit) + kDecayAt) = decay;
  }
}

// D from decay I + D, this warp's columns.  The decay is there already.
__device__ void store_transition(const State& state, char* transition, const Unit& unit) {
  char* slice = slice_at(transition, unit);
  // Orders the decay's store before its reading.
  __syncwarp();
  const float decay = *reinterpret_cast<const float*>(slice + kDecayAt);
  auto* tiles = dev::as<kKey.dtype>(static_cast<void*>(slice));
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::for_each_element([&](int r, int c, int j) {
      const int column = dev::tile_row() + 8 * r;
      const int row = dev::tile_column() + 8 * c + j;
      const bool is_diagonal = warp_column(unit) == 16 * k && row == column;
      tiles[k * 256 + dev::tile_element(row, column)] =
          dev::from_float<kKey.dtype>(state.tiles[k].x[r][c][j] - (is_diagonal ? decay : 0.0f));
    });
  }
}

// Brings D and N of the parts that a state is carried over to shared memory, in slices: 16 columns
// of D, and 16 rows of N, of the block's columns.  For the threads that copy.
class SliceCopier {
 public:
  static constexpr int kRing = kKey.parts ? ring_slices(kKey) : 2;
  static constexpr int kStates = kTransitionSlice;  // N's part, behind D's

  __device__ SliceCopier(const GdnPrefillScanParams& p, const Unit& unit, long long result,
                         int slices)
      : result_(result), tile_(unit.first_column / 16), slices_(slices) {}

  static __device__ unsigned place(int slice) {
    return dev::shared_address(shared) + carried_state_bytes(kKey) +
           slice % kRing * slice_bytes(kKey);
  }

  // Starts copying the next slice, if there is one; waits for the part that it is of.
  __device__ void copy_next(const GdnPrefillScanParams& p) {
    if (next_ < slices_) {
      const int k = next_ % kKeys;
      if (k == 0) {
        if (next_ != 0) result_ += p.heads;
        dev::wait_for(p.parts.finished + result_, kResults);
      }
      const char* states = state_at(p, result_) + (k * (kKey.value_dim / 16) + tile_) * 1024;
      dev::copy_bytes<kTransitionSlice, kCopiers>(place(next_),
                                                  transition_at(p, result_) + k * kTransitionSlice);
      dev::copy_bytes<kKey.warps * 1024, kCopiers>(place(next_) + kStates, states);
      ++next_;
    }
    dev::commit_copies();  // also when the group is empty: groups are counted
  }

 private:
  long long result_;
  int tile_;  // the block's first in a row of N's
  int slices_;
  int next_ = 0;
};

// S <- decay S, with the decay at `at`.
__device__ void scale_state(State& state, unsigned at) {
  float decay;
  dev::load_shared(decay, at);
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::for_each_element([&](int r, int c, int j) { state.tiles[k].x[r][c][j] *= decay; });
  }
}

// The state in front of the part, from the last one that no state was carried to.  For all threads.
__device__ void carry_state(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                            const Part& part) {
  const int start = chain_start(p, unit, part);
  const int steps = part.number - 1 - start;
  const long long result = result_of(p, unit, part, start);
  SliceCopier copier(p, unit, result + p.heads, steps * kKeys);
  if (copies()) {
    for (int i = 0; i < SliceCopier::kRing - 1; ++i) copier.copy_next(p);
  }
  if (computes()) {
    dev::wait_for(p.parts.finished + result, kSlices);
    load_part_state(state, state_at(p, result), unit);
  }
  // This lane's part of the state as an operand: registers are needed for the products.
  char* const old = reinterpret_cast<char*>(shared) + threadIdx.x / 32 * kKeys * 256 * kSize;
  for (int step = 0; step < steps; ++step) {
    if (computes()) {
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        dev::store_tile<kKey.dtype>(old, k, dev::round_to<kKey.dtype>(state.tiles[k]));
      }
    }
#pragma unroll
    for (int m = 0; m < kKeys; ++m) {
      if (copies()) dev::wait_copies<SliceCopier::kRing - 2>();
      // Orders the copies of this slice before its reading, and the last slice's reading before the
      // copies into the place that it leaves.
      __syncthreads();
      if (copies()) copier.copy_next(p);
      if (!computes()) continue;
      const unsigned slice = SliceCopier::place(step * kKeys + m);
      if (m == 0) scale_state(state, slice + kDecayAt);
      add(state.tiles[m], dev::to_float<DType::kF32>(dev::load_tile<DType::kF32>(
                              slice + SliceCopier::kStates, threadIdx.x / 32)));
      const Tile column = dev::load_tile<kKey.dtype>(dev::shared_address(old), m);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        dev::Acc added{};
        dev::mma(kSumApart ? added : state.tiles[k], column, dev::load_tile<kKey.dtype>(slice, k));
        if constexpr (kSumApart) add(state.tiles[k], added);
      }
    }
  }
  // Orders the last slice's reading before the copies of chunks.
  __syncthreads();
}

__device__ Destination destination_of(const GdnPrefillScanParams& p, const Unit& unit,
                                      const Part& part, const dev::Slots& slots) {
  if (unit.role != Role::kOutputs) {
    const long long result = result_of(p, unit, part, part.number);
    if (unit.role == Role::kValues) return {state_at(p, result), p.parts.finished + result};
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

// What a part's run starts from.  May move the start of the unit's span forward.
__device__ void start_part(State& state, const GdnPrefillScanParams& p, Unit& unit,
                           const Part& part, const dev::Slots& slots) {
  if (unit.role == Role::kTransition) {
    if (computes()) set_identity(state, unit);
  } else if (part.number == 0) {
    if constexpr (kKey.states.has_initial) {
      if (computes()) load_state(state, p, slots.read, unit);
      count_reader(p, unit, part);
    }
  } else {
    const int warm_up = chunks_to_forget(p, unit, part, part.number);
    unit.span.first -= warm_up;
    if (unit.role == Role::kOutputs && warm_up == 0) carry_state(state, p, unit, part);
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
