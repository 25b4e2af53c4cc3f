// What operators share whose launches are made of requests, of one token or of several: grids,
// sizes, default keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "common/tokens/key.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/kernel.h"
#include "runtime/operator/plan.h"

namespace cubinery::gdn {

// ---- Grids: (blocks of a request, requests) -----------------------------------------------------

// Requests are the second dimension, which CUDA limits, and the third where they are more.
// Requires: at least one.
inline Launch request_grid(unsigned blocks, std::int64_t requests, bool enable_pdl) {
  constexpr unsigned kMostRows = 65535;
  const auto count = static_cast<unsigned>(requests);
  const unsigned rows = std::min(count, kMostRows);
  return {.grid = {blocks, rows, (count - 1) / rows + 1}, .enable_pdl = enable_pdl};
}

// Blocks of a request whose warps have `columns` value columns each.
template <class Key>
unsigned blocks_of_request(const Key& key, int heads, int columns) {
  const int warps = heads * (key.value_dim / columns);
  return static_cast<unsigned>((warps + key.warps - 1) / key.warps);
}
template <class Key>
unsigned blocks_of_request(const Key& key, int heads) {
  return blocks_of_request(key, heads, key.warp_v);
}

// ---- Sizes -------------------------------------------------------------------------------------

// Along the states, up to 2^`count`, of whole requests.
inline Sizes sizes_of_states(const Heads& heads, std::size_t count) {
  return {.axes = {{.first = 0, .count = count}},
          .possible =
              [heads = std::int64_t{heads.count()}](const Point& at) {
                return Point{std::max(at[0], heads), 1, 1};
              },
          .features =
              [](const Point& at) {
                return Shape{{"states", at[0]}};
              }};
}

// ---- Keys of the paths that take all tokens of a request at once --------------------------------

// The default configurations, from a key's fixed fields: blocks of four warps with as few columns
// each as a product has, of eight where a block has a whole head, and, where what every warp does
// once takes long beside the passing of its states, blocks of two warps with half a head each.
// With decays of channels, which a block makes rows of: few warps that have a whole head, but where
// an f32 state is stored beside outputs, which costs them more; where every state is, and in
// commits before Hopper, they would spill.
template <class Key>
std::vector<std::tuple<Key>> default_wy_keys(Key key, const Target& target) {
  const auto with_warps = [](Key made, int warps) {
    made.warps = warps;
    while (!valid(made) && made.warps > 1) made.warps /= 2;  // a long key_dim, or few columns
    return made;
  };
  Key wide = key;
  wide.held_v = key.draft_tokens > 8 ? 32 : 16;
  bool is_fast;
  if (has_channels(key)) {
    wide.warp_v = 32;
    wide = with_warps(wide, 4);
    const bool keeps_one = stores_channels_once(key);
    const bool keeps_every = key.states.store && !keeps_one;
    is_fast = !keeps_every && (has_outputs(key) ? !keeps_one || size_of(key.states.dtype) == 2
                                                : target.arch.major >= 9);
  } else {
    wide.warp_v = 64;
    wide.warps = 2;
    is_fast = key.draft_tokens > 8 || (key.draft_tokens == 8 && !key.states.store);
  }
  key = with_warps(key, is_normed(key) ? 8 : 4);
  if (is_fast && valid(wide)) return {wide, key};
  return {key};
}

}  // namespace cubinery::gdn
