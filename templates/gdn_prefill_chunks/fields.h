// The field table of GdnPrefillChunksKey.  Persistent: names are part of kernel identities and
// tuning results.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_names.h"
#include "gdn_prefill_chunks/key.h"

namespace cubinery {

template <>
struct Fields<GdnPrefillChunksKey> {
  static constexpr const char* kName = "gdn_prefill_chunks";
  using Params = GdnPrefillChunksParams;
  using Key = GdnPrefillChunksKey;
  static constexpr auto kList = std::tuple{
      fixed("key_dim", &Key::key_dim),
      fixed("dtype", &Key::dtype),
      fixed("gate_dtype", &Key::gate_dtype),
      fixed("beta_dtype", &Key::beta_dtype),
      fixed("a_log_dtype", &Key::a_log_dtype),
      fixed("dt_bias_dtype", &Key::dt_bias_dtype),
      fixed("cu_seqlens_dtype", &Key::cu_seqlens_dtype),
      fixed("varlen", &Key::varlen),
      fixed("gate_mode", &Key::gate_mode),
      fixed("beta_mode", &Key::beta_mode),
      fixed("use_qk_l2norm", &Key::use_qk_l2norm),
      tuned_bits("chunk_size", &Key::chunk_size, 16, 32, 64),
      tuned("warps", &Key::warps, 1, 2, 4),
  };
};

}  // namespace cubinery
