// Rows of q or k in the registers of a warp.
#pragma once

#include "common/step.cuh"
#include "common/tile.cuh"
#include "common/vec.cuh"
#include "gdn_verify_wy/key.h"

namespace cubinery::dev {

// Two neighbours of a row of 16-bit elements, the first one in the low half.  `aligned`: they start
// at a multiple of 4 bytes.
template <DType kDType>
__device__ unsigned load_pair(const Storage<kDType>* row, bool aligned) {
  if (aligned) return *reinterpret_cast<const unsigned*>(row);
  return row[0] | static_cast<unsigned>(row[1]) << 16;
}

// The rows of a request's tokens as operands of products over key_dim: lane l has tokens l / 4 and,
// of 16, l / 4 + 8.  Of every 4 kRun keys, those of lane t are kRun neighbours; which key is which
// column of a product is free, as long as both operands keep to the same.
template <auto kKey>
class TokenRows {
 public:
  static constexpr int kRun = key_run(kKey);
  static constexpr int kSteps = kKey.key_dim / 16;  // products along key_dim
  using Run = Vec<kKey.dtype, kRun * 2>;

  // Where they lie.
  class Given {
   public:
    __device__ Given(const InputRows<TokenStrides>& rows, TokenStrides::At at, int count)
        : stride_(rows.stride.token), aligned_(rows.aligned), count_(count) {
      at.head = own_head(rows, at.head);
      first_ = as<kKey.dtype>(rows.data) + offset_of(rows.stride, at);
    }

    // kRun neighbours of token `i` from `key` on, a multiple of kRun; zeros where it is not there.
    __device__ Run run(int i, int key) const {
      Run run{};
      if (i >= count_) return run;
      const auto* from = first_ + i * stride_ + key;
      if (aligned_) {
        load_vector(run, from);
        return run;
      }
#pragma unroll
      for (int w = 0; w < kRun / 2; ++w) run.words[w] = load_pair<kKey.dtype>(from + 2 * w, false);
      return run;
    }

   private:
    const Storage<kKey.dtype>* first_;
    long long stride_;
    bool aligned_;
    int count_;
  };

  explicit __device__ TokenRows(const Given& given) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int s = 0; s < kRuns; ++s) {
        runs_[h][s] = given.run(tile_row() + 8 * h, (4 * s + threadIdx.x % 4) * kRun);
      }
    }
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

  // Of token half h: elements 2 part and 2 part + 1 of the lane's four of step `s`, as tf32, which
  // holds every 16-bit number.
  __device__ void tf32_pair(int h, int s, int part, unsigned (&pair)[2]) const {
    const Run& run = runs_[h][s / (kRun / 4)];
    const int first = s % (kRun / 4) * 4 + 2 * part;
    pair[0] = __float_as_uint(run.get(first));
    pair[1] = __float_as_uint(run.get(first + 1));
  }

 private:
  static constexpr int kHalves = kKey.tokens / 8;
  static constexpr int kRuns = kKey.key_dim / (4 * kRun);

  Run runs_[kHalves][kRuns];
};

}  // namespace cubinery::dev
