// What the scan computes on one chunk, and the copies that bring it.  Part of gdn_prefill_scan.cu,
// which has defined kKey.
#pragma once

#include "common/checkpoints.cuh"
#include "common/chunk/sequences.cuh"
#include "common/chunk/state.cuh"
#include "common/chunk/wy_rows.cuh"
#include "common/copy.cuh"
#include "common/hopper/wgmma.cuh"
#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/shared.cuh"
#include "common/tile/output.cuh"
#include "common/tile/tile.cuh"
#include "common/uniform.cuh"
#include "gdn_prefill_scan/key.h"

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own
using gdn::Checkpoints;

constexpr int kChunk = kKey.chunk_size;
constexpr int kTokens = kChunk / 16;                // tiles along a chunk
constexpr int kKeys = kKey.key_dim / 16;            // tiles along key_dim
constexpr int kColumns = 16 * kKey.warps;           // value columns of the block
constexpr int kSlices = kKey.value_dim / kColumns;  // blocks of a head
constexpr int kSize = size_of(kKey.dtype);
constexpr int kRow = key_row_elements(kKey);
constexpr int kValueRow = padded_row(kColumns, kKey.dtype);
constexpr ChunkWy kWy = chunk_wy(kChunk, kKey.dtype);
// What the first kernel leaves of a chunk and head.
constexpr int kWyBytes = producers(kKey) > 0 ? sizeof(ChunkDecay) : wy_bytes(kKey);
constexpr int kDecayAt = producers(kKey) > 0 ? 0 : kWy.decay;
constexpr int kBoundAt = producers(kKey) > 0 ? 4 : kWy.bound;
// With a decay for each channel the WY factors are these instead.
constexpr bool kChannels = has_channel_decays(kKey);
consteval ChannelWy channel_factors() { return channel_wy(kChunk, kKey.key_dim, kKey.dtype); }
constexpr int kAttention = kChannels ? channel_factors().attention : kWy.attention;

// Without wgmma these are named, too, though not used.
constexpr int kSwizzledKeyBytes =
    kKey.wgmma ? swizzled_key_bytes(kKey.key_dim, kKey.dtype) : kSwizzledValueBytes;

// In a stage of shared memory k's rows and q's lie behind each other, then v's, the block's
// columns. For wgmma those of k and q are the rows of one matrix, in blocks of columns.  With a
// decay for each channel these rows are among the WY factors; for wgmma they come in front of v's.
template <bool kWgmma>
struct Layout {
  using Keys = dev::PlainRows<kRow * kSize>;
  using Values = dev::PlainRows<kValueRow * kSize>;
};
template <>
struct Layout<true> {
  using Keys = dev::SwizzledRows<2 * kChunk, kSwizzledKeyBytes>;
  using Written = dev::SwizzledRows<kChunk, kSwizzledKeyBytes>;  // over channels
  using Values = dev::SwizzledRows<kChunk, kSwizzledValueBytes>;
};
// The rows that read the state, and those that write it, with mma.sync.
template <bool kOfChannels>
struct MatricesOf {
  using Read = dev::SharedMatrix<kKey.dtype, kRow>;
  using Written = Read;
};
template <>
struct MatricesOf<true> {
  using Read = dev::WyRows<2 * kChunk, kKey.key_dim, kKey.dtype>::Matrix;
  using Written = dev::WyRows<kChunk, kKey.key_dim, kKey.dtype>::Matrix;
};
using ReadRows = dev::WyRows<2 * kChunk, kKey.key_dim, kKey.dtype>;  // with channels
// Byte offsets.
constexpr int kQueries = Layout<kKey.wgmma>::Keys::at(kChunk, 0);
constexpr int kUpdates = kChannels && kKey.wgmma ? 2 * kChunk * kRow * kSize : 0;
constexpr int kValues = stage_rows(kKey) * kChunk * kRow * kSize;
constexpr int kWyAt = kValues + kChunk * (kKey.wgmma ? kColumns : kValueRow) * kSize;

