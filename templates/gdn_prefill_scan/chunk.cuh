// What the scan computes on one chunk, and the copies that bring it.  Part of gdn_prefill_scan.cu,
// which has defined kKey.
#pragma once

#include "common/copy.cuh"
#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/output.cuh"
#include "common/schedule.cuh"
#include "common/sequences.cuh"
#include "common/shared.cuh"
#include "common/state.cuh"
#include "common/tile.cuh"
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
constexpr int kRow = padded_row(kKey.key_dim, kKey.dtype);
constexpr int kValueRow = padded_row(kColumns, kKey.dtype);
constexpr ChunkRecord kRecord = chunk_record(kChunk, kKey.dtype);

// Byte offsets in a stage of shared memory.
constexpr int kQueries = kChunk * kRow * kSize;
constexpr int kValues = 2 * kQueries;
constexpr int kRecordAt = kValues + kChunk * kValueRow * kSize;

using Tile = dev::Tile<kKey.dtype>;
using State = dev::State<kKey.states.layout, kKey.key_dim, kKey.value_dim>;
using Output = dev::OutputWriter<kKey.output_dtype, kChunk>;

extern __shared__ __align__(16) unsigned char shared[];

// Chunks first ... end - 1 of a sequence, of which those from `begin` on have outputs.  Only parts
// (parts.cuh) have others.
struct Span {
  int first, begin, end;
};

// What a block finds: outputs, or what parts leave for each other.
enum class Role {
  kOutputs,
  kValues,      // N
  kTransition,  // D: from the identity, v taken as zero
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

// The record of a chunk of the unit's sequence and head.
__device__ const char* record_of(const GdnPrefillScanParams& p, const Unit& unit, int chunk) {
  return static_cast<const char*>(p.records) +
         ((unit.sequence.slot + chunk) * p.heads + unit.h) * kRecord.bytes;
}

__device__ unsigned stage_of(int chunk) {
  return dev::shared_address(shared) + chunk % kKey.stages * stage_bytes(kKey);
}

// Copies the unit's chunks, one after the other.  For one warp: the others' arithmetic must not
// wait until the addresses of copies have been read.
class ChunkCopier {
 public:
  __device__ ChunkCopier(const GdnPrefillScanParams& p, const Unit& unit)
      : k_(p.k, first_row(p.k, unit)),
        q_(p.q, first_row(p.q, unit)),
        v_(p.v, first_row(p.v, unit) + unit.first_column),
        record_(record_of(p, unit, unit.span.first)) {}

  // Starts copying the next chunk into a stage.  `chunk`: which it is; none from the span's end on.
  // kOutputs: it has some.
  template <bool kOutputs>
  __device__ void copy_next(const GdnPrefillScanParams& p, const Unit& unit, int chunk) {
    if (chunk < unit.span.end) {
      const unsigned stage = stage_of(chunk);
      const int left = static_cast<int>(unit.sequence.tokens) - chunk * kChunk;
      k_.copy_next(stage, left, p.k);
      if (kKey.parts && !kOutputs && chunk < unit.span.begin) {
        q_.skip(p.q);  // there are no outputs
      } else {
        q_.copy_next(stage + kQueries, left, p.q);
      }
      v_.copy_next(stage + kValues, !kKey.parts || unit.role != Role::kTransition ? left : 0, p.v);
      dev::copy_bytes<kRecord.bytes, 32>(stage + kRecordAt, record_);
      record_ += static_cast<long long>(p.heads) * kRecord.bytes;
    }
    dev::commit_copies();  // also when the group is empty: groups are counted
  }

 private:
  using KeyRows = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim, kRow, 32>;
  using ValueRows = dev::RowCopier<kKey.dtype, kChunk, kColumns, kValueRow, 32>;

  static __device__ const dev::Storage<kKey.dtype>* first_row(const InputRows<TokenStrides>& rows,
                                                              const Unit& unit) {
    const long long token = unit.sequence.first + unit.span.first * kChunk;
    return dev::row_at<kKey.dtype>(rows, {unit.sequence.batch, token, unit.h});
  }

  KeyRows k_;
  KeyRows q_;
  ValueRows v_;
  const char* record_;
};

// Of a record's vector at byte `vector`, the factors of this lane's tokens in tile i.
struct Factors {
  float x[2][2];  // [column half][column]
  __device__ Factors(unsigned stage, int vector, int i) {
    const unsigned at = stage + kRecordAt + vector + (16 * i + dev::tile_column()) * 4;
#pragma unroll
    for (int c = 0; c < 2; ++c) dev::load_shared(x[c], at + 32 * c);
  }
};

// acc[i][j] *= factors[j].
__device__ void scale_columns(dev::Acc& acc, const Factors& factors) {
  dev::for_each_element([&](int r, int c, int j) { acc.x[r][c][j] *= factors.x[c][j]; });
}

// For each step along key_dim: with f32 operands and a long key_dim, the loads of all steps
// together take more registers than there are.
__device__ void stop_loading_ahead(unsigned stage) {
  constexpr bool kTooLong = kKey.dtype == DType::kF32 && kKey.key_dim > 128;
  dev::stop_loading_ahead(kTooLong && stage == 16);  // no stage starts there
}

// (K S)^T, and (Q S)^T where there are outputs.
template <bool kOutputs>
__device__ void read_state(dev::Acc (&ks)[kTokens], dev::Acc (&qs)[kTokens], const State& state,
                           unsigned stage) {
  const dev::SharedMatrix<kKey.dtype, kRow> keys{stage};
  const dev::SharedMatrix<kKey.dtype, kRow> queries{stage + kQueries};
#pragma unroll
  for (int i = 0; i < kTokens; ++i) ks[i] = qs[i] = {};
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    stop_loading_ahead(stage);
    const Tile s = dev::round_to<kKey.dtype>(state.tiles[k]);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      dev::mma(ks[i], s, keys.load(16 * i, 16 * k));
      if constexpr (kOutputs) dev::mma(qs[i], s, queries.load(16 * i, 16 * k));
    }
  }
}

