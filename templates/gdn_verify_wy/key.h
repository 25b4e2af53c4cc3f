// Compile-time parameters of gdn_verify_wy.  Compiled by the host and by NVRTC.
#pragma once

#include "common/tokens/key.h"
#include "common/verify_params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_decode_types.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery {

struct GdnVerifyWyKey {
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
  bool tree = false;
  DType parents_dtype = DType::kI32;
  int draft_tokens = 8;  // 4, 8 or 16: the fewest that hold a request's
  gdn::OutputNorm output_norm = gdn::OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;

  // Tuned.  Results depend on none.
  // Value columns of one head's state that a warp owns, with output_norm in each of its passes: 16,
  // 32, 64 or 128.
  int warp_v = 16;
  int held_v = 16;  // of those, in shared memory at a time: 16 or 32
  int warps = 4;    // per block
};

constexpr int threads(const GdnVerifyWyKey& key) { return key.warps * 32; }

// Registers of a thread, so many that no compiler spills.  Left to itself it holds more in flight
// than a warp has use for, and while one warp waits for its state others could compute.
constexpr int registers(const GdnVerifyWyKey& key) {
  const bool rows_are_v = key.states.layout == gdn::StateLayout::kVK;
  const bool has_next = key.warp_v > 16;  // columns behind the first 16
  const bool is_small = size_of(key.states.dtype) == 2;
  if (has_channels(key)) {
    if (key.draft_tokens > 8) return 200;
    if (!rows_are_v) return has_next ? 160 : 128;
    const bool is_short = key.key_dim <= 128 && !stores_every(key) && warp_passes(key) == 1;
    return is_small && is_short ? 102 : 128;
  }
  if (key.states.store && !stores_every(key) && rows_are_v && key.draft_tokens <= 8 &&
      key.key_dim <= 128 && warp_passes(key) == 1) {
    if (key.draft_tokens == 8) return is_small && !has_next ? 102 : 128;
    if (has_next || (key.from_accepted && !is_small)) return 128;
    return is_small && !is_normed(key) ? 85 : 102;
  }
  const int loop = (stores_every(key) ? 48 : key.states.store ? 32 : 24) + (rows_are_v ? 0 : 16);
  // Where every state is stored, the compiler works out k's operands once.
  const int operands = stores_every(key) ? 42 : 0;
  return operands + row_registers(key) * (key.states.store ? 2 : 1) + 28 + token_rows(key) * 9 / 2 +
         (has_next ? loop : 0) + (key.key_dim > 128 ? 32 : 0) + (warp_passes(key) > 1 ? 48 : 0);
}
constexpr int min_blocks(const GdnVerifyWyKey& key) {
  return blocks_with_registers(registers(key), key.warps);
}
constexpr int shared_bytes(const GdnVerifyWyKey& key) { return block_bytes(key); }

constexpr const char* why_invalid(const GdnVerifyWyKey& key) {
  if (const char* reason = why_tokens_invalid(key)) return reason;
  if (!is_float(key.output_dtype)) return "output_dtype must be f32, bf16 or f16";
  if (key.from_accepted && !key.states.has_initial) return "from_accepted needs has_initial_state";
  if (const char* reason = why_norm_invalid(key)) return reason;
  if (warp_passes(key) > 1 && key.warp_v != 16)  // else it spills
    return "several passes of a block over its head, with output_norm, need warp_v = 16";
  if (!is_integer(key.parents_dtype)) return "parents_dtype must be i32 or i64";
  if (key.tree && key.states.store && !stores_every(key))
    return "a tree has no last token, store_state needs stored_states = every";
  if ((key.tree || stores_every(key)) && key.draft_tokens > 8 &&
      key.warp_v != 16)  // else it spills
    return "a tree, or every state, of over 8 tokens needs warp_v = 16";
  return nullptr;
}

constexpr bool valid(const GdnVerifyWyKey& key) { return why_invalid(key) == nullptr; }

}  // namespace cubinery
