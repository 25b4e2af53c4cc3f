// The field table of GdnConvKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include "cubinery/fields.h"
#include "cubinery/gdn_conv_names.h"
#include "cubinery/gdn_fields.h"
#include "cubinery/gdn_verify_names.h"
#include "gdn_conv/key.h"

namespace cubinery {

template <>
struct Fields<GdnConvKey> {
  static constexpr const char* kName = "gdn_conv";
  using Params = GdnConvParams;
  using Key = GdnConvKey;
  static constexpr auto kList = field_table(
      fixed<&Key::key_dim>(), fixed<&Key::dtype>(), fixed<&Key::weight_dtype>(),
      fixed<&Key::width>(), fixed<&Key::activation>(), fixed<&Key::has_bias>(),
      fixed<&Key::split_qkv>(), gdn::input_dtype_fields<Key>(), gdn::state_dtype_fields<Key>(),
      fixed<&Key::cu_seqlens_dtype>(), fixed<&Key::varlen>(),
      fixed<&Key::states, &gdn::ConvStates::layout>().named("state_layout"),
      gdn::state_slot_fields<Key>(), gdn::input_mode_fields<Key>(), gdn::state_use_fields<Key>(),
      fixed<&Key::states, &gdn::ConvStates::whole_window>(), fixed<&Key::stored_states>(),
      fixed<&Key::checkpoints>(), fixed<&Key::from_accepted>(), fixed<&Key::accepted_dtype>(),
      fixed<&Key::circular_state>(), fixed<&Key::vectors>(), tuned<&Key::lane_channels>(4, 8),
      tuned<&Key::ahead>(1, 4, 8, 12, 16), tuned<&Key::warps>(2, 4),
      tuned<&Key::resident>(256, 384, 512), tuned<&Key::together>(1, 2, 4));
};

}  // namespace cubinery
