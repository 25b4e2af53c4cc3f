// Rows of q or k in the registers of a warp.
#pragma once

#include "common/step.cuh"
#include "common/tile/tile.cuh"
#include "common/tokens/key.h"
#include "common/vec.cuh"

namespace cubinery::dev {

// Two neighbours of a row of 16-bit elements, the first one in the low half.  `aligned`: they start
// at a multiple of 4 bytes.
template <DType kDType>
__device__ unsigned load_pair(const Storage<kDType>* row, bool aligned) {
  if (aligned) return *reinterpret_cast<const unsigned*>(row);
  return row[0] | static_cast<unsigned>(row[1]) << 16;
}

// The transpose of an 8x8 matrix of 16-bit elements, of which lane l has those of row l / 4 and
// columns 2 (l % 4) and the next.
__device__ inline unsigned transpose_8x8(unsigned pair) {
  unsigned transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

// Halves of 8 rows that products over tokens have.
template <auto kKey>
inline constexpr int kTokenHalves = token_rows(kKey) / 8;

// The rows of a request's tokens as operands of products over key_dim: lane l has tokens l / 4 and,
// of 16, l / 4 + 8.  Of every 4 kRun keys, those of lane t are kRun neighbours; which key is which
// column of a product is free, as long as both operands keep to the same.
template <auto kKey>
class TokenRows {
 public:
  static constexpr int kRun = key_run(kKey);
  static constexpr int kSteps = kKey.key_dim / 16;  // products along key_dim
  using Run = Vec<kKey.dtype, kRun * 2>;

  // Rows of a head of the tensor; zeros for tokens that are not there.
  __device__ TokenRows(const InputRows<TokenStrides>& rows, TokenStrides::At at, int head,
                       int count) {
    at.head = head;
    const auto* first =
        as<kKey.dtype>(rows.data) + offset_of(rows.stride, at) + threadIdx.x % 4 * kRun;
    for_each_run([&](int h, int s) {
      const int i = tile_row() + 8 * h;
      load(&runs_[h][s], first + i * rows.stride.token + s * 4 * kRun, i < count, rows.aligned);
    });
  }

  // Of k and q, paired.
  __device__ TokenRows(const InputRows<TokenStrides>& k, const InputRows<TokenStrides>& q,
                       TokenStrides::At at, int k_head, int q_head, int count) {
    const bool is_q = tile_row() >= kKey.draft_tokens;
    const InputRows<TokenStrides>& rows = is_q ? q : k;
    at.head = is_q ? q_head : k_head;
    const int i = tile_row() % kKey.draft_tokens;
    const auto* row = as<kKey.dtype>(rows.data) + offset_of(rows.stride, at) +
                      i * rows.stride.token + threadIdx.x % 4 * kRun;
    for_each_run(
        [&](int h, int s) { load(&runs_[h][s], row + s * 4 * kRun, i < count, rows.aligned); });
  }

  // For the top of a loop: without it the compiler works out every operand ahead of the loop, and
  // has no registers for them.
  __device__ void forget_operands() {
    for_each_run([&](int h, int s) {
#pragma unroll
      for (int w = 0; w < kRun / 2; ++w) asm volatile("" : "+r"(runs_[h][s].words[w]));
    });
  }

  // The operand of step `s`; of 8 tokens the lower half stays empty.
  __device__ Tile<kKey.dtype> tile(int s) const {
    Tile<kKey.dtype> tile{};
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const Run& run = runs_[h][s / (kRun / 4)];
      const int first = s % (kRun / 4) * 2;
      tile.x[h][0] = run.words[first];
      tile.x[h][1] = run.words[first + 1];
    }
    return tile;
  }

  // The transpose of elements 2 pair and 2 pair + 1 of the lanes' runs `s`: this lane has element
  // l / 4 of the eight of token half h, of tokens 2 (l % 4) and the next, the first in the low half
  __device__ unsigned transposed(int h, int s, int pair) const {
    return transpose_8x8(runs_[h][s].words[pair]);
  }

  // Of token half h: elements 2 part and 2 part + 1 of the lane's four of step `s`, as tf32, which
  // holds every 16-bit number.
  __device__ void tf32_pair(int h, int s, int part, unsigned (&pair)[2]) const {
    const Run& run = runs_[h][s / (kRun / 4)];
    const int first = s % (kRun / 4) * 4 + 2 * part;
    pair[0] = __float_as_uint(run.get(first));
    pair[1] = __float_as_uint(run.get(first + 1));
  }

 private:
  static constexpr int kHalves = kTokenHalves<kKey>;
  static constexpr int kRuns = kKey.key_dim / (4 * kRun);

  static __device__ void load(Run* run, const Storage<kKey.dtype>* from, bool is_there,
                              bool aligned) {
    *run = {};
    if (aligned) {
      if (is_there) load_vector(*run, from);
    } else {
      for (int w = 0; w < kRun / 2 && is_there; ++w) {
        run->words[w] = load_pair<kKey.dtype>(from + 2 * w, false);
      }
    }
  }

  template <class Function>
  static __device__ void for_each_run(Function f) {
#pragma unroll
    for (int i = 0; i < kHalves * kRuns; ++i) f(i / kRuns, i % kRuns);
  }

  Run runs_[kHalves][kRuns];
};

}  // namespace cubinery::dev
