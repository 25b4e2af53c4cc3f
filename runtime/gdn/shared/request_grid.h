// The grid of a kernel whose blocks take parts of requests: (blocks of a request, requests).
#pragma once

#include <algorithm>
#include <cstdint>

#include "cubinery/kernel.h"

namespace cubinery::gdn {

// Requests are the second dimension, which CUDA limits, and the third where they are more.
// Requires: at least one.
inline Launch request_grid(unsigned blocks, std::int64_t requests, bool programmatic) {
  constexpr unsigned kMostRows = 65535;
  const auto count = static_cast<unsigned>(requests);
  const unsigned rows = std::min(count, kMostRows);
  return {.grid_x = blocks,
          .grid_y = rows,
          .grid_z = (count - 1) / rows + 1,
          .programmatic = programmatic};
}

// Blocks of a request whose warps have warp_v value columns each.
template <class Key>
unsigned blocks_of_request(const Key& key, int heads) {
  const int warps = heads * (key.value_dim / key.warp_v);
  return static_cast<unsigned>((warps + key.warps - 1) / key.warps);
}

}  // namespace cubinery::gdn
