// From a decode problem to the keys of its kernels.  Pure functions.
#pragma once

#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode.h"
#include "gdn_decode/key.h"

namespace cubinery {

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const DecodeProblem&) { return nullptr; }

// The two kernels of the operator.  They sum in the same order, so a request gets the same bits
// from both.
struct DecodeKeys {
  GdnDecodeKey wide;  // many value columns per warp: few, long streams of loads, for large batches
  GdnDecodeKey narrow;  // few value columns per warp: more warps, for small batches
};

// Requires: problem.check() is OK.
DecodeKeys decode_keys(const DecodeProblem& problem);

}  // namespace gdn

// Persistent: names are those of manifests.
template <>
struct Fields<gdn::DecodeProblem> {
  static constexpr const char* kName = "gdn_decode";
  using P = gdn::DecodeProblem;
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
      fixed("state_layout", &P::state_layout),
      fixed("state_location", &P::state_location),
      fixed("padding", &P::padding),
      fixed("pad_index", &P::pad_index),
      fixed("gate_mode", &P::gate_mode),
      fixed("beta_mode", &P::beta_mode),
      fixed("use_qk_l2norm", &P::use_qk_l2norm),
      fixed("has_initial_state", &P::has_initial_state),
      fixed("store_state", &P::store_state),
  };
};

}  // namespace cubinery
