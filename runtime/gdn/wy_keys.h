// What the paths of verify and commit have in common that take all tokens of a request at once.
#pragma once

#include <tuple>
#include <vector>

#include "common/token_key.h"

namespace cubinery::gdn {

// The default configurations, from a key's fixed fields: blocks of four warps.  States of 16 bits
// pass faster than what every warp does once: where there are many, warps have twice as many
// columns.
template <class Key>
std::vector<std::tuple<Key>> default_wy_keys(Key key) {
  Key wide = key;
  wide.warp_v = wide.held_v = 32;
  wide.warps = key.states.store ? 2 : 1;
  key.warps = 4;
  while (!valid(key)) key.warps /= 2;  // a long key_dim
  if (size_of(key.states.dtype) == 2 && valid(wide)) return {wide, key};
  return {key};
}

}  // namespace cubinery::gdn