using Tile = dev::Tile<kKey.dtype>;
using State = dev::State<kKey.states.layout, kKey.key_dim, kKey.value_dim>;
using Output = dev::OutputWriter<kKey.output_dtype, kChunk>;

extern __shared__ __align__(kKey.wgmma ? 1024 : 16) unsigned char shared[];

// What this thread does: with threads_copy both.
constexpr int kComputing = 32 * kKey.warps;
constexpr int kCopiers = has_copying_warp(kKey) ? 32 : threads(kKey);
__device__ bool copies() {
  if (producers(kKey) > 0) return threadIdx.x / 32 == kKey.warps + producers(kKey);
  return !has_copying_warp(kKey) || threadIdx.x >= kComputing;
}
__device__ bool computes() { return kKey.threads_copy || threadIdx.x < kComputing; }
__device__ bool makes() {
  return threadIdx.x >= kComputing && threadIdx.x < kComputing + producers(kKey) * 32;
}
// Behind the one that copies.
__device__ bool plans() {
  return producers(kKey) > 0 && threadIdx.x / 32 == kKey.warps + producers(kKey) + 1;
}
// The last warps.  NOTE: with one, beside a producer of T, all is 10 % slower.
constexpr int kGateWarps = 2;
__device__ bool keeps_gates() {
  return producers(kKey) > 0 && threadIdx.x >= threads(kKey) - kGateWarps * 32;
}
// A barrier of the threads that compute.
__device__ void sync_computing() { asm volatile("bar.sync 1, %0;" ::"n"(kComputing) : "memory"); }

// Chunks first ... end - 1 of a sequence, of which those from `begin` on have outputs.  Only
// segments (segments.cuh) have others.
struct Span {
  int first, begin, end;
};

// What a block finds: outputs, or what segments leave for each other.
enum class Role {
  kOutputs,
  kValues,      // N
  kTransition,  // D: from the identity, v taken as zero
  kChain,       // the states between segments: carry.cuh
};

// What a block works on.
struct Unit {
  dev::Sequence sequence;
  long long n;
  int h;
  int first_column;  // of the block
  Span span;
  Role role;
};

// The same, known to be so in all lanes.
__device__ Unit uniform(const Unit& unit) {
  const dev::Sequence& sequence = unit.sequence;
  return {.sequence = {.batch = dev::uniform(sequence.batch),
                       .first = dev::uniform(sequence.first),
                       .tokens = dev::uniform(sequence.tokens),
                       .slot = dev::uniform(sequence.slot)},
          .n = dev::uniform(unit.n),
          .h = dev::uniform(unit.h),
          .first_column = dev::uniform(unit.first_column),
          .span = {.first = dev::uniform(unit.span.first),
                   .begin = dev::uniform(unit.span.begin),
                   .end = dev::uniform(unit.span.end)},
          .role = static_cast<Role>(dev::uniform(static_cast<int>(unit.role)))};
}

__device__ int chunks_of(const dev::Sequence& sequence) {
  return static_cast<int>((sequence.tokens + kChunk - 1) / kChunk);
}

// Tokens of the unit's sequence in front of a chunk.
__device__ int tokens_before(const Unit& unit, int chunk) {
  const int tokens = static_cast<int>(unit.sequence.tokens);
  return tokens < chunk * kChunk ? tokens : chunk * kChunk;
}

// This warp's first value column, of the head.
__device__ int warp_column(const Unit& unit) { return unit.first_column + threadIdx.x / 32 * 16; }

// The WY factors of a chunk of the unit's sequence and head.
__device__ const char* wy_of(const GdnPrefillScanParams& p, const Unit& unit, int chunk) {
  return static_cast<const char*>(p.wy) +
         ((unit.sequence.slot + chunk) * p.heads + unit.h) * kWyBytes;
}

