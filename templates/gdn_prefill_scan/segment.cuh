// A part of a sequence (common/chunk/segments.h), and what it leaves for those behind it.  Part of
// gdn_prefill_scan.cu.
#pragma once

#include "common/chunk/segments.h"
#include "common/hopper/wgmma.cuh"
#include "common/warp.cuh"
#include "gdn_prefill_scan/chunk.cuh"

namespace {

struct Segment {
  Cut cut;
  int number;        // in its sequence
  int part = 0;      // with context_parallel (common/chunk/steps.h): which is run
  long long result;  // of the sequence's first segment
  int warm_up = 0;   // chunks_to_forget(), of this segment

  // Whether the state in front of the segment is carried there, and not found by warming up.
  __device__ bool is_carried_to() const { return number != 0 && warm_up == 0; }
  __device__ bool is_last() const { return number + 1 == cut.segments; }
};

// The same, known to be so in all lanes.
__device__ Segment uniform(const Segment& segment) {
  return {.cut = {.segments = dev::uniform(segment.cut.segments),
                  .chunks = dev::uniform(segment.cut.chunks)},
          .number = dev::uniform(segment.number),
          .part = kKey.context_parallel ? dev::uniform(segment.part) : 0,
          .result = dev::uniform(segment.result),
          .warm_up = dev::uniform(segment.warm_up)};
}

__device__ bool is_malformed(const GdnPrefillScanParams& p) {
  return kKey.varlen && p.order[0] == dev::kMalformed;
}

// How the unit's sequence is cut.
__device__ Cut cut_of(const GdnPrefillScanParams& p, const Unit& unit) {
  const int chunks = chunks_of(unit.sequence);
  if constexpr (kKey.context_parallel) return cut_on_grid(chunks, p.segments.chunks);
  return cut(chunks, p.segments.chunks);
}

// The sequence and the segment of a slot, which of a chain is the sequence's number.  Number and
// cut may say that there is no such segment.  False: cu_seqlens is malformed; blocks that write
// outputs have filled their share of all tokens.
__device__ void find_segment(const GdnPrefillScanParams& p, int slot, bool is_chain, Unit* unit,
                             Segment* segment) {
  if constexpr (kKey.varlen) {
    const int tokens = p.segments.chunks * kChunk;
    unit->n = is_chain ? slot
                       : dev::sequence_of_slot<kKey.cu_seqlens_dtype>(slot, tokens, p.cu_seqlens,
                                                                      p.sequences);
    unit->sequence = dev::packed_sequence<kChunk, kKey.cu_seqlens_dtype>(unit->n, p.cu_seqlens);
    segment->result = unit->sequence.first / tokens;
    segment->number = is_chain ? 0 : static_cast<int>(slot - segment->result - unit->n);
    segment->cut = cut_of(p, *unit);
    // Elsewhere the last segment leaves nothing.
    if constexpr (kKey.context_parallel) segment->result += unit->n;
  } else {
    unit->sequence = dev::dense_sequence<kChunk>(0, p.tokens);
    segment->cut = cut_of(p, *unit);
    unit->n = is_chain ? slot : slot / segment->cut.segments;
    unit->sequence = dev::dense_sequence<kChunk>(unit->n, p.tokens);
    segment->result = unit->n * (segment->cut.segments - (kKey.context_parallel ? 0 : 1));
    segment->number = is_chain ? 0 : slot % segment->cut.segments;
  }
}

// Chunks in front of segment `number`, which is not the first, that forget what is in front of
// them, as few as possible; 0: there are none within half a segment and the 32 that a warp looks
// at, or each channel has a decay.
__device__ int chunks_to_forget(const GdnPrefillScanParams& p, const Unit& unit,
                                const Segment& segment, int number) {
  if constexpr (kChannels) return 0;
  const int i = threadIdx.x % 32;
  const bool may = i < segment.cut.chunks / 2;
  float bound = 0.0f;
  if (may) {
    const char* wy = wy_of(p, unit, number * segment.cut.chunks - 1 - i);
    bound = *reinterpret_cast<const float*>(wy + kBoundAt);
  }
  const float sum = dev::sum_of_lanes_before(bound) + bound;
  return __ffs(__ballot_sync(0xffffffffu, may && sum <= -kForgottenBits));
}

// Whether the state in front of segment `number`, which is not the first, has to be carried there.
__device__ bool is_carried(const GdnPrefillScanParams& p, const Unit& unit, const Segment& segment,
                           int number) {
  return chunks_to_forget(p, unit, segment, number) == 0;
}

// Where N and D of segment `number` are told of, and where they lie; with context_parallel those of
// one of its parts, the last one unless another is named.
constexpr int kResultsOfSegment = kKey.context_parallel ? kParts : 1;
__device__ long long result_of(const GdnPrefillScanParams& p, const Unit& unit,
                               const Segment& segment, int number,
                               int part = kResultsOfSegment - 1) {
  return ((segment.result + number) * kResultsOfSegment + part) * p.heads + unit.h;
}
// From a segment's result to the next one's.
__device__ long long result_step(const GdnPrefillScanParams& p) {
  return kKey.context_parallel ? static_cast<long long>(p.heads) * kParts : p.heads;
}
__device__ char* state_at(const GdnPrefillScanParams& p, long long result) {
  return static_cast<char*>(p.segments.states) +
         result * segment_state_bytes(kKey.key_dim, kKey.value_dim);
}
__device__ char* transition_at(const GdnPrefillScanParams& p, long long result) {
  return static_cast<char*>(p.segments.transitions) +
         result * segment_transition_bytes(kKey.key_dim, kKey.dtype, kKey.inputs.decay);
}

// N^T's tiles of a block's columns lie behind each other; those of 16 keys:
constexpr int kStateRowBytes = kColumns * 16 * 4;
__device__ int state_row_at(const Unit& unit, int k) {
  return (unit.first_column / kColumns * kKeys + k) * kStateRowBytes;
}
// Tile of N^T: of 16 keys, and of this warp's columns.
__device__ int segment_tile(const Unit& unit, int k) {
  return (unit.first_column / kColumns * kKeys + k) * kKey.warps + threadIdx.x / 32;
}

__device__ void store_segment_state(const State& state, char* to, const Unit& unit) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::store_tile<DType::kF32>(to, segment_tile(unit, k),
                                 dev::round_to<DType::kF32>(state.tiles[k]));
  }
}

