// The chunks of a unit by wgmma: one warpgroup computes, and one more warp has TMA
// bring the chunks and take the outputs away.  Part of gdn_prefill_scan.cu.
//
// A stage of shared memory is filled by TMA, read by a chunk's products, and takes the
// chunk's outputs where its values were, on their way to global memory.  Two barriers for each
// stage say that it is filled, and that all warps have left it.  The n-th chunk is that of the
// unit's span.
//
// Whether TMA can read the tensors is a field of the key: a branch around the code for those
// that it cannot read costs every chunk 20 to 40 cycles.
#pragma once

#include "common/copy.cuh"
#include "common/hopper/tma.cuh"
#include "common/hopper/wgmma.cuh"
#include "gdn_prefill_scan/chunk.cuh"

namespace {

constexpr bool kTma = !kKey.threads_copy;

using SwizzledKeys = Layout<true>::Keys;
using SwizzledUpdates = Layout<true>::Written;
using SwizzledValues = Layout<true>::Values;

// Stages take turns: the n-th chunk is in stage n % stages.
__device__ unsigned stage_at(int stage) {
  return dev::shared_address(shared) + stage * stage_bytes(kKey);
}
// Of a chunk's WY factors the matrices are in the stage, whole, column of tiles by column, the last
// one first, with zeros above the diagonal.  What is behind them is behind the stages.
constexpr int kTile = 16 * 16 * 2;
constexpr int kMatrix = kTokens * kTokens * kTile;
__device__ int factors_place(int stage) {
  return kKey.stages * stage_bytes(kKey) + stage * stage_factor_bytes(kKey);
}
__device__ unsigned factors_at(int stage) { return stage_at(0) + factors_place(stage); }
// What the producers work in.
__device__ unsigned char* producers_place() { return shared + factors_place(kKey.stages); }
// Of a stage: that it is filled, with producers that the gates are there too; that all warps have
// left it; and, with producers, that its WY factors are made, and that its values are there, for
// which producers need not wait.
__device__ unsigned filled_at(int stage) {
  constexpr int kBarriers = producers(kKey) > 0 ? 32 : 16;
  return factors_at(kKey.stages) + producer_bytes(kKey) + stage * kBarriers;
}
__device__ unsigned left_at(int stage) { return filled_at(stage) + 8; }
__device__ unsigned made_at(int stage) { return filled_at(stage) + 16; }
__device__ unsigned values_at(int stage) {
  return filled_at(stage) + (producers(kKey) > 0 ? 24 : 0);
}

// Whose turn it is.
struct Turn {
  static constexpr int kPlaces = kKey.stages;
  int stage = 0;
  unsigned parity = 0;  // of the phase of the stage's barriers

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
  const char* wy;                           // of the sequence's first chunk
  dev::Storage<kKey.output_dtype>* output;  // for the sequence's first token, the block's columns
};
static_assert(!kKey.wgmma || producers(kKey) > 0 || sizeof(Plan) == plan_bytes(kKey));

__device__ Plan& plan() {
  return *reinterpret_cast<Plan*>(shared + shared_bytes(kKey) - kept_bytes(kKey) +
                                  step_bytes(kKey));
}
// With context_parallel: whether the run ends with the chunk in this stage.
__device__ volatile unsigned& stops_at(int stage) {
  unsigned char* const at = shared + shared_bytes(kKey) - kept_bytes(kKey) + kKeptUnitBytes;
  return reinterpret_cast<unsigned*>(at)[stage];
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
          .wy = producers(kKey) > 0 ? nullptr : wy_of(p, unit, 0),
          .output = dev::row_at<kKey.output_dtype>(p.o, {sequence.batch, sequence.first, unit.h}) +
                    unit.first_column};
}

__device__ const char* wy_of_chunk(const GdnPrefillScanParams& p, const Plan& at, int chunk) {
  return at.wy + static_cast<long long>(chunk) * p.heads * kWyBytes;
}

// Where column `column` of a matrix in a stage starts.
__device__ constexpr int column_place(int column) {
  return (kTokens - 1 - column) * kTokens * kTile;
}

