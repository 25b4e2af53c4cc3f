// The field table of GdnConvKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include <tuple>

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
  static constexpr auto kList = std::tuple_cat(
      std::tuple{fixed("key_dim", &Key::key_dim), fixed("dtype", &Key::dtype),
                 fixed("weight_dtype", &Key::weight_dtype), fixed("width", &Key::width),
                 fixed("activation", &Key::activation), fixed("has_bias", &Key::has_bias),
                 fixed("split_qkv", &Key::split_qkv)},
      gdn::input_dtype_fields<Key>(), gdn::state_dtype_fields<Key>(),
      std::tuple{fixed("cu_seqlens_dtype", &Key::cu_seqlens_dtype), fixed("varlen", &Key::varlen),
                 fixed("state_layout", "states.layout", &Key::states, &gdn::ConvStates::layout)},
      gdn::state_slot_fields<Key>(), gdn::input_mode_fields<Key>(), gdn::state_use_fields<Key>(),
      std::tuple{fixed("whole_window", "states.whole_window", &Key::states,
                       &gdn::ConvStates::whole_window),
                 fixed("stored_states", &Key::stored_states),
                 fixed("checkpoints", &Key::checkpoints),
                 fixed("from_accepted", &Key::from_accepted),
                 fixed("accepted_dtype", &Key::accepted_dtype), fixed("vectors", &Key::vectors),
                 tuned("lane_channels", &Key::lane_channels, 4, 8),
                 tuned("ahead", &Key::ahead, 1, 4, 8, 12, 16), tuned("warps", &Key::warps, 2, 4),
                 tuned("resident", &Key::resident, 256, 384, 512),
                 tuned("together", &Key::together, 1, 2, 4)});
};

}  // namespace cubinery
