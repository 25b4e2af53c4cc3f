// From a prefill problem to the keys of its kernels.  Pure functions.
#pragma once

#include <tuple>
#include <vector>

#include "cubinery/fields.h"
#include "cubinery/gdn_prefill.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"

namespace cubinery {

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const PrefillProblem&) { return nullptr; }

// The kernels of the operator: one launch runs `chunks` and one of `scans`.  All have the same
// chunk_size, which is all that results depend on.
struct PrefillKeys {
  GdnPrefillChunksKey chunks;
  // From most warps per block (least traffic) to fewest (most blocks); the last has one.
  std::vector<GdnPrefillScanKey> scans;
};

// Keys that use at most `shared_limit` bytes of shared memory per block: max_shared_bytes() of some
// architecture.  Requires: problem.check() is OK.
PrefillKeys prefill_keys(const PrefillProblem& problem, int shared_limit);

}  // namespace gdn

// Persistent: names are those of manifests.
template <>
struct Fields<gdn::PrefillProblem> {
  static constexpr const char* kName = "gdn_prefill";
  using P = gdn::PrefillProblem;
  static constexpr auto kList = std::tuple{
      fixed("q_heads", &P::q_heads),
      fixed("k_heads", &P::k_heads),
      fixed("v_heads", &P::v_heads),
      fixed("key_dim", &P::key_dim),
      fixed("value_dim", &P::value_dim),
      fixed("dtype", &P::dtype),
      fixed("output_dtype", &P::output_dtype),
      fixed("gate_dtype", &P::gate_dtype),
      fixed("beta_dtype", &P::beta_dtype),
      fixed("a_log_dtype", &P::a_log_dtype),
      fixed("dt_bias_dtype", &P::dt_bias_dtype),
      fixed("state_dtype", &P::state_dtype),
      fixed("index_dtype", &P::index_dtype),
      fixed("cu_seqlens_dtype", &P::cu_seqlens_dtype),
      fixed("token_layout", &P::token_layout),
      fixed("varlen", &P::varlen),
      fixed("state_layout", &P::state_layout),
      fixed("state_location", &P::state_location),
      fixed("padding", &P::padding),
      fixed("pad_index", &P::pad_index),
      fixed("gate_mode", &P::gate_mode),
      fixed("beta_mode", &P::beta_mode),
      fixed("use_qk_l2norm", &P::use_qk_l2norm),
      fixed("has_initial_state", &P::has_initial_state),
      fixed("store_state", &P::store_state),
      fixed("checkpoints", &P::checkpoints),
      fixed("checkpoint_every", &P::checkpoint_every),
      fixed("batch_invariant", &P::batch_invariant),
  };
};

}  // namespace cubinery