// Calls copy(place in the matrix, byte of the matrix in the WY factors, bytes) for each run of
// tiles that has no zeros in it.  The first column has none, so it goes with the second.
template <class Function>
__device__ void for_each_run(Function copy) {
#pragma unroll
  for (int column = kTokens - 1; column >= (kTokens > 1 ? 1 : 0); --column) {
    const int tiles = kTokens - column + (column == 1 ? kTokens : 0);
    copy(column_place(column) + column * kTile, wy_tile(column, column, kChunk) * kTile,
         tiles * kTile);
  }
}

// Of the chunk's rows over channels, of one matrix.
constexpr int kKeyRowsBytes = kChunk * kKey.key_dim * kSize;
// What the WY factors have behind matrices.
constexpr int kFactors = kChannels ? channel_factors().decay : kWy.k_in;

// Whether the outputs go by TMA.
constexpr bool kWrites = kTma && size_of(kKey.output_dtype) == 2;

// Whether the chunk has fewer tokens than others: TMA neither stops reading nor writing
// behind a packed sequence's last token.
__device__ bool is_tail(const Unit& unit, int chunk) {
  return kTma && kKey.varlen && static_cast<int>(unit.sequence.tokens) < (chunk + 1) * kChunk;
}
// The same of a chunk with so many of the sequence's tokens from its first one on.
__device__ bool is_tail(int left) { return kTma && kKey.varlen && left < kChunk; }

// Has TMA bring the span's chunks, and take away each one's outputs when all warps have left
// its stage, which the next copies then fill.  For one thread.
class TmaCopier {
 public:
  __device__ TmaCopier(const Unit& unit, const Plan& at)
      : at_(at), span_(unit.span), role_(unit.role) {}
  __device__ TmaCopier(const Unit& unit) : TmaCopier(unit, plan()) {}

  // The first chunks, to stages that nobody has used.
  __device__ void fill(const GdnPrefillScanParams& p) const {
    for (int n = 0; n < kKey.stages && span_.first + n < span_.end; ++n) {
      bring_keys(p, span_.first + n, n);
      bring_values(p, span_.first + n, n);
    }
  }

  // All else.
  __device__ void run(const GdnPrefillScanParams& p, const Unit& unit) const {
    Turn turn;
    for (int chunk = span_.first; chunk < span_.end; ++chunk, turn.pass()) {
      const int next = chunk + kKey.stages;
      dev::wait_for_phase(left_at(turn.stage), turn.parity);
      // Where the run has ended, nothing more is brought.
      if (kKey.context_parallel && stops_at(turn.stage) != 0) break;
      if (kWrites && chunk >= span_.begin && !is_tail(unit, chunk)) take_away(p, chunk, turn.stage);
      if (next >= span_.end) continue;
      bring(p, next, turn.stage);
    }
    // Shared memory stays until all outputs have been read from it.
    if (kWrites) dev::wait_for_boxes_read();
  }

  // To a stage that all warps have left, and its outputs.
  __device__ void bring(const GdnPrefillScanParams& p, int chunk, int to) const {
    bring_keys(p, chunk, to);
    if (kWrites) dev::wait_for_boxes_read();  // the values come where the outputs are
    bring_values(p, chunk, to);
  }
  // The outputs of a chunk, from its stage.
  __device__ void take_away(const GdnPrefillScanParams& p, int chunk, int from) const {
    for_each_box_of_values([&](int column, int place) {
      dev::write_box(p.o_map, at_.column + column, at_.head, token_of(chunk), at_.row,
                     stage_at(from) + kValues + place);
    });
  }

 private:
  // Calls f(column, byte) for each box of the block's columns of v or o.
  template <class Function>
  static __device__ void for_each_box_of_values(Function f) {
#pragma unroll
    for (int column = 0; column < kColumns; column += SwizzledValues::kColumns) {
      f(column, column / SwizzledValues::kColumns * SwizzledValues::kBlock);
    }
  }

  __device__ int token_of(int chunk) const { return at_.token + chunk * kChunk; }
  __device__ bool has_queries(int chunk) const { return !kKey.segments || chunk >= span_.begin; }
  __device__ bool has_values() const { return !kKey.segments || role_ != Role::kTransition; }
  __device__ int value_bytes() const { return has_values() ? kChunk * kColumns * kSize : 0; }

