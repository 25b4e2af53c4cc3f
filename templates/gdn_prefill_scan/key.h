// Compile-time parameters and arguments of gdn_prefill_scan.  Compiled by the host and by NVRTC.
#pragma once

#include "common/chunk/segments.h"
#include "common/chunk/wy.h"
#include "common/key_rules.h"
#include "common/params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/tensor_map.h"

namespace cubinery {

struct GdnPrefillScanKey {
  static constexpr bool kTakesChannelDecays = true;

  // The problem: gdn::PrefillProblem explains each.
  int key_dim = 128;
  int value_dim = 128;
  DType dtype = DType::kBF16;
  DType output_dtype = DType::kBF16;
  gdn::States states{};
  DType cu_seqlens_dtype = DType::kI32;
  bool varlen = false;
  gdn::Checkpoints checkpoints = gdn::Checkpoints::kNone;

  bool segments = false;          // long sequences are cut into segments: common/chunk/segments.h
  bool context_parallel = false;  // with segments: in three launches: common/chunk/steps.h
  bool wgmma = false;             // products by wgmma, only on sm_90a; else by mma.sync
  bool threads_copy = false;      // with wgmma: for tensors that TMA cannot read or write
  bool makes_wy = false;          // with wgmma: needs none of gdn_prefill_chunks, with segments
                                  // decays (only_decays)
  gdn::Inputs inputs{};           // with makes_wy; else no more of it than `decay`