// V'^T from (K S)^T.
__device__ void correct_values(Tile (&values)[kTokens], const dev::Acc (&ks)[kTokens],
                               unsigned stage) {
  const dev::SharedMatrix<kKey.dtype, kValueRow> given{stage + kValues};
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    dev::Acc value = dev::to_float(given.load_transposed(16 * i, threadIdx.x / 32 * 16));
    const Factors k_in(stage, kRecord.k_in, i);
    const dev::Acc& recalled = ks[i];
    dev::for_each_element([&](int r, int c, int j) {
      value.x[r][c][j] = fmaf(-k_in.x[c][j], recalled.x[r][c][j], value.x[r][c][j]);
    });
    values[i] = dev::round_to<kKey.dtype>(value);
  }
}

// sums += (M X)^T for the record's lower triangular matrix M at byte `matrix` and X^T = x.
__device__ void add_lower_product(dev::Acc (&sums)[kTokens], const Tile (&x)[kTokens],
                                  unsigned stage, int matrix) {
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      dev::mma(sums[i], x[j],
               dev::load_tile<kKey.dtype>(stage + kRecordAt + matrix, lower_tile(i, j)));
    }
  }
}

// Rounds x, once as it is and once times v_out: what the output and the state take.
__device__ void round_values(Tile (&plain)[kTokens], Tile (&scaled)[kTokens],
                             dev::Acc (&x)[kTokens], unsigned stage) {
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    plain[i] = dev::round_to<kKey.dtype>(x[i]);
    scale_columns(x[i], Factors(stage, kRecord.v_out, i));
    scaled[i] = dev::round_to<kKey.dtype>(x[i]);
  }
}

// f32: the tensor core's own sum would cut off the state's last bits, chunk after chunk.  For
// 16-bit operands these do not matter, and registers do.
constexpr bool kSumApart = kKey.dtype == DType::kF32;

__device__ void add(dev::Acc& sum, const dev::Acc& x) {
  dev::for_each_element([&](int r, int c, int j) { sum.x[r][c][j] += x.x[r][c][j]; });
}

// S <- decay S + K^T values.
__device__ void update_state(State& state, const Tile (&values)[kTokens], unsigned stage) {
  float decay;
  dev::load_shared(decay, stage + kRecordAt + kRecord.decay);
  const dev::SharedMatrix<kKey.dtype, kRow> keys{stage};
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    stop_loading_ahead(stage);
    float(&s)[2][2][2] = state.tiles[k].x;
    dev::Acc added{};
    dev::for_each_element([&](int r, int c, int j) { s[r][c][j] *= decay; });
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      dev::mma(kSumApart ? added : state.tiles[k], values[i], keys.load_transposed(16 * i, 16 * k));
    }
    if constexpr (kSumApart) add(state.tiles[k], added);
  }
}

__device__ Output output_of(const GdnPrefillScanParams& p, const Unit& unit) {
  const TokenStrides& stride = p.o.stride;
  const bool even = reinterpret_cast<unsigned long long>(p.o.data) % 4 == 0 &&
                    ((stride.batch | stride.token | stride.head) & 1) == 0;
  const long long token = unit.sequence.first + unit.span.begin * kChunk;
  auto* row = dev::row_at<kKey.output_dtype>(p.o, {unit.sequence.batch, token, unit.h});
  return Output(row + warp_column(unit), even);
}

// The same value for tokens first to end - 1 of the unit's row of the batch, this block's columns.
__device__ void fill_output(const GdnPrefillScanParams& p, const Unit& unit, long long first,
                            long long end, float value) {
  auto* rows =
      dev::row_at<kKey.output_dtype>(p.o, {unit.sequence.batch, 0, unit.h}) + unit.first_column;
  for (long long i = threadIdx.x; i < (end - first) * kColumns; i += threads(kKey)) {
    rows[(first + i / kColumns) * p.o.stride.token + i % kColumns] =
        dev::from_float<kKey.output_dtype>(value);
  }
}

// The same for the tokens of the unit's span that have outputs.
__device__ void fill_span(const GdnPrefillScanParams& p, const Unit& unit, float value) {
  const Span& span = unit.span;
  const long long first = unit.sequence.first;
  fill_output(p, unit, first + tokens_before(unit, span.begin),
              first + tokens_before(unit, span.end), value);
}