  // Besides, what the stage's barrier waits for in all, and the chunk's WY factors.
  __device__ void bring_keys(const GdnPrefillScanParams& p, int chunk, int to) const {
    const unsigned stage = stage_at(to);
    const unsigned barrier = filled_at(to);
    if constexpr (kChannels) {
      const int queries = has_queries(chunk) ? kKeyRowsBytes : 0;
      dev::expect_bytes(barrier, kWyBytes - kKeyRowsBytes + queries + value_bytes());
      bring_channel_rows(wy_of_chunk(p, at_, chunk), queries != 0, stage, barrier);
    } else {
      dev::expect_bytes(barrier, kKeyRowsBytes + (has_queries(chunk) ? kKeyRowsBytes : 0) +
                                     (producers(kKey) > 0 ? 0 : value_bytes() + kWy.bytes));
      bring_rows(p.k_map, at_.k_head, chunk, stage, barrier);
      if (has_queries(chunk)) bring_rows(p.q_map, at_.q_head, chunk, stage + kQueries, barrier);
    }
    if (producers(kKey) > 0) return;
    const char* wy = wy_of_chunk(p, at_, chunk);
    for_each_run([&](int place, int from, int bytes) {
      dev::copy_run(stage + kWyAt + place, wy + from, bytes, barrier);
      dev::copy_run(stage + kWyAt + kMatrix + place, wy + kAttention + from, bytes, barrier);
    });
    dev::copy_run(factors_at(to), wy + kFactors, stage_factor_bytes(kKey), barrier);
  }
  // Keys, queries where the chunk has outputs, and updates.
  static __device__ void bring_channel_rows(const char* wy, bool has_queries, unsigned stage,
                                            unsigned barrier) {
    const char* const keys = wy + channel_factors().keys;
    if (has_queries) {
      dev::copy_run(stage, keys, 2 * kKeyRowsBytes, barrier);
    } else {
#pragma unroll
      for (int run = 0; run < ReadRows::kRuns; ++run) {
        const int at = run * ReadRows::kRunStride;
        dev::copy_run(stage + at, keys + at, ReadRows::run_bytes(kChunk), barrier);
      }
    }
    dev::copy_run(stage + kUpdates, wy + channel_factors().updates, kKeyRowsBytes, barrier);
  }
  __device__ void bring_values(const GdnPrefillScanParams& p, int chunk, int to) const {
    // With producers the barrier's phases go on also where there are none.
    if (producers(kKey) > 0) dev::expect_bytes(values_at(to), value_bytes());
    if (!has_values()) return;
    for_each_box_of_values([&](int column, int place) {
      dev::copy_box(stage_at(to) + kValues + place, p.v_map, at_.column + column, at_.v_head,
                    token_of(chunk), at_.row, values_at(to));
    });
  }
  __device__ void bring_rows(const TensorMap& map, int head, int chunk, unsigned to,
                             unsigned barrier) const {
#pragma unroll
    for (int b = 0; b < kKey.key_dim / SwizzledKeys::kColumns; ++b) {
      dev::copy_box(to + b * SwizzledKeys::kBlock, map, b * SwizzledKeys::kColumns, head,
                    token_of(chunk), at_.row, barrier);
    }
  }

  const Plan& at_;  // read again and again: registers are few
  Span span_;
  Role role_;
};

// A row of a head of the tensor, from `column` on.
__device__ const dev::Storage<kKey.dtype>* row_of_head(const InputRows<TokenStrides>& rows, int row,
                                                       int token, int head, int column) {
  return dev::as<kKey.dtype>(rows.data) + dev::offset_of(rows.stride, {row, token, head}) + column;
}

