// What the problems and the arguments of the Gated DeltaNet operators have in common: heads, gates,
// states.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cubinery/dtype.h"
#include "cubinery/gdn_types.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

// Parts of a problem.  JSON, the command line and Python have the fields of all parts in one flat
// list; a comment begins with the name that a field has there, where it is another.

struct Heads {
  int q = 16;  // q_heads
  int k = 16;  // k_heads
  int v = 32;  // v_heads

  // The largest of the three: heads of the states and of o.
  constexpr int count() const { return std::max({q, k, v}); }
};

struct Gates {
  GateMode mode = GateMode::kLog;  // gate_mode
  DType dtype = DType::kF32;       // gate_dtype: of g, alpha or a: f32, bf16 or f16
  BetaMode beta_mode = BetaMode::kGiven;
  DType beta_dtype = DType::kF32;     // of beta or its logit: likewise
  DType a_log_dtype = DType::kF32;    // of A_log: likewise (GateMode::kComputed)
  DType dt_bias_dtype = DType::kF32;  // of dt_bias: likewise (GateMode::kComputed)
};

struct States {
  DType dtype = DType::kF32;  // state_dtype: f32, bf16 or f16; rounded to nearest when stored
  StateLayout layout = StateLayout::kVK;           // state_layout
  StateLocation location = StateLocation::kDense;  // state_location
  DType index_dtype = DType::kI32;                 // of indices: i32 or i64 (StateLocation::kPool)
  Padding padding = Padding::kNone;                // needs StateLocation::kPool
  PadIndex pad_index = PadIndex::kNegative;
  bool has_initial = true;  // has_initial_state; false: every sequence starts from zero
  bool store = true;        // store_state; false: new states are not kept
};

// Parts of a launch's arguments.  A tensor's comment begins with its name in messages and in
// Python, where it is another.  N: sequences; a request of a decode step is one.

struct GateArgs {
  Tensor g{};        // of tokens and heads: g, alpha or a; absent for GateMode::kNone
  Tensor beta{};     // likewise: beta or its logit; absent for BetaMode::kOne
  Tensor A_log{};    // [heads]; GateMode::kComputed only
  Tensor dt_bias{};  // [heads]; GateMode::kComputed only
};

struct StateArgs {
  // state: [N or slots, heads, rows, columns], rows x columns = key_dim x value_dim (kKV) or
  // value_dim x key_dim (kVK).  Each matrix lies without gaps; heads and slots may have gaps of
  // whole 16-byte units; 16-byte aligned.  Absent only without both has_initial and store.
  Tensor in{};
  // state_out: where new states go.  Absent: in place.  May be `in` itself but must not overlap it
  // otherwise.
  Tensor out{};
  // state_indices: [N], StateLocation::kPool: the slots that sequences read.  No two sequences may
  // write one slot.  An index that is neither padding nor a slot touches no state and fills that
  // sequence's output with NaN.
  Tensor indices{};
  // state_out_indices: [N]: the slots that sequences write.  Absent: those they read.  A padding
  // index here, beside a slot to read, only drops the new state (Padding::kScratch: sends it to the
  // scratch slot).
  Tensor out_indices{};
  std::int64_t scratch_slot = 0;  // Padding::kScratch: the slot that padding rows read and write
};

}  // namespace cubinery::gdn
