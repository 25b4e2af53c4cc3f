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

enum class Role { kOutputs, kValues, kTransition };

struct Part {
  Role role;
  Cut cut;
  int number;        // in its sequence
  long long result;  // of the sequence's first part

  __device__ int begin() const { return number * cut.chunks; }  // first chunk
  __device__ bool is_last() const { return number + 1 == cut.parts; }
};

constexpr int kResults = kSlices + kKey.key_dim / kColumns;  // blocks that find N and D

// The logarithm of what a state may be multiplied by and count as forgotten: half a unit in fp32's
// last place.
constexpr float kForgotten = -24.0f;

// Chunks in front of chunk `begin` that forget what is in front of them, as few as possible, at
// most half a part; 0: they do not.  For a whole warp.
__device__ int chunks_to_forget(const GdnPrefillScanParams& p, const Unit& unit, const Part& part,
                                int begin) {
  const int most = part.cut.chunks / 2;
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int i = lane; i - lane < most; i += 32) {
    float own = 0.0f;
    if (i < most) {
      own = *reinterpret_cast<const float*>(record_of(p, unit, begin - 1 - i) + kRecord.bound);
    }
    const float upto = sum + dev::sum_of_lanes_before(own) + own;
    const unsigned found = __ballot_sync(0xffffffffu, i < most && upto <= kForgotten);
    if (found != 0) return i - lane + __ffs(found);
    sum = __shfl_sync(0xffffffffu, upto, 31);
  }
  return 0;
}

// Whether the state in front of part `number`, which is not 0, has to be carried there.
__device__ bool is_carried(const GdnPrefillScanParams& p, const Unit& unit, const Part& part,
                           int number) {
  return chunks_to_forget(p, unit, part, number * part.cut.chunks) == 0;
}

// Where the result of part `number` is told of, and where it lies.
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
constexpr int kDecayAt = kKey.key_dim * kKey.key_dim * kSize;  // in a transition

// The part and the columns of this block, by its ticket.  False: there is nothing to do.
__device__ bool take_part(const GdnPrefillScanParams& p, Unit* unit, Part* part) {
  unsigned ticket = blockIdx.x;
  if (p.parts.tickets != nullptr) {
    ticket = dev::take_ticket(p.parts.tickets, reinterpret_cast<unsigned*>(shared));
  }
  // First what others may wait for: first parts, and N and D of the others.
  const unsigned ahead = static_cast<unsigned>(p.parts.slots) * p.heads * kResults;
  const bool is_ahead = ticket < ahead;
  const unsigned blocks = is_ahead ? kResults : kSlices;
  if (!is_ahead) ticket -= ahead;
  const int block = static_cast<int>(ticket % blocks);
  const int slot = static_cast<int>(ticket / blocks / p.heads);
  unit->h = static_cast<int>(ticket / blocks % p.heads);

  long long first;
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
    first = unit->sequence.first;
    part->result = first / tokens;
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
  if (part->number >= part->cut.parts) return false;

  const int chunks = chunks_of(unit->sequence);
  const int begin = part->begin();
  const int end = part->is_last() ? chunks : begin + part->cut.chunks;
  unit->span = {.first = begin, .begin = begin, .end = end};
  unit->first_column = block * kColumns;
  part->role = Role::kOutputs;
  if (!is_ahead) return part->number != 0;
  if (part->number == 0) return block < kSlices;
  // N and D, for a state that is carried here and on.
  if (part->is_last() || !is_carried(p, *unit, *part, part->number) ||
      !is_carried(p, *unit, *part, part->number + 1)) {
    return false;
  }
  unit->span.begin = end;
  part->role = block < kSlices ? Role::kValues : Role::kTransition;
  if (part->role == Role::kTransition) {
    unit->first_column = (block - kSlices) * kColumns;
    unit->has_values = false;
  }
  return true;
}

__device__ void store_part_state(const State& state, char* to, const Unit& unit) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::store_tile<DType::kF32>(to, warp_column(unit) / 16 * kKeys + k,
                                 dev::round_to<DType::kF32>(state.tiles[k]));
  }
}

