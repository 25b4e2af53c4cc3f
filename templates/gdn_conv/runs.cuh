// Which tokens of packed sequences a warp takes.  Templates over GdnConvKey.
//
// Run r is tokens r * p.run to (r + 1) * p.run - 1, whatever the sequences, but no boundary lies
// among the first width - 1 tokens of a sequence, between which it would need the state: it moves
// behind them.  So one warp reads a sequence's state, before it writes the new one, which may lie
// in its place.
//
// With p.by_sequence run n is sequence n, whatever its length.
#pragma once

#include "common/operands.cuh"
#include "gdn_conv/key.h"

namespace cubinery::dev {

// A boundary between runs.
struct Boundary {
  int token;
  int sequence;  // that has the token, or the first that begins there
};

struct PackedRun {
  Boundary begin, end;
  int sequences;  // it has none from this one on
  bool is_last;   // it has the sequences that begin at its end, too: they have no tokens
  bool is_malformed;
};

// Bound n.  Requires: bounds are not malformed, so that it fits.
template <auto kKey>
__device__ int bound(const GdnConvParams& p, int n) {
  return static_cast<int>(load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, n));
}

// The tokens of a sequence; none where its bounds cannot be.
struct SequenceTokens {
  int first, count;
};

template <auto kKey>
__device__ SequenceTokens tokens_of_sequence(const GdnConvParams& p, int n) {
  const auto first = load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, n);
  const auto end = load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, n + 1);
  if (first < 0 || end < first || end > p.tokens) return {.first = 0, .count = 0};
  return {.first = static_cast<int>(first), .count = static_cast<int>(end - first)};
}

// `below`: how many bounds are below the token.
template <auto kKey>
__device__ Boundary boundary(const GdnConvParams& p, int token, int below) {
  if (below > p.sequences) return {token, p.sequences};
  if (below == 0 || bound<kKey>(p, below) == token) return {token, below};
  const int first = bound<kKey>(p, below - 1), end = bound<kKey>(p, below);
  if (token - first >= kKey.width - 1) return {token, below - 1};
  const int moved = first + kKey.width - 1;
  return moved < end ? Boundary{moved, below - 1} : Boundary{end, below};
}

// A warp looks at all bounds, a lane at some of them.
template <auto kKey>
__device__ PackedRun packed_run(const GdnConvParams& p, int run) {
  const int tokens = static_cast<int>(p.tokens), begin = run * p.run;
  const int end = begin + min(p.run, tokens - begin);
  int below_begin = 0, below_end = 0;
  bool is_malformed = false;
#pragma unroll 1
  for (int first = 0; first <= p.sequences; first += 32) {
    const int n = first + threadIdx.x % 32;
    const bool is_there = n <= p.sequences;
    const auto at = load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, min(n, p.sequences));
    const auto next = load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, min(n + 1, p.sequences));
    is_malformed |= at < 0 || at > tokens || next < at;
    below_begin += __popc(__ballot_sync(0xffffffffu, is_there && at < begin));
    below_end += __popc(__ballot_sync(0xffffffffu, is_there && at < end));
  }
  PackedRun found{.sequences = p.sequences,
                  .is_last = run == p.runs - 1,
                  .is_malformed = __any_sync(0xffffffffu, is_malformed) != 0};
  if (found.is_malformed) return found;
  found.begin = boundary<kKey>(p, begin, below_begin);
  found.end = found.is_last ? Boundary{tokens, p.sequences} : boundary<kKey>(p, end, below_end);
  return found;
}

// Sequence n and nothing else, `own` its tokens.  All bounds are looked at, but not compared with
// tokens: where they do not decrease, the first and the last say whether they leave them.
template <auto kKey>
__device__ PackedRun run_of_sequence(const GdnConvParams& p, int n, const SequenceTokens& own) {
  const auto at = [&](int i) { return load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, i); };
  bool is_malformed = at(0) < 0 || at(p.sequences) > p.tokens;
#pragma unroll 4
  for (int i = threadIdx.x % 32; i < p.sequences; i += 32) is_malformed |= at(i + 1) < at(i);
  return {.begin = {own.first, n},
          .end = {own.first + own.count, n + 1},
          .sequences = n + 1,
          .is_last = true,
          .is_malformed = __any_sync(0xffffffffu, is_malformed) != 0};
}

}  // namespace cubinery::dev
