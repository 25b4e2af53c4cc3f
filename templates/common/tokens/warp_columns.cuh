// Which columns of which head a warp has, in a grid whose first dimension is the blocks of a
// request.
#pragma once

#include "common/tokens/key.h"
#include "common/uniform.cuh"

namespace cubinery::dev {

// A warp's part of a request: value columns of a head.
template <auto kKey>
struct WarpColumns {
  static constexpr int kUnits = kKey.value_dim / warp_columns(kKey);  // of a head
  static constexpr bool kOneHead = is_of_one_head(kKey);              // of a block

  int warp, head, first_v;

  __device__ WarpColumns() {
    warp = uniform(threadIdx.x / 32);
    if constexpr (kOneHead) {
      // By the block's number alone: then addresses are computed once for all its threads.
      constexpr int kBlocks = kOneHead ? kUnits / kKey.warps : 1;
      head = blockIdx.x / kBlocks;
      first_v = (blockIdx.x % kBlocks * kKey.warps + warp) * warp_columns(kKey);
    } else {
      const int unit = blockIdx.x * kKey.warps + warp;
      head = unit / kUnits;
      first_v = unit % kUnits * kKey.warp_v;
    }
  }
};

}  // namespace cubinery::dev
