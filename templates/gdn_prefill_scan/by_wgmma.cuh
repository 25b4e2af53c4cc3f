// The chunks of a unit by wgmma: the block is one warpgroup, and the copy engine brings the chunks.
// Part of gdn_prefill_scan.cu.
//
// A stage of shared memory is filled by the engine, read by a chunk's products, and takes the
// chunk's outputs where its values were, on their way to global memory.  The n-th chunk is that of
// the unit's span.
//
// Whether the engine can read the tensors is a field of the key: a branch around the code for those
// that it cannot read costs every chunk 20 to 40 cycles.
#pragma once

#include "common/copy.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "gdn_prefill_scan/chunk.cuh"

namespace {

constexpr bool kEngine = !kKey.threads_copy;

using SwizzledKeys = Layout<true>::Keys;
using SwizzledValues = Layout<true>::Values;

// Stages take turns: the n-th chunk is in stage n % stages.
__device__ unsigned stage_at(int stage) {
  return dev::shared_address(shared) + stage * stage_bytes(kKey);
}
// Of a chunk's record the matrices are in the stage, whole, column of tiles by column, the last one
// first, with zeros above the diagonal.  What is behind them is behind the stages.
constexpr int kTile = 16 * 16 * 2;
constexpr int kMatrix = kTokens * kTokens * kTile;
__device__ unsigned factors_at(int stage) {
  return stage_at(kKey.stages) + stage * stage_factor_bytes(kKey);
}
// Of the copies to a stage.
__device__ unsigned barrier_at(int stage) { return factors_at(kKey.stages) + stage * 8; }

// Whose turn it is.
struct Turn {
  int stage = 0;
  unsigned parity = 0;  // of the phase of the stage's barrier

