// The chunks of a unit by mma.sync: each warp has a share of the columns, one more does the copies.
// Part of gdn_prefill_scan.cu.
#pragma once

#include "common/chunk/wy_tiles.cuh"
#include "common/copy.cuh"
#include "gdn_prefill_scan/chunk.cuh"

namespace {

__device__ unsigned stage_of(int chunk) {
  return dev::shared_address(shared) + chunk % kKey.stages * stage_bytes(kKey);
}

// Where a stage has the rows that read the state, keys and then queries, and those that write it.
constexpr int kKeysAt = kChannels ? kWyAt + channel_factors().keys : 0;
constexpr int kQueriesAt = kChannels ? kKeysAt + ReadRows::at(kChunk, 0) : kQueries;
constexpr int kUpdatesAt = kChannels ? kWyAt + channel_factors().updates : 0;
using ReadMatrix = MatricesOf<kChannels>::Read;
using WrittenMatrix = MatricesOf<kChannels>::Written;

// Copies the unit's chunks, one after the other.  For one warp: the others' arithmetic must not
// wait until the addresses of copies have been read.
class WarpCopier {
 public:
  __device__ WarpCopier(const GdnPrefillScanParams& p, const Unit& unit)
      : k_(p.k, first_row(p.k, unit)),
        q_(p.q, first_row(p.q, unit)),
        v_(p.v, first_row(p.v, unit) + unit.first_column),
        wy_(wy_of(p, unit, unit.span.first)) {}

  // Starts copying the next chunk into a stage.  `chunk`: which it is; none from the span's end on.
  // kOutputs: it has some.
  template <bool kOutputs>
  __device__ void copy_next(const GdnPrefillScanParams& p, const Unit& unit, int chunk) {
    if (chunk < end_of_span(unit)) {
      const unsigned stage = stage_of(chunk);
      const int left = static_cast<int>(unit.sequence.tokens) - chunk * kChunk;
      if constexpr (!kChannels) {
        k_.copy_next(stage, left, p.k);
        if (kKey.segments && !kOutputs && chunk < unit.span.begin) {
          q_.skip(p.q);  // there are no outputs
        } else {
          q_.copy_next(stage + kQueries, left, p.q);
        }
      }
      v_.copy_next(stage + kValues, !kKey.segments || unit.role != Role::kTransition ? left : 0,
                   p.v);
      if (kKey.segments && kChannels && !kOutputs && chunk < unit.span.begin) {
        // There are no outputs, and no queries.
        constexpr int kRest = kWyBytes - channel_factors().updates;
        dev::copy_bytes<channel_factors().keys, 32>(stage + kWyAt, wy_);
#pragma unroll
        for (int run = 0; run < ReadRows::kRuns; ++run) {
          const int at = channel_factors().keys + run * ReadRows::kRunStride;
          dev::copy_bytes<ReadRows::run_bytes(kChunk), 32>(stage + kWyAt + at, wy_ + at);
        }
        dev::copy_bytes<kRest, 32>(stage + kUpdatesAt, wy_ + channel_factors().updates);
      } else {
        dev::copy_bytes<kWyBytes, 32>(stage + kWyAt, wy_);
      }
      wy_ += static_cast<long long>(p.heads) * kWyBytes;
    }
    dev::commit_copies();  // also when the group is empty: groups are counted
  }

 private:
  using KeyRows = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim, Layout<false>::Keys, 32>;
  using ValueRows = dev::RowCopier<kKey.dtype, kChunk, kColumns, Layout<false>::Values, 32>;

  static __device__ const dev::Storage<kKey.dtype>* first_row(const InputRows<TokenStrides>& rows,
                                                              const Unit& unit) {
    const long long token = unit.sequence.first + unit.span.first * kChunk;
    return dev::row_at<kKey.dtype>(rows, {unit.sequence.batch, token, unit.h});
  }

  KeyRows k_;
  KeyRows q_;
  ValueRows v_;
  const char* wy_;
};

// (K S)^T, and (Q S)^T where there are outputs.
template <bool kOutputs>
__device__ void read_state(dev::Acc (&ks)[kTokens], dev::Acc (&qs)[kTokens], const State& state,
                           unsigned stage) {
  const ReadMatrix keys{stage + kKeysAt};
  const ReadMatrix queries{stage + kQueriesAt};
#pragma unroll
  for (int i = 0; i < kTokens; ++i) ks[i] = qs[i] = {};
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    const Tile s = dev::round_to<kKey.dtype>(state.tiles[k]);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      dev::mma(ks[i], s, keys.load(16 * i, 16 * k));
      if constexpr (kOutputs) dev::mma(qs[i], s, queries.load(16 * i, 16 * k));
    }
  }
}

// sums += (M X)^T for a lower triangular matrix M and X^T = x.
__device__ void add_lower_product(dev::Acc (&sums)[kTokens], const Tile (&x)[kTokens],
                                  unsigned matrix) {
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      dev::mma(sums[i], x[j], dev::load_wy_tile<kKey.dtype>(matrix, wy_tile(i, j, kChunk)));
    }
  }
}

