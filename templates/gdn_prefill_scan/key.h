// Compile-time parameters and arguments of gdn_prefill_scan.  Compiled by the host and by NVRTC.
#pragma once

#include "common/chunk_record.h"
#include "common/key_rules.h"
#include "common/params.h"
#include "common/parts.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"

namespace cubinery {

struct GdnPrefillScanKey {
  // The problem: gdn::PrefillProblem explains each.
  int key_dim = 128;
  int value_dim = 128;
  DType dtype = DType::kBF16;
  DType output_dtype = DType::kBF16;
  gdn::States states{};
  DType cu_seqlens_dtype = DType::kI32;
  bool varlen = false;
  gdn::Checkpoints checkpoints = gdn::Checkpoints::kNone;

  bool parts = false;  // long sequences are cut into parts: common/parts.h

  // Tuned.  Results depend on chunk_size, not on the others.
  int chunk_size = 32;  // tokens
  int warps = 4;        // per block, each with 16 value columns; one more does the copies
  int stages = 3;       // chunks in shared memory: one at work, the others on their way
};

constexpr int threads(const GdnPrefillScanKey& key) { return (key.warps + 1) * 32; }

// Blocks that a multiprocessor is to hold, as far as registers go.  A scheduler has them for three
// warps of at most 168 and for two of more: twelve warps or eight on a multiprocessor.  Where that
// would spill, or gained nothing, compilers are free.
constexpr int resident_blocks(const GdnPrefillScanKey& key) {
  const bool is_small = key.dtype != DType::kF32 && key.key_dim <= 128 && key.chunk_size <= 32 &&
                        key.checkpoints == gdn::Checkpoints::kNone;
  return key.parts && is_small ? 12 / (key.warps + 1) : 1;
}

// One stage of shared memory: k, q, the block's columns of v, and the chunk's record.
constexpr int stage_bytes(const GdnPrefillScanKey& key) {
  const int row = 2 * padded_row(key.key_dim, key.dtype) + padded_row(16 * key.warps, key.dtype);
  return key.chunk_size * row * size_of(key.dtype) + chunk_record(key.chunk_size, key.dtype).bytes;
}
constexpr int shared_bytes(const GdnPrefillScanKey& key) { return key.stages * stage_bytes(key); }

// The same memory while a state is carried (common/parts.h): the state as an operand, then a ring
// of slices, each of 16 columns of D and as many rows of N.
constexpr int carried_state_bytes(const GdnPrefillScanKey& key) {
  return 16 * key.warps * key.key_dim * size_of(key.dtype);
}
constexpr int slice_bytes(const GdnPrefillScanKey& key) {
  return transition_slice_bytes(key.key_dim, key.dtype) + key.warps * 16 * 16 * 4;
}
constexpr int ring_slices(const GdnPrefillScanKey& key) {
  const int fit = (shared_bytes(key) - carried_state_bytes(key)) / slice_bytes(key);
  return fit < 16 ? fit : 16;
}

// With as many stages as so much shared memory holds, at most the key's and at least two.
constexpr GdnPrefillScanKey with_stages_in(int shared_limit, GdnPrefillScanKey key) {
  while (key.stages > 2 && shared_bytes(key) > shared_limit) --key.stages;
  return key;
}
// Whether the copies of a chunk have more time than the work on the chunk in front of it.
constexpr bool copies_far_ahead(const GdnPrefillScanKey& key) { return key.stages > 2; }

constexpr const char* why_invalid(const GdnPrefillScanKey& key) {
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_head_dim(key.value_dim)) return "value_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (!is_float(key.output_dtype)) return "output_dtype must be f32, bf16 or f16";
  if (const char* reason = gdn::why_invalid(key.states)) return reason;
  if (is_float(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (key.chunk_size != 16 && key.chunk_size != 32 && key.chunk_size != 64)
    return "chunk_size must be 16, 32 or 64";
  // With the copying warp eight, the most that leave each thread all registers.
  if (key.warps < 1 || key.warps > 7) return "warps must be from 1 to 7";
  if (key.value_dim % (16 * key.warps) != 0) return "16 * warps must divide value_dim";
  if (key.parts && key.key_dim % (16 * key.warps) != 0)
    return "16 * warps must divide key_dim, with parts";
  if (key.stages < 2 || key.stages > 4) return "stages must be 2, 3 or 4";
  // The largest block of any architecture so far.
  if (shared_bytes(key) > 227 * 1024) return "the stages pass 227 KiB of shared memory";
  // Compilers spill registers for these.
  if (key.parts && key.key_dim > 128) return "parts need key_dim <= 128";
  if (key.parts && ring_slices(key) < 2) return "with parts the stages must hold two slices of D";
  const bool is_long = key.key_dim > 128;
  if (is_long && key.chunk_size > 32) return "key_dim > 128 needs chunk_size = 16 or 32";
  if (key.dtype == DType::kF32 && key.chunk_size > (is_long ? 16 : 32))
    return "dtype = f32 needs chunk_size = 16 or 32, with key_dim > 128 16";
  return nullptr;
}

constexpr bool valid(const GdnPrefillScanKey& key) { return why_invalid(key) == nullptr; }

struct GdnPrefillScanParams {
  InputRows<TokenStrides> q, k, v;
  OutputRows<TokenStrides> o;
  StateParams states;
  WrittenStates checkpoints;           // a slot for each checkpoint
  StridedVector checkpoint_cu_starts;  // varlen
  StridedVector cu_seqlens;
  const void* records;  // as in GdnPrefillChunksParams
  const int* order;
  PartParams parts;  // with the key's `parts`

  long long tokens;      // of a sequence; varlen: of all
  int checkpoint_every;  // tokens, a multiple of chunk_size
  int sequences;
  int heads;
};

}  // namespace cubinery