  __device__ void pass() {
    if (++stage == kKey.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  // The stage of the last chunk, which takes the next copies.
  __device__ int last() const { return (stage == 0 ? kKey.stages : stage) - 1; }
};

// Where the unit's chunks and outputs lie, for which the run has no registers: in shared memory.
struct Plan {
  int token, row;                           // of the sequence's first token in the tensors
  int q_head, k_head, v_head;               // of each tensor
  int head;                                 // of o
  int column;                               // of v and o, the block's first
  const char* record;                       // of the sequence's first chunk
  dev::Storage<kKey.output_dtype>* output;  // for the sequence's first token, the block's columns
};
static_assert(!kKey.wgmma || sizeof(Plan) == plan_bytes(kKey));

__device__ Plan& plan() {
  return *reinterpret_cast<Plan*>(shared + shared_bytes(kKey) - kept_bytes(kKey));
}

__device__ Plan plan_of(const GdnPrefillScanParams& p, const Unit& unit) {
  const dev::Sequence& sequence = unit.sequence;
  return {.token = static_cast<int>(sequence.first),
          .row = static_cast<int>(sequence.batch),
          .q_head = unit.h / p.q.group,
          .k_head = unit.h / p.k.group,
          .v_head = unit.h / p.v.group,
          .head = unit.h,
          .column = unit.first_column,
          .record = record_of(p, unit, 0),
          .output = dev::row_at<kKey.output_dtype>(p.o, {sequence.batch, sequence.first, unit.h}) +
                    unit.first_column};
}

__device__ const char* record_of_chunk(const GdnPrefillScanParams& p, int chunk) {
  return plan().record + static_cast<long long>(chunk) * p.heads * kRecord.bytes;
}

// Where column `column` of a matrix in a stage starts.
__device__ constexpr int column_place(int column) {
  return (kTokens - 1 - column) * kTokens * kTile;
}

// Calls copy(place in the matrix, byte of the record's matrix, bytes) for each run of tiles that
// has no zeros in it.  The first column has none, so it goes with the second.
template <class Function>
__device__ void for_each_run(Function copy) {
#pragma unroll
  for (int column = kTokens - 1; column >= (kTokens > 1 ? 1 : 0); --column) {
    const int tiles = kTokens - column + (column == 1 ? kTokens : 0);
    copy(column_place(column) + column * kTile, record_tile(column, column, kChunk) * kTile,
         tiles * kTile);
  }
}

// What a chunk's copies bring besides k and its record.
struct Brought {
  bool queries;
  bool values;
};

// The warp that starts the copies of values, and the writing of outputs, which come from the same
// place.
constexpr unsigned kValueWarp = 2;

// Starts copying a chunk to a stage by the engine.  Each copy takes a while to start, so every warp
// has some.
__device__ void copy_by_engine(const GdnPrefillScanParams& p, int chunk, int to, Brought brought) {
  if (!dev::is_elected()) return;
  const unsigned thread = dev::ThisThreadInLoop::number();  // not its warp: no table of branches
  const Plan& at = plan();
  const unsigned stage = stage_at(to);
  const unsigned barrier = barrier_at(to);
  const int token = at.token + chunk * kChunk;
  constexpr int kRows = kChunk * kKey.key_dim * kSize;
  if (thread < 32) {
    dev::expect_bytes(barrier, kRows + (brought.queries ? kRows : 0) +
                                   (brought.values ? kChunk * kColumns * kSize : 0) +
                                   kRecord.bytes);
#pragma unroll
    for (int b = 0; b < kKey.key_dim / SwizzledKeys::kColumns; ++b) {
      dev::copy_box(stage + b * SwizzledKeys::kBlock, p.k_map, b * SwizzledKeys::kColumns,
                    at.k_head, token, at.row, barrier);
    }
  } else if (thread < 64) {
    if (!brought.queries) return;
#pragma unroll
    for (int b = 0; b < kKey.key_dim / SwizzledKeys::kColumns; ++b) {
      dev::copy_box(stage + kQueries + b * SwizzledKeys::kBlock, p.q_map,
                    b * SwizzledKeys::kColumns, at.q_head, token, at.row, barrier);
    }
  } else if (thread < 32 * (kValueWarp + 1)) {
    dev::copy_run(factors_at(to), record_of_chunk(p, chunk) + kRecord.k_in,
                  stage_factor_bytes(kKey), barrier);
    if (!brought.values) return;
    dev::wait_for_boxes_read();  // the outputs of the stage's last chunk
    dev::copy_box(stage + kValues, p.v_map, at.column, at.v_head, token, at.row, barrier);
  } else {
    const char* record = record_of_chunk(p, chunk);
    for_each_run([&](int place, int from, int bytes) {
      dev::copy_run(stage + kRecordAt + place, record + from, bytes, barrier);
      dev::copy_run(stage + kRecordAt + kMatrix + place, record + kRecord.attention + from, bytes,
                    barrier);
    });
  }
}

// A row of a head of the tensor, from `column` on.
__device__ const dev::Storage<kKey.dtype>* row_of_head(const InputRows<TokenStrides>& rows, int row,
                                                       int token, int head, int column) {
  return dev::as<kKey.dtype>(rows.data) + dev::offset_of(rows.stride, {row, token, head}) + column;
}

// The same for tensors that the engine cannot read, with all threads.  `left`: tokens of the
// sequence from the chunk on.
__device__ void copy_by_threads(const GdnPrefillScanParams& p, int chunk, int to, int left,
                                Brought brought) {
  constexpr int kThreads = threads(kKey);
  using KeyRows = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim, SwizzledKeys, kThreads,
                                 dev::ThisThreadInLoop>;
  using ValueRows =
      dev::RowCopier<kKey.dtype, kChunk, kColumns, SwizzledValues, kThreads, dev::ThisThreadInLoop>;
  const Plan at = plan();
  const unsigned thread = dev::ThisThreadInLoop::number();
  const unsigned stage = stage_at(to);
  const int token = at.token + chunk * kChunk;
  KeyRows(p.k, row_of_head(p.k, at.row, token, at.k_head, 0)).copy_next(stage, left, p.k);
  if (brought.queries) {
    KeyRows(p.q, row_of_head(p.q, at.row, token, at.q_head, 0))
        .copy_next(stage + kQueries, left, p.q);
  }
  if (brought.values) {
    ValueRows(p.v, row_of_head(p.v, at.row, token, at.v_head, at.column))
        .copy_next(stage + kValues, left, p.v);
  }
  const char* record = record_of_chunk(p, chunk);
  for_each_run([&](int place, int from, int bytes) {
    for (int i = thread * 16; i < bytes; i += kThreads * 16) {
      const unsigned piece = stage + kRecordAt + place + i;
      dev::copy_16(piece, record + from + i);
      dev::copy_16(piece + kMatrix, record + kRecord.attention + from + i);
    }
  });
  dev::copy_bytes<stage_factor_bytes(kKey), kThreads>(factors_at(to), record + kRecord.k_in);
}

// Starts copying a chunk to a stage, if it is one of the span.  For all threads.
__device__ void start_copies(const GdnPrefillScanParams& p, const Unit& unit, int chunk, int to) {
  const bool is_there = chunk < unit.span.end;
  const Brought brought{.queries = !kKey.parts || chunk >= unit.span.begin,
                        .values = !kKey.parts || unit.role != Role::kTransition};
  if constexpr (kEngine) {
    if (is_there) copy_by_engine(p, chunk, to, brought);
  } else {
    const int left = static_cast<int>(unit.sequence.tokens) - chunk * kChunk;
    if (is_there) copy_by_threads(p, chunk, to, left, brought);
    dev::commit_copies();  // also when the group is empty: groups are counted
  }
}

// Waits for the copies of the chunk whose turn it is, of this thread or of the engine.
__device__ void wait_for_copies(const Turn& turn) {
  if constexpr (kEngine) {
    dev::wait_for_phase(barrier_at(turn.stage), turn.parity);
  } else {
    dev::wait_copies<kKey.stages - 2>();
  }
}

// Zeros for the pieces of 16 bytes of rows `first` to kRows - 1.
template <class Rows, int kRows, int kPieces>
__device__ void clear_rows(unsigned address, int first) {
#pragma unroll 1  // rare: short code, so that the chunks' loop is near
  for (int i = first * kPieces + dev::ThisThreadInLoop::number(); i < kRows * kPieces;
       i += threads(kKey)) {
    dev::store_shared_zeros(address + Rows::at(i / kPieces, i % kPieces));
  }
}

// Zeros for the tokens behind a packed sequence: the engine has brought those of the next one.
__device__ void clear_tokens_from(unsigned stage, int left) {
  constexpr int kPieces = kKey.key_dim * kSize / 16;
  clear_rows<SwizzledKeys, kChunk, kPieces>(stage, left);
  clear_rows<SwizzledKeys, kChunk, kPieces>(stage + kQueries, left);
  clear_rows<SwizzledValues, kChunk, kColumns * kSize / 16>(stage + kValues, left);
}

// This warp's columns of the values of 16 tokens, transposed.
template <DType kDType = kKey.dtype>
__device__ dev::Tile<kDType> values_at(unsigned values, int i) {
  const int lane = threadIdx.x % 32;
  dev::Tile<kDType> tile;
  dev::load_transposed_matrices(
      tile.x[0][0], tile.x[0][1], tile.x[1][0], tile.x[1][1],
      values + SwizzledValues::at(16 * i + lane % 16, threadIdx.x / 32 * 2 + lane / 16));
  return tile;
}

// sums (+)= (M X)^T for a lower triangular matrix M in a stage and X^T = x.
template <bool kAdd>
__device__ void multiply_lower(dev::Acc (&sums)[kTokens], const Tile (&x)[kTokens],
                               unsigned matrix) {
  dev::multiply<kKey.dtype, false, kAdd>(sums, x[0], dev::record_tiles(matrix, column_place(0)));
#pragma unroll
  for (int column = 1; column < kTokens; ++column) {
    dev::multiply<kKey.dtype, false, true>(sums, x[column],
                                           dev::record_tiles(matrix, column_place(column)));
  }
}

// Puts this warp's outputs where its values were.
template <DType kOutput = kKey.output_dtype>
__device__ void stage_outputs(const dev::Acc (&o)[kTokens], unsigned stage) {
  if constexpr (size_of(kOutput) == 2) {
    const int lane = threadIdx.x % 32;
    const int piece = threadIdx.x / 32 * 2 + lane / 16;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const auto tile = dev::round_to<kOutput>(o[i]);
      dev::store_transposed_matrices(
          stage + kValues + SwizzledValues::at(16 * i + lane % 16, piece), tile.x[0][0],
          tile.x[0][1], tile.x[1][0], tile.x[1][1]);
    }
  }
}

// Starts writing the outputs of a chunk, from its stage, by the engine.
__device__ void write_by_engine(const GdnPrefillScanParams& p, int chunk, int stage) {
  if (dev::ThisThreadInLoop::number() / 32 != kValueWarp || !dev::is_elected()) return;
  const Plan& at = plan();
  dev::write_box(p.o_map, at.column, at.head, at.token + chunk * kChunk, at.row,
                 stage_at(stage) + kValues);
}

// The chunk in stage `in`, which is at `stage`.  `at_first` and `at_last` are called while the
// first products run and the last ones, `write` as soon as `o` has the outputs.
template <bool kOutputs, class First, class Last, class Write>
__device__ void run_chunk_by_wgmma(State& state, dev::Acc (&o)[kTokens], unsigned stage, int in,
                                   First at_first, Last at_last, Write write) {
  const unsigned record = factors_at(in) - kRecord.k_in;
  // K S, and Q S behind it; meanwhile S decays.
  dev::Acc products[kOutputs ? 2 * kTokens : kTokens];
  Tile s[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) s[k] = dev::round_to<kKey.dtype>(state.tiles[k]);
  dev::start_products();
  dev::multiply<kKey.dtype, false, false>(products, s[0], SwizzledKeys::by_rows(stage, 0));
#pragma unroll
  for (int k = 1; k < kKeys; ++k) {
    dev::multiply<kKey.dtype, false, true>(products, s[k], SwizzledKeys::by_rows(stage, k));
  }
  dev::commit_products();
  at_first();
  scale_state(state, record + kRecord.decay);
  dev::finish_products<0>(products);

  // U = T V', and meanwhile q_in Q S.
  Tile values[kTokens];
  correct_values(values, products, record, [&](int i) { return values_at(stage + kValues, i); });
  dev::Acc u[kTokens];
  dev::start_products();
  multiply_lower<false>(u, values, stage + kRecordAt);
  dev::commit_products();
  if constexpr (kOutputs) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      o[i] = products[kTokens + i];
      scale_columns(o[i], Factors(record, kRecord.q_in, i));
    }
  }
  dev::finish_products<0>(u);