// The same for tensors that TMA cannot read: starts copying a chunk to a stage, if it is one
// of the span.  For all threads.
__device__ void copy_by_threads(const GdnPrefillScanParams& p, const Unit& unit, int chunk,
                                int to) {
  const int left = static_cast<int>(unit.sequence.tokens) - chunk * kChunk;
  constexpr int kThreads = threads(kKey);
  using KeyRows = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim, SwizzledKeys, kThreads,
                                 dev::ThisThreadInLoop>;
  using ValueRows =
      dev::RowCopier<kKey.dtype, kChunk, kColumns, SwizzledValues, kThreads, dev::ThisThreadInLoop>;
  const Plan at = plan();
  const unsigned thread = dev::ThisThreadInLoop::number();
  const unsigned stage = stage_at(to);
  const int token = at.token + chunk * kChunk;
  if constexpr (!kChannels) {
    KeyRows(p.k, row_of_head(p.k, at.row, token, at.k_head, 0)).copy_next(stage, left, p.k);
    if (!kKey.segments || chunk >= unit.span.begin) {
      KeyRows(p.q, row_of_head(p.q, at.row, token, at.q_head, 0))
          .copy_next(stage + kQueries, left, p.q);
    }
  }
  if (!kKey.segments || unit.role != Role::kTransition) {
    ValueRows(p.v, row_of_head(p.v, at.row, token, at.v_head, at.column))
        .copy_next(stage + kValues, left, p.v);
  }
  if (kChannels && chunk >= end_of_span(unit)) return;  // so far WY factors may not go
  const char* wy = wy_of_chunk(p, at, chunk);
  for_each_run([&](int place, int from, int bytes) {
    for (int i = thread * 16; i < bytes; i += kThreads * 16) {
      const unsigned piece = stage + kWyAt + place + i;
      dev::copy_16(piece, wy + from + i);
      dev::copy_16(piece + kMatrix, wy + kAttention + from + i);
    }
  });
  if constexpr (kChannels) {
    dev::copy_bytes<2 * kKeyRowsBytes, kThreads>(stage, wy + channel_factors().keys);
    dev::copy_bytes<kKeyRowsBytes, kThreads>(stage + kUpdates, wy + channel_factors().updates);
  }
  dev::copy_bytes<stage_factor_bytes(kKey), kThreads>(factors_at(to), wy + kFactors);
}

// Waits for the copies of the chunk whose turn it is, of this thread or of TMA; with producers, all
// but its values.
__device__ void wait_for_copies(const Turn& turn) {
  if constexpr (producers(kKey) > 0) {
    // WY factors come behind the rows that they are made from.
    dev::wait_for_phase(made_at(turn.stage), turn.parity);
  } else if constexpr (kTma) {
    dev::wait_for_phase(filled_at(turn.stage), turn.parity);
  } else {
    dev::wait_copies<kKey.stages - 2>();
  }
}

// Zeros for the pieces of 16 bytes of rows `first` to kRows - 1.  For the first kThreads threads of
// the block, or for a warp of producers.
template <class Rows, int kRows, int kPieces, int kThreads = kComputing>
__device__ void clear_rows(unsigned address, int first) {
#pragma unroll 1  // rare: short code, so that the chunks' loop is near
  for (int i = first * kPieces + dev::ThisThreadInLoop::number() % kThreads; i < kRows * kPieces;
       i += kThreads) {
    dev::store_shared_zeros(address + Rows::at(i / kPieces, i % kPieces));
  }
}

// Zeros for the tokens behind a packed sequence: TMA has brought those of the next one.
template <int kThreads>
__device__ void clear_keys_from(unsigned stage, int left) {
  constexpr int kPieces = kKey.key_dim * kSize / 16;
  clear_rows<SwizzledKeys, kChunk, kPieces, kThreads>(stage, left);
  clear_rows<SwizzledKeys, kChunk, kPieces, kThreads>(stage + kQueries, left);
}
template <int kThreads>
__device__ void clear_values_from(unsigned stage, int left) {
  clear_rows<SwizzledValues, kChunk, kColumns * kSize / 16, kThreads>(stage + kValues, left);
}

// Of the pieces of 16 tokens, in a stage, this lane's: of its warp's values, then of its outputs.
__device__ unsigned place_of_values(unsigned stage, int i) {
  const unsigned lane = threadIdx.x % 32;
  // After eight rows pieces lie as before: one address serves all tokens.
  const unsigned first = SwizzledValues::at(lane % 16, threadIdx.x / 32 * 2 + lane / 16);
  return stage + first + kValues + SwizzledValues::at(16 * i, 0);
}