  // Tuned.  Results depend on chunk_size, not on the others.
  int chunk_size = 32;  // tokens
  int warps = 4;        // per block, each with 16 value columns
  int stages = 3;       // chunks in shared memory: one at work, the others on their way
};

// One more warp does the copies, or starts those of TMA: the others' arithmetic must
// not wait for their addresses, nor for one another.
constexpr bool has_copying_warp(const GdnPrefillScanKey& key) { return !key.threads_copy; }
// Four more make WY factors.  Then those that copy are as many, because registers are shared out by
// four warps, but only one does.
constexpr int producers(const GdnPrefillScanKey& key) { return key.makes_wy ? 4 : 0; }
constexpr int threads(const GdnPrefillScanKey& key) {
  const int beside = key.makes_wy ? producers(key) + 4 : has_copying_warp(key) ? 1 : 0;
  return (key.warps + beside) * 32;
}

// Blocks that a multiprocessor is to hold, as far as registers go: with wgmma they work while
// others wait for their products.  Where that would spill, and with mma.sync, where it gained
// nothing, compilers are free.
constexpr int resident_blocks(const GdnPrefillScanKey& key) {
  const bool is_small = key.chunk_size <= 32 && key.checkpoints == gdn::Checkpoints::kNone &&
                        key.states.dtype != DType::kBF16;
  return key.wgmma && key.warps == 4 && !key.makes_wy && is_small ? 2 : 1;
}

// The same of v, and of outputs of 16 bits.
inline constexpr int kSwizzledValueBytes = 128;
constexpr bool has_channel_decays(const GdnPrefillScanKey& key) {
  return key.inputs.decay == gdn::Decay::kChannel;
}
// Of a chunk and head.
constexpr int wy_bytes(const GdnPrefillScanKey& key) {
  return wy_bytes(key.inputs.decay, key.chunk_size, key.key_dim, key.dtype);
}

// One stage of shared memory: k, q, the block's columns of v, and the chunk's WY factors, which
// have the rows of keys and queries where each channel has a decay.
constexpr int key_row_elements(const GdnPrefillScanKey& key) {
  return key.wgmma ? key.key_dim : padded_row(key.key_dim, key.dtype);
}
// Rows of a token in a stage, WY factors aside, of which wgmma wants those over channels apart.
constexpr int stage_rows(const GdnPrefillScanKey& key) {
  if (!has_channel_decays(key)) return 2;
  return key.wgmma ? 3 : 0;
}
constexpr int stage_bytes(const GdnPrefillScanKey& key) {
  const int columns = 16 * key.warps;
  const int row = stage_rows(key) * key_row_elements(key) +
                  (key.wgmma ? columns : padded_row(columns, key.dtype));
  // wgmma reads whole matrices.
  const int matrices = 2 * key.chunk_size * key.chunk_size * size_of(key.dtype);
  return key.chunk_size * row * size_of(key.dtype) + (key.wgmma ? matrices : wy_bytes(key));
}
// Behind the stages, with wgmma: the rest of each one's WY factors, and two barriers for each
// (common/hopper/tma.cuh).
constexpr int stage_factor_bytes(const GdnPrefillScanKey& key) {
  if (has_channel_decays(key)) return key.key_dim * 4;
  const ChunkWy wy = chunk_wy(key.chunk_size, key.dtype);
  return wy.bytes - wy.k_in;
}
// Then what the producers work in: gates for each stage; for each of two chunks tiles, what an
// inverse takes, and with norms six vectors.
constexpr int producer_bytes(const GdnPrefillScanKey& key) {
  if (!key.makes_wy) return 0;
  const int norms = key.inputs.use_qk_l2norm ? 1 : 0;
  const int tiles = 2 * lower_tiles(key.chunk_size) + norms * 2;
  const int vector = key.chunk_size * 4;
  return key.stages * 2 * vector +
         2 * (tiles * 16 * 16 * 4 + kInverseScratchBytes + norms * 6 * vector);
}
// Then what a block keeps from its start on, and has no registers for: with wgmma where its chunks
// lie, its checkpoints at offsets, and where its last state goes.  With makes_wy a block goes
// through many units (units.cuh), and keeps what it works on and what comes next, each with two
// barriers, and the order of up to kMostRanked sequences.
inline constexpr int kUnits = 8;
inline constexpr int kMostRanked = 256;
// With segments also what units leave for each other, and in place of the order two barriers more
// and 16 bytes of zeros (tickets.cuh).
constexpr int work_bytes(const GdnPrefillScanKey& key) { return key.segments ? 208 : 144; }
constexpr int plan_bytes(const GdnPrefillScanKey& key) {
  if (key.makes_wy) {
    return kUnits * (work_bytes(key) + 16) + (key.segments ? 2 * 8 + 16 : kMostRanked * 2);
  }
  return key.wgmma ? 48 : 0;
}
constexpr int offset_bytes(const GdnPrefillScanKey& key) {
  return key.checkpoints == gdn::Checkpoints::kAt ? 24 : 0;
}
// With context_parallel what the block works on, and for each stage whether the run ends with it.
inline constexpr int kKeptUnitBytes = 96;
constexpr int step_bytes(const GdnPrefillScanKey& key) {
  return key.context_parallel ? kKeptUnitBytes + 6 * 4 : 0;
}
constexpr int kept_bytes(const GdnPrefillScanKey& key) {
  return step_bytes(key) + plan_bytes(key) + offset_bytes(key) + 24;
}

// The same memory while states are carried (common/chunk/segments.h).  With wgmma D, N, of the
// block's columns, the decay, three barriers, and a word for each warp, an even number: what is
// kept holds pointers.
constexpr int carry_bytes(const GdnPrefillScanKey& key) {
  return key.key_dim * (key.key_dim * size_of(key.dtype) + 16 * key.warps * 4) +
         segment_decay_bytes(key.key_dim, key.inputs.decay) + 3 * 8 +
         (threads(key) / 32 + 1) / 2 * 8;
}
constexpr bool stages_hold_carry(const GdnPrefillScanKey& key) {
  return key.stages * stage_bytes(key) >= carry_bytes(key);
}
// With mma.sync the state as an operand, then a ring of slices, each of 16 columns of D and as many
// rows of N.
constexpr int carried_state_bytes(const GdnPrefillScanKey& key) {
  return 16 * key.warps * key.key_dim * size_of(key.dtype);
}
constexpr int slice_bytes(const GdnPrefillScanKey& key) {
  return transition_slice_bytes(key.key_dim, key.dtype, key.inputs.decay) + key.warps * 16 * 16 * 4;
}
constexpr int ring_slices(const GdnPrefillScanKey& key) {
  const int fit = (key.stages * stage_bytes(key) - carried_state_bytes(key)) / slice_bytes(key);
  return fit < 16 ? fit : 16;
}

constexpr int shared_bytes(const GdnPrefillScanKey& key) {
  const int barriers = key.makes_wy ? 32 : 16;
  const int behind = key.wgmma ? stage_factor_bytes(key) + barriers : 0;
  const int chunks = key.stages * (stage_bytes(key) + behind) + producer_bytes(key);
  const int carry = key.segments && key.wgmma ? carry_bytes(key) : 0;
  return (chunks > carry ? chunks : carry) + kept_bytes(key);
}

// For each head tickets of a launch with `segments` (segments.cuh): of N and D, of chains, and of
// outputs, of which with makes_wy those that wait for a state have others.
template <class Int>
constexpr Int segment_tickets(const GdnPrefillScanKey& key, Int slots, Int chains) {
  const int columns = 16 * key.warps;
  const Int slices = key.value_dim / columns;
  const Int results = slices + key.key_dim / columns;
  const Int outputs = key.makes_wy ? 2 * slices : slices;
  return slots * (results + outputs) + chains * slices;
}

// With as many stages as so much shared memory holds, at most the key's and at least two.
constexpr GdnPrefillScanKey with_stages_in(int shared_limit, GdnPrefillScanKey key) {
  while (key.stages > 2 && shared_bytes(key) > shared_limit) --key.stages;
  return key;
}
// Whether the copies of a chunk have more time than the work on the chunk in front of it.
constexpr bool copies_far_ahead(const GdnPrefillScanKey& key) { return key.stages > 2; }

// Whether the inputs are those of a key that has none, but for `decay`.
constexpr bool has_no_inputs(const GdnPrefillScanKey& key) {
  const gdn::Inputs& inputs = key.inputs;
  constexpr gdn::Inputs kNone{};
  return inputs.gate_dtype == kNone.gate_dtype && inputs.beta_dtype == kNone.beta_dtype &&
         inputs.a_log_dtype == kNone.a_log_dtype && inputs.dt_bias_dtype == kNone.dt_bias_dtype &&
         inputs.gate_mode == kNone.gate_mode && inputs.beta_mode == kNone.beta_mode &&
         inputs.use_qk_l2norm == kNone.use_qk_l2norm;
}

constexpr const char* why_invalid(const GdnPrefillScanKey& key) {
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_head_dim(key.value_dim)) return "value_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (!is_float(key.output_dtype)) return "output_dtype must be f32, bf16 or f16";
  if (const char* reason = gdn::why_invalid_without_fp8(key.states)) return reason;
  if (!is_integer(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (key.chunk_size != 16 && key.chunk_size != 32 && key.chunk_size != 64)
    return "chunk_size must be 16, 32 or 64";
  // With the copying warp eight, the most that leave each thread all registers.
  if (key.warps < 1 || key.warps > 8 || (key.warps == 8 && !key.wgmma))
    return "warps must be from 1 to 7, with wgmma 8 too";
  if (key.value_dim % (16 * key.warps) != 0) return "16 * warps must divide value_dim";
  if (key.segments && key.key_dim % (16 * key.warps) != 0)
    return "16 * warps must divide key_dim, with segments";
  if (key.stages != 2 && key.stages != 3 && key.stages != 4 && key.stages != 6)
    return "stages must be 2, 3, 4 or 6";
  if (key.stages == 6 && !key.wgmma) return "6 stages need wgmma";
  // The largest block of any architecture so far.
  if (shared_bytes(key) > 227 * 1024) return "the stages pass 227 KiB of shared memory";
  if (key.threads_copy && !key.wgmma) return "threads_copy needs wgmma";
  if (key.wgmma) {
    if (size_of(key.dtype) != 2) return "wgmma needs dtype = bf16 or f16";
    if (key.key_dim % 32 != 0 || key.key_dim > 128)
      return "wgmma needs key_dim = 32, 64, 96 or 128";
    if (key.warps != 4 && key.warps != 8) return "wgmma needs warps = 4 or 8";
    // More than 4 alone were not faster.
    if (key.warps == 8 && !key.makes_wy && !key.threads_copy)
      return "warps = 8 needs makes_wy or threads_copy";
    // Never near the fastest on an H200 or an H100.
    if (key.stages == 2) return "wgmma needs stages = 3, 4 or 6";
  }
  // A kernel that computes the same has the same key.
  if (!key.makes_wy && !has_no_inputs(key)) return "the inputs are of keys with makes_wy";
  if (key.makes_wy) {
    if (!key.wgmma || key.threads_copy || key.context_parallel)
      return "makes_wy needs wgmma, without threads_copy and context_parallel";
    if (key.segments) {
      // Blocks of half the columns would make each chunk's WY factors twice.
      if (key.warps != 8) return "makes_wy with segments needs warps = 8";
      // Compilers spill registers for others.
      if (key.checkpoints == gdn::Checkpoints::kAfter)
        return "makes_wy with segments needs checkpoints = none or at";
    }
    if (has_channel_decays(key)) return "makes_wy needs decay = head";
    if (key.chunk_size != 32) return "makes_wy needs chunk_size = 32";
    if (key.stages < 4) return "makes_wy needs stages = 4 or 6";
    if (const char* reason = why_inputs_invalid(key)) return reason;
    if (key.inputs.gate_mode == gdn::GateMode::kLowerBound)
      return "makes_wy needs gate_mode = none, log, alpha or computed";
    // Compilers spill registers for others.
    if (key.states.dtype == DType::kBF16) return "makes_wy needs state_dtype = f32 or f16";
    if (key.checkpoints == gdn::Checkpoints::kBefore)
      return "makes_wy needs checkpoints = none, after or at";
  }
  if (key.context_parallel) {
    if (!key.segments) return "context_parallel needs segments";
    if (key.states.dtype != DType::kF32 || !key.states.has_initial || !key.states.store)
      return "context_parallel needs state_dtype = f32, has_initial_state and store_state";
  }
  // Compilers spill registers for these.
  if (key.segments && key.key_dim > 128) return "segments need key_dim <= 128";
  if (key.segments && ring_slices(key) < 2)
    return "with segments the stages must hold two slices of D";
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
  StridedVector has_initial;           // nullptr: all sequences have
  WrittenStates checkpoints;           // a slot for each checkpoint
  StridedVector checkpoint_cu_starts;  // varlen; with checkpoints at offsets, these
  StridedVector cu_seqlens;
  GateParams<TokenStrides> gates;  // with makes_wy
  float scale;                     // likewise
  const void* wy;                  // as in GdnPrefillChunksParams
  const int* order;
  SegmentParams segments;  // with the key's `segments`
  // With wgmma, but not with threads_copy: tensors [rows of the batch][tokens][heads][dims], in
  // boxes of a chunk's rows, swizzled (common/hopper/wgmma.cuh).  o_map only where o has 16-bit
  // elements.
  TensorMap q_map, k_map, v_map, o_map;

  long long tokens;      // of a sequence; varlen: of all
  int checkpoint_every;  // tokens, a multiple of chunk_size
  int sequences;
  int heads;
  CheckpointSlots checkpoint_slots;  // with checkpoints at offsets
};

}  // namespace cubinery
