// Compile-time parameters of gdn_verify_wy.  Compiled by the host and by NVRTC.
#pragma once

#include "common/key_rules.h"
#include "common/verify_params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery {

struct GdnVerifyWyKey {
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
  int max_tokens = 8;  // 8 or 16, rows of the products: the fewest that hold a request's

  // Tuned.  Results depend on neither.
  int warp_v = 16;  // value columns of one head's state that a warp owns: 16, 32 or 64
  int warps = 4;    // per block
};

constexpr int threads(const GdnVerifyWyKey& key) { return key.warps * 32; }

// Neighbouring keys of a value column that a lane has together, in one vector where they are
// neighbours in memory too.
constexpr int key_run(const GdnVerifyWyKey& key) {
  const bool is_long = size_of(key.states.dtype) == 2 && key.key_dim % 32 == 0;
  return is_long ? 8 : 4;
}

// Registers that a thread needs for its part of k and of q.
constexpr int data_registers(const GdnVerifyWyKey& key) {
  return 2 * key.key_dim * key.max_tokens / (32 * 2);
}

// Registers of a thread, so many that no compiler spills.  Left to itself it holds more in flight
// than a warp has use for, and while one warp waits for its state others could compute.
constexpr int registers(const GdnVerifyWyKey& key) {
  const bool stores_every = key.states.store && key.stored_states == gdn::StoredStates::kEvery;
  const int loop = stores_every ? 48 : key.states.store ? 32 : 24;
  return data_registers(key) * (key.states.store ? 2 : 1) + 28 + key.max_tokens * 9 / 2 +
         (key.warp_v > 16 ? loop : 0) + (key.key_dim > 128 ? 16 : 0);
}
constexpr int min_blocks(const GdnVerifyWyKey& key) {
  const int warps = 4 * (65536 / 4 / 32 / registers(key));  // each of four schedulers has its own
  return warps > key.warps ? warps / key.warps : 1;
}

// Whether the warps of a block all have columns of one head.  They share what tokens need no state
// for.
constexpr bool is_of_one_head(const GdnVerifyWyKey& key) {
  return key.value_dim / key.warp_v % key.warps == 0;
}
constexpr int factor_bytes(const GdnVerifyWyKey& key) {
  const int halves = key.max_tokens / 8;
  const int floats = 4 * halves * halves + 8 * halves + 1;  // of a lane
  return is_of_one_head(key) && key.warps > 1 ? floats * 32 * 4 : 0;
}

// The states of the block's warps, and the factors.
constexpr int shared_bytes(const GdnVerifyWyKey& key) {
  const int states = key.warps * key.warp_v * key.key_dim * size_of(key.states.dtype);
  return (key.states.has_initial ? states : 0) + factor_bytes(key);
}

constexpr const char* why_invalid(const GdnVerifyWyKey& key) {
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_head_dim(key.value_dim)) return "value_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype) || size_of(key.dtype) != 2) return "dtype must be bf16 or f16";
  if (!is_float(key.output_dtype)) return "output_dtype must be f32, bf16 or f16";
  if (const char* reason = gdn::why_invalid(key.inputs)) return reason;
  if (const char* reason = gdn::why_invalid(key.states)) return reason;
  if (is_float(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (is_float(key.accepted_dtype)) return "accepted_dtype must be i32 or i64";
  if (key.from_accepted && !key.states.has_initial) return "from_accepted needs has_initial_state";
  if (is_float(key.parents_dtype)) return "parents_dtype must be i32 or i64";
  if (key.tree && key.states.store && key.stored_states != gdn::StoredStates::kEvery)
    return "a tree has no last token, store_state needs stored_states = every";
  if (key.max_tokens != 8 && key.max_tokens != 16) return "max_tokens must be 8 or 16";
  if (key.warp_v != 16 && key.warp_v != 32 && key.warp_v != 64)
    return "warp_v must be 16, 32 or 64";
  if (key.value_dim % key.warp_v != 0) return "warp_v must divide value_dim";
  if (key.key_dim > 128 && key.warp_v != 16) return "key_dim over 128 needs warp_v = 16";
  if (key.tree && key.max_tokens > 8 && key.warp_v != 16)  // as many registers as there are
    return "a tree of over 8 tokens needs warp_v = 16";
  if (key.warps < 1 || key.warps > 16) return "warps must be from 1 to 16";
  // Of every architecture.
  if (shared_bytes(key) > 96 * 1024) return "states of a block pass 96 KiB of shared memory";
  return nullptr;
}

constexpr bool valid(const GdnVerifyWyKey& key) { return why_invalid(key) == nullptr; }

}  // namespace cubinery