// The same by what the loop over units has kept of it: else the compiler would work it out at every
// chunk.
struct PlaceOfValues {
  __device__ unsigned operator()(unsigned stage, int i) const { return place_of_values(stage, i); }
};
class KeptPlaceOfValues {
 public:
  __device__ KeptPlaceOfValues() : first_(place_of_values(0, 0)) {
    asm volatile("" : "+r"(first_));
  }
  __device__ unsigned operator()(unsigned stage, int i) const {
    return stage + first_ + SwizzledValues::at(16 * i, 0);
  }

 protected:
  unsigned first_;
};

// This warp's columns of the values of 16 tokens, transposed.
template <DType kDType = kKey.dtype>
__device__ dev::Tile<kDType> values_from(unsigned place) {
  dev::Tile<kDType> tile;
  dev::load_transposed_matrices(tile.x[0][0], tile.x[0][1], tile.x[1][0], tile.x[1][1], place);
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
template <DType kOutput = kKey.output_dtype, class Place>
__device__ void stage_outputs(const dev::Acc (&o)[kTokens], unsigned stage, Place place) {
  if constexpr (size_of(kOutput) == 2) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const auto tile = dev::round_to<kOutput>(o[i]);
      dev::store_transposed_matrices(place(stage, i), tile.x[0][0], tile.x[0][1], tile.x[1][0],
                                     tile.x[1][1]);
    }
  }
}

// Leaves a stage to TMA, if the last chunk was in it.  For the threads that compute.
__device__ void leave(int stage, bool was_used) {
  // This thread's accesses to the stage, its outputs too, before TMA's.
  dev::show_to_tma();
  // Each lane comes, behind its accesses and the warp's products with the stage.  One for all would
  // save nothing, and look like a race to those who count threads (racecheck).
  if (was_used) dev::come_to(left_at(stage));
}

// 1, which the compiler does not know: sums that are multiplied by it are in other registers.
__device__ float opaque_one() {
  float one = 1.0f;
  asm volatile("" : "+f"(one));
  return one;
}

// The chunk whose turn it is, in a stage that is at `stage`.  `at_first` and `at_last` are called
// while the first products run and the last ones, `write` as soon as `o` has the outputs.
template <bool kOutputs, class Place, class First, class Last, class Write>
__device__ void run_chunk_by_wgmma(State& state, dev::Acc (&o)[kTokens], unsigned stage,
                                   const Turn& turn, Place place, First at_first, Last at_last,
                                   Write write) {
  const unsigned wy = factors_at(turn.stage) - kFactors;
  // K S, and Q S behind it.
  dev::Acc products[kOutputs ? 2 * kTokens : kTokens];
  Tile s[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    s[k] = dev::round_to<kKey.dtype>(state.tiles[k]);
    // Two at a time, which start as soon as they can.
    if (k % 2 == 0) continue;
    dev::start_products();
    if (k == 1) {
      dev::multiply<kKey.dtype, false, false>(products, s[0], SwizzledKeys::by_rows(stage, 0));
    } else {
      dev::multiply<kKey.dtype, false, true>(products, s[k - 1],
                                             SwizzledKeys::by_rows(stage, k - 1));
    }
    dev::multiply<kKey.dtype, false, true>(products, s[k], SwizzledKeys::by_rows(stage, k));
    dev::commit_products();
  }
  at_first();
  // S decays meanwhile.  Its factor is loaded behind the fence of at_first(): with one that is
  // there before, compilers put the multiplications in front of the products.
  scale_state(state, wy + (kChannels ? channel_factors().decay : kWy.decay));
  if constexpr (producers(kKey) > 0) dev::wait_for_phase(values_at(turn.stage), turn.parity);
  // What the products are needed for is at hand when they end.
  Tile given[kTokens];
  Factors k_in[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    given[i] = values_from(place(stage, i));
    if constexpr (!kChannels) k_in[i] = Factors(wy, kWy.k_in, i);
  }
  dev::finish_products<0>(products);

  // U = T V', and meanwhile q_in Q S.
  Tile values[kTokens];
  correct_values(
      values, products, [&](int i) { return given[i]; }, [&](int i) { return k_in[i]; });
  dev::Acc u[kTokens];
  dev::start_products();
  multiply_lower<false>(u, values, stage + kWyAt);
  dev::commit_products();
  if constexpr (kOutputs) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      o[i] = products[kTokens + i];
      if constexpr (kChannels) {
        scale(o[i], opaque_one());
      } else {
        scale_columns(o[i], Factors(wy, kWy.q_in, i));
      }
    }
  }
  Factors v_out[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if constexpr (!kChannels) v_out[i] = Factors(wy, kWy.v_out, i);
  }
  dev::finish_products<0>(u);

  // O += P U, then S += K^T (v_out U), which runs while outputs are put down.
  Tile scaled[kTokens];
  round_values(values, scaled, u, [&](int i) { return v_out[i]; });
  dev::start_products();
  if constexpr (kOutputs) {
    multiply_lower<true>(o, values, stage + kWyAt + kMatrix);
    dev::commit_products();
    // The state has decayed since its last products.
    dev::start_products();
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    dev::multiply<kKey.dtype, true, true>(state.tiles, scaled[i],
                                          kChannels
                                              ? SwizzledUpdates::by_columns(stage + kUpdates, i)
                                              : SwizzledKeys::by_columns(stage, i));
  }
  dev::commit_products();
  at_last();
  if constexpr (kOutputs) {
    dev::finish_products<1>(o);
    write();
  }
  dev::finish_products<0>(state.tiles);
}

