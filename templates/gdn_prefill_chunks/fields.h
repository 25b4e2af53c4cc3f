// The field table of GdnPrefillChunksKey.  Persistent: names are part of kernel identities and
// tuning results.
#pragma once

#include "cubinery/fields.h"
#include "cubinery/gdn_fields.h"
#include "gdn_prefill_chunks/key.h"

namespace cubinery {

template <>
struct Fields<GdnPrefillChunksKey> {
  static constexpr const char* kName = "gdn_prefill_chunks";
  using Params = GdnPrefillChunksParams;
  using Key = GdnPrefillChunksKey;
  static constexpr auto kList =
      field_table(fixed<&Key::key_dim>(), fixed<&Key::dtype>(), gdn::input_dtype_fields<Key>(),
                  fixed<&Key::cu_seqlens_dtype>(), fixed<&Key::varlen>(),
                  gdn::input_mode_fields<Key>(), fixed<&Key::only_decays>(),
                  tuned_bits<&Key::chunk_size>(16, 32, 64), tuned<&Key::warps>(1, 2, 4));
};

}  // namespace cubinery
