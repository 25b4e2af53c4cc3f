// The field table of GdnDecodeKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_names.h"
#include "gdn_decode/key.h"

namespace cubinery {

template <>
struct Fields<GdnDecodeKey> {
  static constexpr const char* kName = "gdn_decode";
  using Params = GdnDecodeParams;
  static constexpr auto kList = std::tuple{
      fixed("key_dim", &GdnDecodeKey::key_dim),
      fixed("value_dim", &GdnDecodeKey::value_dim),
      fixed("dtype", &GdnDecodeKey::dtype),
      fixed("output_dtype", &GdnDecodeKey::output_dtype),
      fixed("gate_dtype", &GdnDecodeKey::gate_dtype),
      fixed("beta_dtype", &GdnDecodeKey::beta_dtype),
      fixed("a_log_dtype", &GdnDecodeKey::a_log_dtype),
      fixed("dt_bias_dtype", &GdnDecodeKey::dt_bias_dtype),
      fixed("state_dtype", &GdnDecodeKey::state_dtype),
      fixed("index_dtype", &GdnDecodeKey::index_dtype),
      fixed("state_layout", &GdnDecodeKey::state_layout),
      fixed("state_location", &GdnDecodeKey::state_location),
      fixed("padding", &GdnDecodeKey::padding),
      fixed("pad_index", &GdnDecodeKey::pad_index),
      fixed("gate_mode", &GdnDecodeKey::gate_mode),
      fixed("beta_mode", &GdnDecodeKey::beta_mode),
      fixed("use_qk_l2norm", &GdnDecodeKey::use_qk_l2norm),
      fixed("has_initial_state", &GdnDecodeKey::has_initial_state),
      fixed("store_state", &GdnDecodeKey::store_state),
      tuned("warp_v", &GdnDecodeKey::warp_v, 4, 8, 16),
      tuned_bits("k_lanes", &GdnDecodeKey::k_lanes, 4, 8, 16),
      tuned_bits("vec_bytes", &GdnDecodeKey::vec_bytes, 4, 8, 16),
      tuned("warps", &GdnDecodeKey::warps, 1, 2, 4, 8),
  };
};

}  // namespace cubinery
