// What the paths of verify and commit have in common that take all tokens of a request at once.
#pragma once

#include <tuple>
#include <vector>

#include "common/token_key.h"

namespace cubinery::gdn {

// The default configurations, from a key's fixed fields: blocks of four warps with as few columns
// each as a product has, and, where what every warp does once takes long beside the passing of its
// states, blocks of two warps with half a head each.
template <class Key>
std::vector<std::tuple<Key>> default_wy_keys(Key key) {
  Key wide = key;
  wide.warp_v = 64;
  wide.held_v = key.max_tokens > 8 ? 32 : 16;
  wide.warps = 2;
  key.warps = 4;
  while (!valid(key)) key.warps /= 2;  // a long key_dim
  const bool is_long = key.max_tokens > 8 || (key.max_tokens == 8 && !key.states.store);
  if (is_long && valid(wide)) return {wide, key};
  return {key};
}

}  // namespace cubinery::gdn
