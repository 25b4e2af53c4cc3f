// What the arguments of the Gated DeltaNet operators have in common: gates, states.
#pragma once

#include <cstdint>

#include "cubinery/tensor.h"

namespace cubinery::gdn {

// Parts of a launch's arguments.  A tensor's comment begins with its name in messages and in
// Python, where it is another.  N: sequences; a request of a decode step is one.

struct GateArgs {
  // [tokens, heads]: g, alpha or a, by GateMode.  Absent for GateMode::kNone.
  Tensor g{};
  // [tokens, heads]: beta or its logit, by BetaMode.  Absent for BetaMode::kOne.
  Tensor beta{};
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
