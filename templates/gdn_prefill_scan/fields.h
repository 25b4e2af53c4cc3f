// The field table of GdnPrefillScanKey.  Persistent: names are part of kernel identities and tuning
// results.
#pragma once

#include "cubinery/fields.h"
#include "cubinery/gdn_fields.h"
#include "gdn_prefill_scan/key.h"

namespace cubinery {

template <>
struct Fields<GdnPrefillScanKey> {
  static constexpr const char* kName = "gdn_prefill_scan";
  using Params = GdnPrefillScanParams;
  using Key = GdnPrefillScanKey;
  static constexpr auto kList = field_table(
      fixed<&Key::key_dim>(), fixed<&Key::value_dim>(), fixed<&Key::dtype>(),
      fixed<&Key::output_dtype>(), gdn::state_dtype_fields<Key>(), fixed<&Key::cu_seqlens_dtype>(),
      fixed<&Key::varlen>(), gdn::state_place_fields<Key>(), gdn::state_use_fields<Key>(),
      fixed<&Key::checkpoints>(), fixed<&Key::segments>(), fixed<&Key::context_parallel>(),
      fixed<&Key::wgmma>(), fixed<&Key::threads_copy>(), fixed<&Key::makes_wy>(),
      gdn::input_dtype_fields<Key>(), gdn::input_mode_fields<Key>(),
      tuned_bits<&Key::chunk_size>(16, 32, 64), tuned<&Key::warps>(1, 2, 3, 4, 8),
      tuned<&Key::stages>(2, 3, 4, 6));
};

}  // namespace cubinery