// Of the vector at byte `vector` of the WY factors in shared memory, the factors of this lane's
// tokens in tile i.
struct Factors {
  float x[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};  // [column half][column]
  Factors() = default;
  __device__ Factors(unsigned wy, int vector, int i) {
    const unsigned at = wy + vector + (16 * i + dev::tile_column()) * 4;
#pragma unroll
    for (int c = 0; c < 2; ++c) dev::load_shared(x[c], at + 32 * c);
  }
};
// The same; with a decay for each channel rows have them, and these are 1.
template <int kVector>
__device__ Factors factors_of_tokens(unsigned wy, int i) {
  if constexpr (kChannels) {
    return {};
  } else {
    return Factors(wy, kVector, i);
  }
}

// acc[i][j] *= factors[j].
__device__ void scale_columns(dev::Acc& acc, const Factors& factors) {
  dev::for_each_element([&](int r, int c, int j) { acc.x[r][c][j] *= factors.x[c][j]; });
}

// V'^T from (K S)^T, of which the products are the first tiles.  values_of(i), k_in_of(i): V^T's
// i-th tile, and the factors of its tokens.
template <int kTiles, class Values, class KIn>
__device__ void correct_values(Tile (&values)[kTokens], const dev::Acc (&products)[kTiles],
                               Values values_of, KIn k_in_of) {
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    dev::Acc value = dev::to_float(values_of(i));
    const Factors k_in = k_in_of(i);
    const dev::Acc& recalled = products[i];
    dev::for_each_element([&](int r, int c, int j) {
      value.x[r][c][j] = fmaf(-k_in.x[c][j], recalled.x[r][c][j], value.x[r][c][j]);
    });
    values[i] = dev::round_to<kKey.dtype>(value);
  }
}

// f32: the tensor core's own sum would cut off the state's last bits, chunk after chunk.  For
// 16-bit operands these do not matter, and registers do.
constexpr bool kSumApart = kKey.dtype == DType::kF32;

__device__ void add(dev::Acc& sum, const dev::Acc& x) {
  dev::for_each_element([&](int r, int c, int j) { sum.x[r][c][j] += x.x[r][c][j]; });
}

// Rounds x, once as it is and once times v_out_of(i), for tile i: what the output and the state
// take.
template <class VOut>
__device__ void round_values(Tile (&plain)[kTokens], Tile (&scaled)[kTokens],
                             dev::Acc (&x)[kTokens], VOut v_out_of) {
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    plain[i] = dev::round_to<kKey.dtype>(x[i]);
    scale_columns(x[i], v_out_of(i));
    scaled[i] = dev::round_to<kKey.dtype>(x[i]);
  }
}

__device__ void scale(dev::Acc& acc, float factor) {
  dev::for_each_element([&](int r, int c, int j) { acc.x[r][c][j] *= factor; });
}

// S <- decay S, with the decay, or those of channels, at `at` in shared memory.
__device__ void scale_state(State& state, unsigned at) {
  if constexpr (kChannels) {
#pragma unroll
    for (int k = 0; k < kKeys; ++k) scale_columns(state.tiles[k], Factors(at, 0, k));
  } else {
    float decay;
    dev::load_shared(decay, at);
#pragma unroll
    for (int k = 0; k < kKeys; ++k) scale(state.tiles[k], decay);
  }
}

// Whether every row of o starts at a multiple of `bytes`.
__device__ bool output_rows_at(const GdnPrefillScanParams& p, int bytes) {
  const TokenStrides& stride = p.o.stride;
  const long long elements = stride.batch | stride.token | stride.head;
  const auto data = reinterpret_cast<unsigned long long>(p.o.data);
  return (data | elements * size_of(kKey.output_dtype)) % bytes == 0;
}

// The same value for tokens first to end - 1 of the unit's row of the batch, this block's columns.
// For all threads; with producers for a warp.
__device__ void fill_output(const GdnPrefillScanParams& p, const Unit& unit, long long first,
                            long long end, float value) {
  constexpr int kThreads = producers(kKey) > 0 ? 32 : threads(kKey);
  const unsigned thread = producers(kKey) > 0 ? threadIdx.x % 32 : threadIdx.x;
  auto* rows =
      dev::row_at<kKey.output_dtype>(p.o, {unit.sequence.batch, 0, unit.h}) + unit.first_column;
  for (long long i = thread; i < (end - first) * kColumns; i += kThreads) {
    rows[(first + i / kColumns) * p.o.stride.token + i % kColumns] =
        dev::from_float<kKey.output_dtype>(value);
  }
}

