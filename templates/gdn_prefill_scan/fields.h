// The field table of GdnPrefillScanKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_names.h"
#include "gdn_prefill_scan/key.h"

namespace cubinery {

template <>
struct Fields<GdnPrefillScanKey> {
  static constexpr const char* kName = "gdn_prefill_scan";
  using Params = GdnPrefillScanParams;
  using Key = GdnPrefillScanKey;
  static constexpr auto kList = std::tuple{
      fixed("key_dim", &Key::key_dim),
      fixed("value_dim", &Key::value_dim),
      fixed("dtype", &Key::dtype),
      fixed("output_dtype", &Key::output_dtype),
      fixed("state_dtype", &Key::state_dtype),
      fixed("index_dtype", &Key::index_dtype),
      fixed("cu_seqlens_dtype", &Key::cu_seqlens_dtype),
      fixed("varlen", &Key::varlen),
      fixed("state_layout", &Key::state_layout),
      fixed("state_location", &Key::state_location),
      fixed("padding", &Key::padding),
      fixed("pad_index", &Key::pad_index),
      fixed("has_initial_state", &Key::has_initial_state),
      fixed("store_state", &Key::store_state),
      fixed("checkpoints", &Key::checkpoints),
      tuned_bits("chunk_size", &Key::chunk_size, 16, 32, 64),
      tuned("warps", &Key::warps, 1, 2, 3, 4),
      tuned("stages", &Key::stages, 2, 3, 4),
  };
};

}  // namespace cubinery
