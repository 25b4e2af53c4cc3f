// Rules of the keys of kernels that take all tokens of a request at once, in the WY form
// (factors.cuh): a warp has warp_v value columns of one head's state, of which it holds
// held_v at a time.  Compiled by the host and by NVRTC.
#pragma once

#include "common/key_rules.h"
#include "common/output_norm.h"
#include "common/verify_params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"

namespace cubinery {

// Whether the kernel computes o; one that only commits states has no q.
template <class Key>
constexpr bool has_outputs(const Key&) {
  return requires(const Key& key) { key.output_dtype; };
}

// Rows of the products over tokens.
template <class Key>
constexpr int token_rows(const Key& key) {
  return key.draft_tokens < 8 ? 8 : key.draft_tokens;
}

// Whether k and q of up to four tokens are the rows of one operand: k of token i is row i, q row
// i + 4.
template <class Key>
constexpr bool is_paired(const Key& key) {
  return has_outputs(key) && key.draft_tokens == 4;
}

// Whether the tokens of a request are a tree.
template <class Key>
constexpr bool is_tree(const Key& key) {
  if constexpr (requires { key.tree; }) return key.tree;
  return false;
}

// Neighbouring keys of a value column that a lane has together, in one vector where they are
// neighbours in memory too.
template <class Key>
constexpr int key_run(const Key& key) {
  const bool is_long = size_of(key.states.dtype) == 2 && key.key_dim % 32 == 0;
  return is_long ? 8 : 4;
}

// Registers that a thread needs for its part of the rows of k and q.
template <class Key>
constexpr int row_registers(const Key& key) {
  const int operands = has_outputs(key) && !is_paired(key) ? 2 : 1;
  return operands * key.key_dim * token_rows(key) / (32 * 2);
}

// Whether the warps of a block all have columns of one head.  They share what tokens need no state
// for.
template <class Key>
constexpr bool is_of_one_head(const Key& key) {
  return key.value_dim / key.warp_v % key.warps == 0;
}
template <class Key>
constexpr int factor_bytes(const Key& key) {
  const int halves = token_rows(key) / 8, made = has_outputs(key) && !is_paired(key) ? 2 : 1;
  const int floats = made * (2 * halves * halves + 2 * halves) + 6 * halves + 2;  // of a lane
  return is_of_one_head(key) && key.warps > 1 ? floats * 32 * 4 : 0;
}

// Of outputs that wait for a norm.
template <class Key>
constexpr int waiting_bytes(const Key& key) {
  return is_normed(key) ? key.draft_tokens * waiting_stride(key) * 4 : 0;
}

// Whether each channel of k has a decay (channels.cuh).
template <class Key>
constexpr bool has_channels(const Key& key) {
  return key.inputs.decay == gdn::Decay::kChannel;
}
// Whether such a key stores the state after the last token alone.
template <class Key>
constexpr bool stores_channels_once(const Key& key) {
  if constexpr (requires { key.stored_states; }) return key.states.store && !stores_every(key);
  return key.states.store;
}
// What is summed over them: products of tokens j <= i of k with k and of q with k, and squares of
// q.
template <class Key>
constexpr int channel_sums(const Key& key) {
  const int pairs = key.draft_tokens * (key.draft_tokens + 1) / 2;
  return has_outputs(key) ? 2 * pairs + key.draft_tokens : pairs;
}
// Units of 32 channels, of which a warp makes one at a time.
template <class Key>
constexpr int channel_units(const Key& key) {
  return (key.key_dim + 31) / 32;
}
// Floats of K', and of Q' where that is an operand of its own.
template <class Key>
constexpr int scaled_row_floats(const Key& key) {
  return (has_outputs(key) && !is_paired(key) ? 2 : 1) * token_rows(key) * key.key_dim;
}

// Where channels.cuh has what it makes behind K' and Q', in floats: rows of decays, k and q, K" of
// outputs' keys in the place of q, the decay over all tokens, sums; then the end.
struct AnyChannelPlaces {
  int decays, k, q, updates, last_decay, sums, end;
};
template <class Key>
constexpr AnyChannelPlaces any_channel_places(const Key& key) {
  const int rows = key.draft_tokens * key.key_dim;
  const bool updates = stores_channels_once(key);
  AnyChannelPlaces at{};
  at.decays = scaled_row_floats(key);
  at.k = at.decays + rows;
  at.q = at.updates = at.k + rows;
  at.last_decay = at.q + (updates ? token_rows(key) * key.key_dim : has_outputs(key) ? rows : 0);
  at.sums = at.last_decay + (updates ? key.key_dim : 0);
  at.end = at.sums + channel_sums(key);
  return at;
}

// Whether rows over channels lie in shared memory as two bf16 for each fp32 number
// (bf16_parts.cuh): 16 bits, and states and outputs have fewer.
template <class Key>
constexpr bool has_bf16_rows(const Key& key) {
  if constexpr (requires { key.output_dtype; }) {
    if (key.output_dtype == DType::kF32) return false;
  }
  return has_channels(key) && key.states.dtype == DType::kBF16;
}

// Whether decays have a bound that bounded_channels.cuh needs.
template <class Key>
constexpr bool is_bounded(const Key& key) {
  return has_channels(key) && key.inputs.gate_mode == gdn::GateMode::kLowerBound;
}
// Of what that makes: rows of decays, of the last token or of all; parts of the products, a warp
// each; numbers of a lane's products in a part, and floats of a part.
template <class Key>
constexpr int bounded_decay_rows(const Key& key) {
  if (!key.states.store) return 0;
  return stores_channels_once(key) ? 1 : key.draft_tokens;
}
template <class Key>
constexpr int bounded_parts(const Key& key) {
  return key.warps < channel_units(key) ? key.warps : channel_units(key);
}
template <class Key>
constexpr int bounded_numbers(const Key& key) {
  const int halves = token_rows(key) / 8;
  return 2 * halves * halves * (has_outputs(key) && !is_paired(key) ? 2 : 1);
}
template <class Key>
constexpr int bounded_part(const Key& key) {
  return bounded_numbers(key) * 32 + (has_outputs(key) ? key.draft_tokens : 0);
}
// Where it has that behind K' and Q', in floats.
struct BoundedChannelPlaces {
  int updates, decays, parts, end;
};
template <class Key>
constexpr BoundedChannelPlaces bounded_channel_places(const Key& key) {
  BoundedChannelPlaces at{};
  at.updates = scaled_row_floats(key);
  at.decays = at.updates + token_rows(key) * key.key_dim;
  at.parts = at.decays + bounded_decay_rows(key) * key.key_dim;
  at.end = at.parts + bounded_parts(key) * bounded_part(key);
  return at;
}

template <class Key>
constexpr int channel_bytes(const Key& key) {
  if (!has_channels(key)) return 0;
  const int floats =
      is_bounded(key) ? bounded_channel_places(key).end : any_channel_places(key).end;
  return (floats + 3) / 4 * 16;
}

// Shared memory of a block: the states of its warps, where they are read or on their way out, then
// what waits, then the factors, then channels.
template <class Key>
constexpr int block_bytes(const Key& key) {
  const int states = key.warps * key.held_v * key.key_dim * size_of(key.states.dtype);
  return (key.states.has_initial || key.states.store ? states : 0) + waiting_bytes(key) +
         factor_bytes(key) + channel_bytes(key);
}
template <class Key>
constexpr int channels_at(const Key& key) {
  return block_bytes(key) - channel_bytes(key);
}
template <class Key>
constexpr int factors_at(const Key& key) {
  return channels_at(key) - factor_bytes(key);
}

// Blocks of a multiprocessor that have so many registers for each thread.  Each of its four
// schedulers has registers of its own.
constexpr int blocks_with_registers(int registers, int warps) {
  const int all_warps = 4 * (65536 / 4 / 32 / registers);
  return all_warps > warps ? all_warps / warps : 1;
}

// The rule that a key breaks, or nullptr.
template <class Key>
constexpr const char* why_tokens_invalid(const Key& key) {
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_head_dim(key.value_dim)) return "value_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype) || size_of(key.dtype) != 2) return "dtype must be bf16 or f16";
  if (const char* reason = why_inputs_invalid(key)) return reason;
  if (const char* reason = gdn::why_invalid_without_fp8(key.states)) return reason;
  if (!is_integer(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (!is_integer(key.accepted_dtype)) return "accepted_dtype must be i32 or i64";
  if (!is_paired(key) && key.draft_tokens != 8 && key.draft_tokens != 16)
    return has_outputs(key) ? "draft_tokens must be 4, 8 or 16" : "draft_tokens must be 8 or 16";
  if (key.warp_v != 16 && key.warp_v != 32 && key.warp_v != 64 && key.warp_v != 128)
    return "warp_v must be 16, 32, 64 or 128";
  if (key.held_v != 16 && key.held_v != 32) return "held_v must be 16 or 32";
  if (key.held_v > key.warp_v) return "held_v must not pass warp_v";
  if (key.value_dim % key.warp_v != 0) return "warp_v must divide value_dim";
  if (key.key_dim > 128 && key.warp_v != 16) return "key_dim over 128 needs warp_v = 16";
  if (key.warps < 1 || key.warps > 16) return "warps must be from 1 to 16";
  if (has_channels(key) && !is_of_one_head(key))
    return "warps * warp_v must divide value_dim with decay = channel: a block has columns of one "
           "head";
  // Of every architecture.
  if (block_bytes(key) > 96 * 1024) return "states of a block pass 96 KiB of shared memory";
  return nullptr;
}

}  // namespace cubinery