// Where cu_seqlens is malformed all tokens are filled, a share of them by each slot of segments or
// sequence.
__device__ void fill_share(const GdnPrefillScanParams& p, const Unit& unit, int share) {
  const int shares = kKey.segments ? p.segments.slots : p.sequences;
  fill_output(p, unit, p.tokens * share / shares, p.tokens * (share + 1) / shares, dev::nan());
}

// The same value for the tokens of the unit's span that have outputs.
__device__ void fill_span(const GdnPrefillScanParams& p, const Unit& unit, float value) {
  const Span& span = unit.span;
  const long long first = unit.sequence.first;
  fill_output(p, unit, first + tokens_before(unit, span.begin),
              first + tokens_before(unit, span.end), value);
}

// The state that the sequence starts from.  Left alone, zero, where that is none.
__device__ void load_state(State& state, const GdnPrefillScanParams& p, long long slot,
                           const Unit& unit) {
  if (p.has_initial.data != nullptr && !dev::load_index<DType::kBool>(p.has_initial, unit.n)) {
    return;
  }
  state.load<kKey.states.dtype>(dev::matrix_at<kKey.states.dtype>(p.states.read, slot, unit.h),
                                warp_column(unit));
}
__device__ void store_state(State& state, const WrittenStates& states, long long slot,
                            const Unit& unit) {
  state.store<kKey.states.dtype>(dev::matrix_at<kKey.states.dtype>(states, slot, unit.h),
                                 warp_column(unit));
}

// Checkpoints of the sequence in front of a chunk, but for those at offsets.
__device__ int checkpoints_before(const GdnPrefillScanParams& p, int chunk) {
  if constexpr (kKey.checkpoints == Checkpoints::kNone || dev::kAtOffsets<kKey>) return 0;
  const int token = chunk * kChunk;
  const int rest = kKey.checkpoints == Checkpoints::kBefore ? p.checkpoint_every - 1 : 0;
  return (token + rest) / p.checkpoint_every;
}

// Where the state goes that a run ends with, and, with segments, who is told or waited for.  Found
// before the run, which has no registers for what leads there, and kept in shared memory.
struct Destination {
  char* state = nullptr;  // null: nowhere
  unsigned* counter = nullptr;
};
struct Kept {
  Destination destination;
  long long end;  // of the unit's span
};
// With checkpoints at offsets: which they are, and of which states.
struct alignas(8) KeptOffsets {
  int from, to;  // as CheckpointRows
  int n, h, first_column;
};
static_assert(sizeof(KeptOffsets) == offset_bytes(kKey) || !dev::kAtOffsets<kKey>);
static_assert(sizeof(Kept) + offset_bytes(kKey) + plan_bytes(kKey) + step_bytes(kKey) ==
              kept_bytes(kKey));

__device__ Kept& kept() {
  return *reinterpret_cast<Kept*>(shared + shared_bytes(kKey) - sizeof(Kept));
}
// Read again at every chunk.
__device__ volatile KeptOffsets& kept_offsets() {
  return *reinterpret_cast<volatile KeptOffsets*>(shared + shared_bytes(kKey) - sizeof(Kept) -
                                                  offset_bytes(kKey));
}
__device__ void keep(const Destination& to, const Unit& unit, const dev::CheckpointRows& rows) {
  if (threadIdx.x == 0) kept() = {to, unit.span.end};
  if (dev::kAtOffsets<kKey> && threadIdx.x == 0) {
    volatile KeptOffsets& offsets = kept_offsets();
    offsets.from = rows.from;
    offsets.to = rows.to;
    offsets.n = static_cast<int>(unit.n);
    offsets.h = unit.h;
    offsets.first_column = unit.first_column;
  }
  // Orders it before its reading.
  __syncthreads();
}