// The rows of a sequence's checkpoints.
struct CheckpointRows {
  long long first = 0;
  bool fit = true;
};

__device__ CheckpointRows checkpoint_rows(const GdnPrefillScanParams& p, const Unit& unit) {
  if constexpr (kKey.checkpoints == Checkpoints::kNone) return {};
  const long long spans = unit.sequence.tokens / p.checkpoint_every;
  const bool part = unit.sequence.tokens % p.checkpoint_every != 0;
  const long long count = spans + (kKey.checkpoints == Checkpoints::kBefore && part ? 1 : 0);
  if constexpr (!kKey.varlen) return {.first = unit.n * count};
  const long long first = dev::load_index<kKey.cu_seqlens_dtype>(p.checkpoint_cu_starts, unit.n);
  const long long end = dev::load_index<kKey.cu_seqlens_dtype>(p.checkpoint_cu_starts, unit.n + 1);
  return {.first = first, .fit = first >= 0 && end <= p.checkpoints.slots && count <= end - first};
}

__device__ void load_state(State& state, const GdnPrefillScanParams& p, long long slot,
                           const Unit& unit) {
  state.load<kKey.states.dtype>(dev::matrix_at<kKey.states.dtype>(p.states.read, slot, unit.h),
                                warp_column(unit));
}
__device__ void store_state(State& state, const WrittenStates& states, long long slot,
                            const Unit& unit) {
  state.store<kKey.states.dtype>(dev::matrix_at<kKey.states.dtype>(states, slot, unit.h),
                                 warp_column(unit));
}

// One chunk, of whose tokens `left` are there.
template <bool kOutputs = true>
__device__ void run_chunk(State& state, const GdnPrefillScanParams& p, Output& output,
                          unsigned stage, int left) {
  dev::Acc ks[kTokens];
  dev::Acc o[kTokens];
  read_state<kOutputs>(ks, o, state, stage);
  Tile values[kTokens];
  correct_values(values, ks, stage);
  dev::Acc u[kTokens] = {};
  add_lower_product(u, values, stage, 0);
  Tile scaled[kTokens];
  round_values(values, scaled, u, stage);
  // The state first: the next chunk waits for it.
  update_state(state, scaled, stage);
  if constexpr (kOutputs) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) scale_columns(o[i], Factors(stage, kRecord.q_in, i));
    add_lower_product(o, values, stage, kRecord.attention);
    output.write_next(o, p.o.stride.token, left);
  }
}

// Checkpoints of the sequence in front of a chunk.
__device__ int checkpoints_before(const GdnPrefillScanParams& p, int chunk) {
  if constexpr (kKey.checkpoints == Checkpoints::kNone) return 0;
  const int token = chunk * kChunk;
  const int rest = kKey.checkpoints == Checkpoints::kBefore ? p.checkpoint_every - 1 : 0;
  return (token + rest) / p.checkpoint_every;
}

// Carries the state through chunks first ... end - 1 of the unit's span, all of which have outputs
// or none; `copies`: the copying warp, which has no state.  `checkpoint`: where the first one goes.
// Every warp comes to the same barrier once for each chunk.
template <bool kOutputs>
__device__ void run_chunks(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                           ChunkCopier& copier, int first, int end, bool copies,
                           long long checkpoint) {
  Output output = output_of(p, unit);
  const int tokens = static_cast<int>(unit.sequence.tokens);
  for (int chunk = first; chunk < end; ++chunk) {
    if (copies) dev::wait_copies<kKey.stages - 2>();
    // Orders the copies of this chunk before its reading, and the last chunk's reading before the
    // copies into the stage that it leaves.
    __syncthreads();
    if (copies) {
      copier.copy_next<kOutputs>(p, unit, chunk + kKey.stages - 1);
      continue;
    }
    const int token = chunk * kChunk;
    if constexpr (kOutputs && kKey.checkpoints == Checkpoints::kBefore) {
      if (token % p.checkpoint_every == 0) store_state(state, p.checkpoints, checkpoint++, unit);
    }
    run_chunk<kOutputs>(state, p, output, stage_of(chunk), tokens - token);
    if constexpr (kOutputs && kKey.checkpoints == Checkpoints::kAfter) {
      if ((token + kChunk) % p.checkpoint_every == 0 && token + kChunk <= tokens) {
        store_state(state, p.checkpoints, checkpoint++, unit);
      }
    }
  }
}

// Carries the state through the unit's span.
__device__ void run_span(State& state, const GdnPrefillScanParams& p, const Unit& unit, bool copies,
                         long long checkpoint) {
  const Span& span = unit.span;
  ChunkCopier copier(p, unit);
  if (copies) {
#pragma unroll
    for (int i = 0; i < kKey.stages - 1; ++i) copier.copy_next<false>(p, unit, span.first + i);
  }
  if constexpr (kKey.parts) {
    run_chunks<false>(state, p, unit, copier, span.first, span.begin, copies, 0);
  }
  run_chunks<true>(state, p, unit, copier, span.begin, span.end, copies, checkpoint);
}

}  // namespace