// Waits for the copies that are on their way where a run ends at chunk `next` instead of at `end`.
__device__ void wait_for_rest(int next, int end, Turn turn) {
  if constexpr (kTma) {
    for (int n = 1; n < kKey.stages && next < end; ++n, ++next, turn.pass()) wait_for_copies(turn);
  } else {
    dev::wait_copies<0>();
  }
}

// Carries the state through chunks first ... end - 1 of the unit's span, all of which have outputs
// or none.  `checkpoint`: where the first one goes.  Returns the chunk behind the last one.
//
// `plan_at`: the unit's plan.
template <bool kOutputs, class PlanAt, class Place = PlaceOfValues>
__device__ int run_chunks_by_wgmma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                   int first, int end, Turn* turn, long long checkpoint,
                                   PlanAt plan_at, Place place = {}) {
  const bool even = output_rows_at(p, 4);
  const int tokens = static_cast<int>(unit.sequence.tokens);
  dev::Acc o[kTokens]{};
  const auto write_by_threads = [&](int token) {
    Output(plan_at().output + token * p.o.stride.token + threadIdx.x / 32 * 16, even)
        .write_next(o, p.o.stride.token, tokens - token);
  };
  for (int chunk = first; chunk < end; ++chunk) {
    const int token = chunk * kChunk;
    const bool has_tail = is_tail(unit, chunk);
    // Where threads copy, that would leave too few registers.
    const unsigned stage =
        kTma ? dev::uniform_address(stage_at(turn->stage)) : stage_at(turn->stage);
    wait_for_copies(*turn);
    dev::finish_products<0>(state.tiles);  // none runs; the compiler does not see that over a loop
    if (!kTma || (producers(kKey) == 0 && has_tail)) {
      if (kTma) {
        // Channels' rows behind the sequence are zeros.
        if constexpr (!kChannels) clear_keys_from<kComputing>(stage, tokens - token);
        clear_values_from<kComputing>(stage, tokens - token);
      }
      dev::show_to_tma();
      // Orders the zeros, or the copies of all threads, before the products.
      sync_computing();
    }
    if constexpr (kOutputs) store_checkpoint_before(state, p, unit, token, &checkpoint);
    const auto at_first = [&] {
      if constexpr (kTma) leave(turn->last(), chunk > first);
    };
    const auto at_last = [&] {
      if constexpr (!kTma) copy_by_threads(p, unit, chunk + kKey.stages - 1, turn->last());
    };
    run_chunk_by_wgmma<kOutputs>(state, o, stage, *turn, place, at_first, at_last, [&] {
      if constexpr (kWrites) {
        if (!has_tail) stage_outputs(o, stage_at(turn->stage), place);
      } else {
        write_by_threads(token);
      }
    });
    if constexpr (kOutputs) store_checkpoint_after(state, p, unit, token, &checkpoint);
    turn->pass();
    if constexpr (kKey.context_parallel && !kOutputs) {
      if (!forgets(state, p, unit, chunk, end)) continue;
      if (kTma && threadIdx.x == 0) stops_at(turn->last()) = 1;
      leave(turn->last(), kTma);
      wait_for_rest(chunk + 1, unit.span.end, *turn);
      return chunk + 1;
    }
  }
  if (kTma && first < end) {
    leave(turn->last(), true);
    if (kOutputs && kWrites && is_tail(unit, end - 1)) write_by_threads((end - 1) * kChunk);
  }
  return end;
}