// S <- decay S + K^T values.
__device__ void update_state(State& state, const Tile (&values)[kTokens], unsigned stage) {
  float decay;
  if constexpr (!kChannels) dev::load_shared(decay, stage + kWyAt + kWy.decay);
  const WrittenMatrix keys{stage + kUpdatesAt};
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    float(&s)[2][2][2] = state.tiles[k].x;
    dev::Acc added{};
    if constexpr (kChannels) {
      scale_columns(state.tiles[k], Factors(stage + kWyAt, channel_factors().decay, k));
    } else {
      dev::for_each_element([&](int r, int c, int j) { s[r][c][j] *= decay; });
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      dev::mma(kSumApart ? added : state.tiles[k], values[i], keys.load_transposed(16 * i, 16 * k));
    }
    if constexpr (kSumApart) add(state.tiles[k], added);
  }
}

// For the chunks from `first` on.
__device__ Output output_of(const GdnPrefillScanParams& p, const Unit& unit, int first) {
  const int chunk = kKey.context_parallel ? first : unit.span.begin;
  const long long token = unit.sequence.first + chunk * kChunk;
  auto* row = dev::row_at<kKey.output_dtype>(p.o, {unit.sequence.batch, token, unit.h});
  if constexpr (kIsTight && kSlices == 1) {
    row += dev::ThisThreadInLoop::number() / 32 * 16;
  } else {
    row += warp_column(unit);
  }
  // Else the compiler keeps what leads there besides; of the ways to say so these are the ones that
  // keep NVRTC 13.0 from spilling (tests/templates/compile_test.cc).
  if constexpr (kIsTight) asm("" : "+l"(row));
  return Output(row, output_rows_at(p, 4));
}

// One chunk, of whose tokens `left` are there.
template <bool kOutputs>
__device__ void run_chunk(State& state, const GdnPrefillScanParams& p, Output& output,
                          unsigned stage, int left) {
  dev::Acc ks[kTokens];
  dev::Acc o[kTokens];
  read_state<kOutputs>(ks, o, state, stage);
  Tile values[kTokens];
  const unsigned wy = stage + kWyAt;
  const dev::SharedMatrix<kKey.dtype, kValueRow> given{stage + kValues};
  correct_values(
      values, ks, [&](int i) { return given.load_transposed(16 * i, threadIdx.x / 32 * 16); },
      [&](int i) { return factors_of_tokens<kWy.k_in>(wy, i); });
  dev::Acc u[kTokens] = {};
  add_lower_product(u, values, wy);
  Tile scaled[kTokens];
  round_values(values, scaled, u, [&](int i) { return factors_of_tokens<kWy.v_out>(wy, i); });
  // The state first: the next chunk waits for it.
  update_state(state, scaled, stage);
  if constexpr (kOutputs) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) scale_columns(o[i], factors_of_tokens<kWy.q_in>(wy, i));
    add_lower_product(o, values, wy + kAttention);
    output.write_next(o, p.o.stride.token, left);
  }
}

// Carries the state through chunks first ... end - 1 of the unit's span, all of which have outputs
// or none.  `checkpoint`: where the first one goes.  Every warp comes to the same barrier once for
// each chunk.  Returns the chunk behind the last one.
template <bool kOutputs>
__device__ int run_chunks(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                          WarpCopier& copier, int first, int end, long long checkpoint) {
  Output output = output_of(p, unit, first);
  const int tokens = static_cast<int>(unit.sequence.tokens);
  constexpr bool kMayStop = kKey.context_parallel && !kOutputs;
  bool stops = false;
  for (int chunk = first; chunk < (kIsTight ? end_of_span(unit) : end); ++chunk) {
    if (copies()) dev::wait_copies<kKey.stages - 2>();
    // Orders the copies of this chunk before its reading, and the last chunk's reading before the
    // copies into the stage that it leaves.
    if constexpr (kMayStop) {
      if (__syncthreads_or(stops)) {
        if (copies()) dev::wait_copies<0>();
        return chunk;
      }
    } else {
      __syncthreads();
    }
    if (copies()) {
      copier.copy_next<kOutputs>(p, unit, chunk + kKey.stages - 1);
      continue;
    }
    const int token = chunk * kChunk;
    if constexpr (kOutputs) store_checkpoint_before(state, p, unit, token, &checkpoint);
    run_chunk<kOutputs>(state, p, output, stage_of(chunk), tokens - token);
    if constexpr (kMayStop) stops = forgets(state, p, unit, chunk, end);
    if constexpr (kOutputs) store_checkpoint_after(state, p, unit, token, &checkpoint);
  }
  return end;
}

// The first copies.
__device__ void start_copies(WarpCopier& copier, const GdnPrefillScanParams& p, const Unit& unit) {
  if (!copies()) return;
#pragma unroll
  for (int i = 0; i < kKey.stages - 1; ++i) {
    copier.copy_next<false>(p, unit, unit.span.first + i);
  }
}

// Carries the state through the unit's span.
__device__ void run_span_by_mma(State& state, const GdnPrefillScanParams& p, const Unit& unit,
                                long long checkpoint) {
  const Span& span = unit.span;
  WarpCopier copier(p, unit);
  start_copies(copier, p, unit);
  if constexpr (kKey.segments) {
    run_chunks<false>(state, p, unit, copier, span.first, span.begin, 0);
  }
  run_chunks<true>(state, p, unit, copier, span.begin, span.end, checkpoint);
}

}  // namespace
