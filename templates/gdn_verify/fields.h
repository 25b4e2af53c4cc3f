// The field table of GdnVerifyKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include "cubinery/fields.h"
#include "cubinery/gdn_decode_names.h"
#include "cubinery/gdn_fields.h"
#include "cubinery/gdn_verify_names.h"
#include "gdn_verify/key.h"

namespace cubinery {

template <>
struct Fields<GdnVerifyKey> {
  static constexpr const char* kName = "gdn_verify";
  using Params = GdnVerifyParams;
  using Key = GdnVerifyKey;
  static constexpr auto kList = field_table(
      fixed<&Key::key_dim>(), fixed<&Key::value_dim>(), fixed<&Key::dtype>(),
      fixed<&Key::output_dtype>(), gdn::input_dtype_fields<Key>(), gdn::state_dtype_fields<Key>(),
      fixed<&Key::cu_seqlens_dtype>(), fixed<&Key::varlen>(), gdn::state_place_fields<Key>(),
      gdn::input_mode_fields<Key>(), gdn::state_use_fields<Key>(), fixed<&Key::stored_states>(),
      fixed<&Key::from_accepted>(), fixed<&Key::accepted_dtype>(), fixed<&Key::round_each_token>(),
      fixed<&Key::output_norm>(), fixed<&Key::norm_weight_dtype>(), tuned<&Key::warp_v>(4, 8, 16),
      tuned_bits<&Key::k_lanes>(4, 8, 16), tuned_bits<&Key::vec_bytes>(4, 8, 16),
      tuned<&Key::warps>(1, 2, 4, 8));
};

}  // namespace cubinery