__device__ void load_segment_state(State& state, const char* from, const Unit& unit) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    state.tiles[k] = dev::to_float(dev::load_tile<DType::kF32>(from, segment_tile(unit, k)));
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
    decay *= *reinterpret_cast<const float*>(wy_of(p, unit, i) + kDecayAt);
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) decay *= __shfl_xor_sync(0xffffffffu, decay, step);
  return decay;
}

// D as the step from segment to segment takes it.  By mma.sync: in slices of 16 columns, right
// operands, each with the decay behind it.  By wgmma: in halves of D's columns, each the rows of
// D^T as one operand, and behind both the decay, once for every 16 columns.
constexpr int kDecayBytes = segment_decay_bytes(kKey.key_dim, kKey.inputs.decay);
constexpr int kTransitionSlice =
    transition_slice_bytes(kKey.key_dim, kKey.dtype, kKey.inputs.decay);
constexpr int kTransitionRows = kKey.key_dim * kKey.key_dim * kSize;
constexpr int kTransitionHalves = 2;
constexpr int kTransitionHalf = kTransitionRows / kTransitionHalves;
using TransitionHalf = dev::SwizzledRows<kKey.key_dim / kTransitionHalves, kSwizzledKeyBytes>;

// The decay beside this warp's columns of D.
__device__ float* decay_at(char* transition, const Unit& unit) {
  const int slice = warp_column(unit) / 16;
  const int at = kKey.wgmma ? kTransitionRows + slice * kDecayBytes
                            : (slice + 1) * kTransitionSlice - kDecayBytes;
  return reinterpret_cast<float*>(transition + at);
}

