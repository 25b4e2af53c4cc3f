// The field table of GdnPrefillScanKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_fields.h"
#include "gdn_prefill_scan/key.h"

namespace cubinery {

template <>
struct Fields<GdnPrefillScanKey> {
  static constexpr const char* kName = "gdn_prefill_scan";
  using Params = GdnPrefillScanParams;
  using Key = GdnPrefillScanKey;
  static constexpr auto kList = std::tuple_cat(
      std::tuple{fixed("key_dim", &Key::key_dim), fixed("value_dim", &Key::value_dim),
                 fixed("dtype", &Key::dtype), fixed("output_dtype", &Key::output_dtype)},
      gdn::state_dtype_fields<Key>(),
      std::tuple{fixed("cu_seqlens_dtype", &Key::cu_seqlens_dtype), fixed("varlen", &Key::varlen)},
      gdn::state_place_fields<Key>(), gdn::state_use_fields<Key>(),
      std::tuple{fixed("checkpoints", &Key::checkpoints), fixed("parts", &Key::parts),
                 fixed("wgmma", &Key::wgmma), fixed("threads_copy", &Key::threads_copy),
                 fixed("makes_records", &Key::makes_records)},
      gdn::input_dtype_fields<Key>(), gdn::input_mode_fields<Key>(),
      std::tuple{tuned_bits("chunk_size", &Key::chunk_size, 16, 32, 64),
                 tuned("warps", &Key::warps, 1, 2, 3, 4, 8),
                 tuned("stages", &Key::stages, 2, 3, 4, 6)});
};

}  // namespace cubinery
