// The field table of GdnDecodeKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

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
  static constexpr auto kList = field_table(
      fixed<&Key::key_dim>(), fixed<&Key::value_dim>(), fixed<&Key::dtype>(),
      fixed<&Key::output_dtype>(), gdn::input_dtype_fields<Key>(),
      gdn::state_dtype_fields<Key>(gdn::kStateFloats), gdn::state_place_fields<Key>(),
      gdn::input_mode_fields<Key>(), gdn::state_use_fields<Key>(), fixed<&Key::output_norm>(),
      fixed<&Key::norm_weight_dtype>(), gdn::decode_conv_fields<Key>(),
      tuned<&Key::warp_v>(4, 8, 16, 32), tuned<&Key::held_v>(4, 8, 16),
      tuned_bits<&Key::k_lanes>(4, 8, 16), tuned_bits<&Key::vec_bytes>(2, 4, 8, 16),
      tuned<&Key::warps>(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
};

}  // namespace cubinery
