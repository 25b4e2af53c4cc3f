// Compile-time parameters and arguments of gdn_commit.  Compiled by the host and by NVRTC.
#pragma once

#include "common/params.h"
#include "common/tokens/key.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"

namespace cubinery {

struct GdnCommitKey {
  static constexpr bool kTakesChannelDecays = true;

  // The problem: gdn::CommitProblem explains each.
  int key_dim = 128;
  int value_dim = 128;
  DType dtype = DType::kBF16;
  gdn::Inputs inputs{};
  gdn::States states{};
  DType cu_seqlens_dtype = DType::kI32;
  bool varlen = false;
  DType accepted_dtype = DType::kI32;
  int draft_tokens = 8;  // 8 or 16, rows of the products: the fewest that hold a request's

  // Tuned.  Results depend on none.
  int warp_v = 16;  // value columns of one head's state that a warp owns: 16, 32, 64 or 128
  int held_v = 16;  // of those, in shared memory at a time: 16 or 32
  int warps = 4;    // per block
};

constexpr int threads(const GdnCommitKey& key) { return key.warps * 32; }

// Registers of a thread, so many that no compiler spills: k, the operands that are made of it, and
// the factors.
constexpr int registers(const GdnCommitKey& key) {
  if (has_channels(key)) return key.draft_tokens <= 8 ? 128 : 200;
  return row_registers(key) * 2 + 48 + key.draft_tokens * 4 + (key.warp_v > 16 ? 32 : 0) +
         (key.key_dim > 128 ? 40 : 0);
}
constexpr int min_blocks(const GdnCommitKey& key) {
  return blocks_with_registers(registers(key), key.warps);
}
constexpr int shared_bytes(const GdnCommitKey& key) { return block_bytes(key); }

constexpr const char* why_invalid(const GdnCommitKey& key) {
  if (!key.states.has_initial || !key.states.store)
    return "has_initial_state and store_state must be true";
  return why_tokens_invalid(key);
}

constexpr bool valid(const GdnCommitKey& key) { return why_invalid(key) == nullptr; }

// The tensors of one layer, and what they have room for.  An array of these on the device, one for
// each layer, lives as long as the tensors do; no file has it.
struct GdnCommitLayer {
  long long requests;
  long long tokens;  // dense: of each request; packed: of all
  InputRows<TokenStrides> k, v;
  GateParams<TokenStrides> gates;
  ReadStates read;
  WrittenStates written;
};

struct GdnCommitParams {
  int requests;
  int layers;
  int heads;
  int draft_tokens;             // of a request
  const GdnCommitLayer* table;  // nullptr: the one layer is `layer`
  StridedVector accepted;       // nullptr: all tokens are
  StridedVector cu_seqlens;
  StridedVector read_indices;  // pool: the slot of each request, in every layer
  StridedVector write_indices;
  PaddingParams padding;
  float lower_bound;  // of every layer
  GdnCommitLayer layer;
};

}  // namespace cubinery
