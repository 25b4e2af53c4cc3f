// Compile-time parameters of gdn_verify.  Compiled by the host and by NVRTC.
#pragma once

#include "common/key_rules.h"
#include "common/verify_params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_decode_types.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery {

struct GdnVerifyKey {
  static constexpr bool kTakesChannelDecays = true;

  // The problem: gdn::VerifyProblem explains each.
  int key_dim = 128;
  int value_dim = 128;
  DType dtype = DType::kBF16;
  DType output_dtype = DType::kBF16;
  gdn::Inputs inputs{};
  gdn::States states{};
  DType cu_seqlens_dtype = DType::kI32;
  bool varlen = false;
  gdn::StoredStates stored_states = gdn::StoredStates::kLast;
  bool from_accepted = false;
  DType accepted_dtype = DType::kI32;
  bool round_each_token = false;
  gdn::OutputNorm output_norm = gdn::OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;

  // Tuned, as in GdnDecodeKey: results depend on k_lanes and vec_bytes, not on warp_v and warps.
  int warp_v = 16;  // at a time, with output_norm (warp_columns())
  int k_lanes = 8;
  int vec_bytes = 16;  // of the state, per load and store
  int warps = 4;       // per block
};

constexpr int threads(const GdnVerifyKey& key) { return key.warps * 32; }

// Registers that a thread needs for its part of the state, in fp32 whatever its dtype, and of k and
// q: of a token in fp32, of the next one as they are given.  Of decays: of a token.
constexpr int data_registers(const GdnVerifyKey& key) {
  const int row = key.key_dim / key.k_lanes;
  const int decays = key.inputs.decay == gdn::Decay::kChannel ? row : 0;
  return key.key_dim * key.warp_v / 32 + 2 * row + 2 * row * size_of(key.dtype) / 4 + decays;
}

constexpr const char* why_invalid(const GdnVerifyKey& key) {
  const int v_lanes = key.k_lanes > 0 && key.k_lanes <= 32 ? 32 / key.k_lanes : 0;
  const int vec = key.vec_bytes / size_of(key.states.dtype);
  const bool rows_are_v = key.states.layout == gdn::StateLayout::kVK;
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_head_dim(key.value_dim)) return "value_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (!is_float(key.output_dtype)) return "output_dtype must be f32, bf16 or f16";
  if (const char* reason = why_inputs_invalid(key)) return reason;
  if (const char* reason = gdn::why_invalid_without_fp8(key.states)) return reason;
  if (!is_integer(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (!is_integer(key.accepted_dtype)) return "accepted_dtype must be i32 or i64";
  if (key.from_accepted && !key.states.has_initial) return "from_accepted needs has_initial_state";
  if (!is_power_of_two(key.k_lanes) || v_lanes == 0) return "k_lanes must be 1, 2, 4, 8, 16 or 32";
  if (key.vec_bytes != 4 && key.vec_bytes != 8 && key.vec_bytes != 16)
    return "vec_bytes must be 4, 8 or 16";
  if (key.warps < 1 || key.warps > 16) return "warps must be from 1 to 16";
  if (key.warp_v < 1 || key.value_dim % key.warp_v != 0) return "warp_v must divide value_dim";
  if (rows_are_v && key.key_dim % (key.k_lanes * vec) != 0)
    return "k_lanes * vec_bytes must divide a row of key_dim";
  if (rows_are_v && key.warp_v % v_lanes != 0) return "warp_v must be a multiple of 32 / k_lanes";
  if (!rows_are_v && key.key_dim % key.k_lanes != 0) return "k_lanes must divide key_dim";
  if (!rows_are_v && key.warp_v % (v_lanes * vec) != 0)
    return "warp_v must be a multiple of a row of (32 / k_lanes) * vec_bytes";
  if (data_registers(key) > 176)
    return "a thread's part of the state, k and q passes 176 registers";
  return why_norm_invalid(key);
}

constexpr bool valid(const GdnVerifyKey& key) { return why_invalid(key) == nullptr; }

}  // namespace cubinery