__device__ dev::Acc load_part_tile(const char* from, const Unit& unit, int k) {
  return dev::to_float<DType::kF32>(
      dev::load_tile<DType::kF32>(from, warp_column(unit) / 16 * kKeys + k));
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

// D from decay I + D, this warp's columns, and the decay.
__device__ void store_transition(const State& state, char* to, const GdnPrefillScanParams& p,
                                 const Unit& unit) {
  const float decay = decay_of_span(p, unit);
  if (warp_column(unit) == 0 && threadIdx.x == 0) {
    *reinterpret_cast<float*>(to + kDecayAt) = decay;
  }
  auto* tiles = dev::as<kKey.dtype>(static_cast<void*>(to));
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::for_each_element([&](int r, int c, int j) {
      const int column = dev::tile_row() + 8 * r;
      const int row = dev::tile_column() + 8 * c + j;
      const int tile = warp_column(unit) / 16 * kKeys + k;
      const bool is_diagonal = warp_column(unit) == 16 * k && row == column;
      tiles[tile * 256 + dev::tile_element(row, column)] =
          dev::from_float<kKey.dtype>(state.tiles[k].x[r][c][j] - (is_diagonal ? decay : 0.0f));
    });
  }
}

// S <- decay S + D S + N.
__device__ void carry(State& state, const char* transition, const char* added, const Unit& unit) {
  const float decay = *reinterpret_cast<const float*>(transition + kDecayAt);
  Tile old[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::stop_loading_ahead(transition == nullptr);
    old[k] = dev::round_to<kKey.dtype>(state.tiles[k]);
    const dev::Acc n = load_part_tile(added, unit, k);
    dev::for_each_element([&](int r, int c, int j) {
      float& x = state.tiles[k].x[r][c][j];
      x = fmaf(decay, x, n.x[r][c][j]);
    });
  }
#pragma unroll
  for (int m = 0; m < kKeys; ++m) {
    dev::stop_loading_ahead(transition == nullptr);
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      dev::mma(state.tiles[k], old[m], dev::load_tile<kKey.dtype>(transition, m * kKeys + k));
    }
  }
}

// The state in front of the part, from the last one that no carried state went into.
__device__ void carry_state(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                            const Part& part) {
  int from = part.number - 1;
  while (from > 0 && is_carried(p, unit, part, from)) --from;
  long long result = result_of(p, unit, part, from);
  dev::wait_for(p.parts.finished + result, kSlices);
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    state.tiles[k] = load_part_tile(state_at(p, result), unit, k);
  }
  while (++from < part.number) {
    result += p.heads;
    dev::wait_for(p.parts.finished + result, kResults);
    carry(state, transition_at(p, result), state_at(p, result), unit);
  }
}

// What a part's run starts from.  May move the start of the unit's span forward.
__device__ void start_part(State& state, const GdnPrefillScanParams& p, Unit& unit,
                           const Part& part, const dev::Slots& slots, bool copies) {
  if (part.role == Role::kTransition) {
    if (!copies) set_identity(state, unit);
  } else if (part.role == Role::kOutputs && part.number == 0) {
    if constexpr (kKey.states.has_initial) {
      if (!copies) load_state(state, p, slots.read, unit);
      if (!part.is_last()) dev::arrive(p.parts.started + result_of(p, unit, part, 0));
    }
  } else if (part.role == Role::kOutputs) {
    const int warm_up = chunks_to_forget(p, unit, part, unit.span.begin);
    unit.span.first -= warm_up;
    if (warm_up == 0 && !copies) carry_state(state, p, unit, part);
  }
}

// Where the state goes that a part's run ended with.
__device__ void end_part(const State& state, const GdnPrefillScanParams& p, const Unit& unit,
                         const Part& part, bool copies) {
  if (part.is_last() ||
      (part.role == Role::kOutputs && !is_carried(p, unit, part, part.number + 1))) {
    return;
  }
  const long long result = result_of(p, unit, part, part.number);
  if (!copies) {
    if (part.role == Role::kTransition) {
      store_transition(state, transition_at(p, result), p, unit);
    } else {
      store_part_state(state, state_at(p, result), unit);
    }
  }
  dev::arrive(p.parts.finished + result);
}

// The new state may overwrite the initial one: waits until all blocks have that.  For a warp.
__device__ void wait_for_readers(const GdnPrefillScanParams& p, const Unit& unit,
                                 const Part& part) {
  if constexpr (kKey.states.has_initial) {
    if (part.number != 0) dev::wait_for(p.parts.started + result_of(p, unit, part, 0), kSlices);
  }
}

}  // namespace