template <bool kOutputs>
__device__ int run_chunks_by_wgmma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                   int first, int end, Turn* turn, long long checkpoint) {
  return run_chunks_by_wgmma<kOutputs>(state, p, unit, first, end, turn, checkpoint,
                                       []() -> Plan& { return plan(); });
}

// The barriers of the stages.  For one thread.
__device__ void set_up_stages() {
  for (int i = 0; i < kKey.stages; ++i) {
    dev::set_up_barrier(filled_at(i), producers(kKey) > 0 ? 1 + 32 : 1);
    dev::set_up_barrier(left_at(i), kComputing);
    if (producers(kKey) > 0) {
      dev::set_up_barrier(made_at(i), 2 * 32);
      dev::set_up_barrier(values_at(i));
    }
  }
}
// Zeros above the diagonals of a stage's matrices.  For the threads that compute.
__device__ void clear_above_diagonals(int stage) {
  for (int i = threadIdx.x * 16; i < 2 * kMatrix; i += kComputing * 16) {
    dev::store_shared_zeros(stage_at(stage) + kWyAt + i);
  }
}

// Sets up what a span's chunks need, and starts the first copies: these overlap with what the span
// starts from.  For all threads; a template, so that keys without wgmma do not compile it.
template <bool kWgmma = kKey.wgmma>
__device__ void prepare_span_by_wgmma(const GdnPrefillScanParams& p, const Unit& unit) {
  if (threadIdx.x == 0) {
    plan() = plan_of(p, unit);
    set_up_stages();
  }
  if constexpr (kKey.context_parallel) {
    if (threadIdx.x < kKey.stages) stops_at(threadIdx.x) = 0;
  }
  // Above the diagonals, and for D the values.
  for (int stage = 0; computes() && stage < kKey.stages; ++stage) {
    clear_above_diagonals(stage);
    if (kKey.segments && unit.role == Role::kTransition) {
      clear_rows<SwizzledValues, kChunk, kColumns * kSize / 16>(stage_at(stage) + kValues, 0);
    }
  }
  // Orders these, and what the block has done with shared memory before, before TMA's copies
  // and the products.
  dev::show_to_tma();
  __syncthreads();
  if constexpr (kTma) {
    if (copies() && dev::is_elected()) TmaCopier(unit).fill(p);
    __syncwarp();  // the block's next barrier is for whole warps
  } else {
#pragma unroll
    for (int n = 0; n < kKey.stages - 1; ++n) copy_by_threads(p, unit, unit.span.first + n, n);
  }
}

// Carries the state through the unit's span.
template <bool kWgmma = kKey.wgmma>
__device__ void run_span_by_wgmma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                  long long checkpoint) {
  if (kTma && copies()) {
    if (dev::is_elected()) TmaCopier(unit).run(p, unit);
    __syncwarp();
    return;
  }
  const Span& span = unit.span;
  Turn turn;
  if constexpr (kKey.segments) {
    run_chunks_by_wgmma<false>(state, p, unit, span.first, span.begin, &turn, 0);
  }
  run_chunks_by_wgmma<true>(state, p, unit, span.begin, span.end, &turn, checkpoint);
}

}  // namespace