__device__ void store_decay(float decay, char* transition, const Unit& unit) {
  if (threadIdx.x % 32 == 0) *decay_at(transition, unit) = decay;
}

// Those of all channels, with each warp beside its columns.
__device__ void store_channel_decays(const GdnPrefillScanParams& p, const Unit& unit,
                                     char* transition) {
#pragma unroll 1
  for (int channel = threadIdx.x % 32; channel < kKey.key_dim; channel += 32) {
    float decay = 1.0f;
#pragma unroll 8
    for (int i = unit.span.first; i < unit.span.end; ++i) {
      const char* const wy = wy_of(p, unit, i);
      decay *= reinterpret_cast<const float*>(wy + channel_factors().decay)[channel];
    }
    decay_at(transition, unit)[channel] = decay;
  }
}

// Of a tile's element, this lane's; where transitions are stored in a loop the compiler would work
// out what follows from it in front of that.
constexpr bool kStoresInLoop = kKey.context_parallel || producers(kKey) > 0;
__device__ int transition_row() {
  if constexpr (!kStoresInLoop) return dev::tile_row();
  return static_cast<int>(dev::ThisThreadInLoop::number()) % 32 / 4;
}
__device__ int transition_column() {
  if constexpr (!kStoresInLoop) return dev::tile_column();
  return static_cast<int>(dev::ThisThreadInLoop::number()) % 4 * 2;
}

// D from decay I + D, this warp's columns.  The decay is there already.
__device__ void store_transition(const State& state, char* transition, const Unit& unit) {
  // Orders the decay's store before its reading.
  __syncwarp();
  const float* const decays = decay_at(transition, unit);
  float decay[2] = {*decays, *decays};  // of this lane's columns
  if constexpr (kChannels) {
#pragma unroll
    for (int r = 0; r < 2; ++r) decay[r] = decays[warp_column(unit) + transition_row() + 8 * r];
  }
  const auto d_at = [&](int k, int r, int c, int j) {
    bool is_diagonal;
    if constexpr (producers(kKey) > 0) {  // by two comparisons of lanes: registers are few
      is_diagonal =
          warp_column(unit) == 16 * k && r == c && transition_row() == transition_column() + j;
    } else {
      is_diagonal = warp_column(unit) == 16 * k &&
                    transition_row() + 8 * r == transition_column() + 8 * c + j;
    }
    return state.tiles[k].x[r][c][j] - (is_diagonal ? decay[r] : 0.0f);
  };
  if constexpr (kKey.wgmma) {
    constexpr int kRows = kKey.key_dim / kTransitionHalves;
    char* const half = transition + warp_column(unit) / kRows * kTransitionHalf;
    const int row = warp_column(unit) % kRows + transition_row();
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int r = part / 2;
        const int c = part % 2;
        const unsigned at =
            TransitionHalf::at(row + 8 * r, 2 * k + c) + transition_column() * kSize;
        *reinterpret_cast<unsigned*>(half + at) =
            dev::pack<kKey.dtype>(d_at(k, r, c, 0), d_at(k, r, c, 1));
      }
    }
  } else {
    auto* tiles = dev::as<kKey.dtype>(
        static_cast<void*>(transition + warp_column(unit) / 16 * kTransitionSlice));
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      dev::for_each_element([&](int r, int c, int j) {
        const int column = transition_row() + 8 * r;
        const int row = transition_column() + 8 * c + j;
        tiles[k * 256 + dev::tile_element<kKey.dtype>(row, column)] =
            dev::from_float<kKey.dtype>(d_at(k, r, c, j));
      });
    }
  }
}

}  // namespace
