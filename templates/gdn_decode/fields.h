// The field table of GdnDecodeKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode_names.h"
#include "cubinery/gdn_fields.h"
#include "gdn_decode/key.h"

namespace cubinery {

template <>
struct Fields<GdnDecodeKey> {
  static constexpr const char* kName = "gdn_decode";
  using Params = GdnDecodeParams;
  using Key = GdnDecodeKey;
  static constexpr auto kList = std::tuple_cat(
      std::tuple{fixed("key_dim", &Key::key_dim), fixed("value_dim", &Key::value_dim),
                 fixed("dtype", &Key::dtype), fixed("output_dtype", &Key::output_dtype)},
      gdn::input_dtype_fields<Key>(), gdn::state_dtype_fields<Key>(gdn::kStateFloats),
      gdn::state_place_fields<Key>(), gdn::input_mode_fields<Key>(), gdn::state_use_fields<Key>(),
      std::tuple{fixed("output_norm", &Key::output_norm),
                 fixed("norm_weight_dtype", &Key::norm_weight_dtype)},
      gdn::decode_conv_fields<Key>(),
      std::tuple{
          tuned("warp_v", &Key::warp_v, 4, 8, 16, 32), tuned("held_v", &Key::held_v, 4, 8, 16),
          tuned_bits("k_lanes", &Key::k_lanes, 4, 8, 16),
          tuned_bits("vec_bytes", &Key::vec_bytes, 2, 4, 8, 16),
          tuned("warps", &Key::warps, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)});
};

}  // namespace cubinery