// f32 operands and a long key_dim take all registers.
constexpr bool kIsTight = kKey.dtype == DType::kF32 && kKey.key_dim > 128;
__device__ int end_of_span(const Unit& unit) {
  if constexpr (!kIsTight) return unit.span.end;
  return static_cast<int>(static_cast<volatile Kept&>(kept()).end);
}

// Whether the run of a transition may end behind this chunk, and not at `end`: nothing is left of
// the identity, which the span began with.  Asked every few chunks.  For the threads that compute.
constexpr int kForgetEvery = 8;
constexpr float kForgottenElement = 0x1p-24f;
__device__ bool forgets(const State& state, const GdnPrefillScanParams& p, const Unit& unit,
                        int chunk, int end) {
  if ((chunk - unit.span.first) % kForgetEvery != kForgetEvery - 1) return false;
  if (!p.segments.step.may_forget || chunk + 1 >= end) return false;
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    dev::for_each_element(
        [&](int r, int c, int j) { largest = fmaxf(largest, fabsf(state.tiles[k].x[r][c][j])); });
  }
  // Asks all of them.
  int is_left = !(largest < kForgottenElement);
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %0, 0; barrier.cta.red.or.pred p, 1, %1, p; "
      "selp.s32 %0, 1, 0, p;}"
      : "+r"(is_left)
      : "n"(kComputing)
      : "memory");
  return is_left == 0;
}

__device__ Destination destination_of_sequence(const GdnPrefillScanParams& p, const Unit& unit,
                                               const dev::Slots& slots) {
  if (!kKey.states.store || !slots.store) return {};
  auto* state = dev::matrix_at<kKey.states.dtype>(p.states.written, slots.write, unit.h);
  return {.state = reinterpret_cast<char*>(state)};
}

__device__ void store_sequence_state(State& state, const Destination& to, const Unit& unit) {
  // warp_column(), but not kept since the run's start.
  const int column = unit.first_column + dev::ThisThreadInLoop::number() / 32 * 16;
  state.store<kKey.states.dtype>(dev::as<kKey.states.dtype>(static_cast<void*>(to.state)), column);
}

// Of those at offsets the one behind `tokens` tokens.  A store within the loop would have the
// chunks' registers spill.
__device__ void store_checkpoint_at(State& state, const GdnPrefillScanParams& p, int tokens) {
  const int n = kept_offsets().n;
  long long slot = -1;
#pragma unroll 1
  for (int i = 0; i < p.checkpoint_slots.count; ++i) {
    const dev::CheckpointAt at = dev::checkpoint_at<kKey>(p, n, i);
    if (at.tokens == tokens) slot = at.slot;
  }
  if (slot < 0) return;
  const int column = kept_offsets().first_column + dev::ThisThreadInLoop::number() / 32 * 16;
  state.store<kKey.states.dtype>(
      dev::matrix_at<kKey.states.dtype>(p.checkpoints, slot, kept_offsets().h), column);
}

// Of a chunk whose first token is `token`.
__device__ void store_checkpoint_before(State& state, const GdnPrefillScanParams& p,
                                        const Unit& unit, int token, long long* checkpoint) {
  if constexpr (kKey.checkpoints == Checkpoints::kBefore) {
    if (token % p.checkpoint_every == 0) {
      store_state(state, p.checkpoints, (*checkpoint)++, unit);
    }
  }
}
__device__ void store_checkpoint_after(State& state, const GdnPrefillScanParams& p,
                                       const Unit& unit, int token, long long* checkpoint) {
  if constexpr (kKey.checkpoints == Checkpoints::kAfter) {
    if ((token + kChunk) % p.checkpoint_every == 0 && token + kChunk <= unit.sequence.tokens) {
      store_state(state, p.checkpoints, (*checkpoint)++, unit);
    }
  } else if constexpr (dev::kAtOffsets<kKey>) {
    // All fit, so none lies inside a chunk, or behind the sequence's tokens.
    const int tokens = token + kChunk;
    if (kept_offsets().from <= tokens && tokens <= kept_offsets().to) {
      store_checkpoint_at(state, p, tokens);
    }
  }
}

}  // namespace