  // O += P U, then S += K^T (v_out U), which runs while outputs are put down.
  Tile scaled[kTokens];
  round_values(values, scaled, u, record);
  dev::start_products();
  if constexpr (kOutputs) {
    multiply_lower<true>(o, values, stage + kRecordAt + kMatrix);
    dev::commit_products();
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    dev::multiply<kKey.dtype, true, true>(state.tiles, scaled[i],
                                          SwizzledKeys::by_columns(stage, i));
  }
  dev::commit_products();
  at_last();
  if constexpr (kOutputs) {
    dev::finish_products<1>(o);
    write();
  }
  dev::finish_products<0>(state.tiles);
}

// Carries the state through chunks first ... end - 1 of the unit's span, all of which have outputs
// or none.  `checkpoint`: where the first one goes.
template <bool kOutputs>
__device__ void run_chunks_by_wgmma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                    int first, int end, Turn* turn, long long checkpoint) {
  constexpr bool kWrites = kOutputs && kEngine && size_of(kKey.output_dtype) == 2;
  const bool even = output_rows_at(p, 4);
  const int tokens = static_cast<int>(unit.sequence.tokens);
  dev::Acc o[kTokens]{};
  const auto write_by_threads = [&](int token) {
    Output(plan().output + token * p.o.stride.token + threadIdx.x / 32 * 16, even)
        .write_next(o, p.o.stride.token, tokens - token);
  };
  for (int chunk = first; chunk < end; ++chunk) {
    const int token = chunk * kChunk;
    // The engine neither stops reading nor writing behind a packed sequence's last token.
    const bool has_tail = kEngine && kKey.varlen && tokens - token < kChunk;
    // Where threads copy, that would leave too few registers.
    const unsigned stage =
        kEngine ? dev::uniform_address(stage_at(turn->stage)) : stage_at(turn->stage);
    wait_for_copies(*turn);
    dev::finish_products<0>(state.tiles);  // none runs; the compiler does not see that over a loop
    if (!kEngine || has_tail) {
      if (kEngine) clear_tokens_from(stage_at(turn->stage), tokens - token);
      dev::show_to_engines();
      // Orders the zeros, or the copies of all threads, before the products.
      __syncthreads();
    }
    if constexpr (kOutputs) store_checkpoint_before(state, p, unit, token, &checkpoint);
    const auto at_first = [&] {
      if constexpr (!kEngine) return;
      // This thread's accesses to the last chunk's stage, its outputs too, before the engine's.
      dev::show_to_engines();
      // Orders them, and all warps' products with that stage, for everybody.
      __syncthreads();
      if (kWrites && chunk > first) write_by_engine(p, chunk - 1, turn->last());
    };
    const auto at_last = [&] { start_copies(p, unit, chunk + kKey.stages - 1, turn->last()); };
    run_chunk_by_wgmma<kOutputs>(state, o, stage, turn->stage, at_first, at_last, [&] {
      if constexpr (kWrites) {
        if (!has_tail) stage_outputs(o, stage_at(turn->stage));
      } else {
        write_by_threads(token);
      }
    });
    if constexpr (kOutputs) store_checkpoint_after(state, p, unit, token, &checkpoint);
    turn->pass();
  }
  if (kWrites && first < end) {
    if (!kKey.varlen || tokens >= end * kChunk) {
      dev::show_to_engines();
      // Orders the last chunk's outputs before the engine reads them.
      __syncthreads();
      write_by_engine(p, end - 1, turn->last());
    } else {
      write_by_threads((end - 1) * kChunk);
    }
  }
  // Shared memory stays until all outputs have been read from it.
  if (kWrites) dev::wait_for_boxes_read();
}

