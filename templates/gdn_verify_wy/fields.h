// The field table of GdnVerifyWyKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_fields.h"
#include "cubinery/gdn_verify_names.h"
#include "gdn_verify_wy/key.h"

namespace cubinery {

template <>
struct Fields<GdnVerifyWyKey> {
  static constexpr const char* kName = "gdn_verify_wy";
  using Params = GdnVerifyParams;
  using Key = GdnVerifyWyKey;
  static constexpr auto kList = std::tuple_cat(
      std::tuple{fixed("key_dim", &Key::key_dim), fixed("value_dim", &Key::value_dim),
                 fixed("dtype", &Key::dtype), fixed("output_dtype", &Key::output_dtype)},
      gdn::input_dtype_fields<Key>(), gdn::state_dtype_fields<Key>(),
      std::tuple{fixed("cu_seqlens_dtype", &Key::cu_seqlens_dtype), fixed("varlen", &Key::varlen)},
      gdn::state_place_fields<Key>(), gdn::input_mode_fields<Key>(), gdn::state_use_fields<Key>(),
      std::tuple{fixed("stored_states", &Key::stored_states),
                 fixed("from_accepted", &Key::from_accepted),
                 fixed("accepted_dtype", &Key::accepted_dtype), fixed("tree", &Key::tree),
                 fixed("parents_dtype", &Key::parents_dtype), fixed("max_tokens", &Key::max_tokens),
                 tuned("warp_v", &Key::warp_v, 16, 32, 64, 128),
                 tuned("held_v", &Key::held_v, 16, 32), tuned("warps", &Key::warps, 1, 2, 4, 8)});
};

}  // namespace cubinery