// Carries the state through the unit's span.  A template, so that keys without wgmma do not compile
// it.
template <bool kWgmma = kKey.wgmma>
__device__ void run_span_by_wgmma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                  long long checkpoint) {
  const Span& span = unit.span;
  if (threadIdx.x == 0) {
    plan() = plan_of(p, unit);
    for (int i = 0; i < kKey.stages; ++i) dev::set_up_barrier(barrier_at(i));
  }
  // Above the diagonals, and for D the values.
  for (int stage = 0; stage < kKey.stages; ++stage) {
    for (int i = threadIdx.x * 16; i < 2 * kMatrix; i += threads(kKey) * 16) {
      dev::store_shared_zeros(stage_at(stage) + kRecordAt + i);
    }
    if (kKey.parts && unit.role == Role::kTransition) {
      clear_rows<SwizzledValues, kChunk, kColumns * kSize / 16>(stage_at(stage) + kValues, 0);
    }
  }
  // Orders these, and what the block has done with shared memory before, before the engine's copies
  // and the products.
  dev::show_to_engines();
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kKey.stages - 1; ++n) start_copies(p, unit, span.first + n, n);
  Turn turn;
  if constexpr (kKey.parts) {
    run_chunks_by_wgmma<false>(state, p, unit, span.first, span.begin, &turn, 0);
  }
  run_chunks_by_wgmma<true>(state, p, unit, span.begin, span.end, &turn, checkpoint);
}

}  // namespace
