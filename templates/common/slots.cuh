// Which slot of a state pool a request reads and writes, and what happens to a request that has
// none.
#pragma once

#include "common/operands.cuh"
#include "common/params.h"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

struct Slots {
  enum class Kind { kCompute, kSkip, kZero, kInvalid };
  Kind kind = Kind::kCompute;
  long long read = 0;
  long long write = 0;
  bool store = true;  // false: the slot to write is padding
};

// No branch on how padding is told: a negative `pad` and a negative index have the sign in common,
// and PaddingParams::kNone has it with none.
__device__ inline bool is_pad(long long index, long long pad) {
  return index == pad || (index & pad) < 0;
}

__device__ inline bool is_slot(long long index, long long slots) {
  return index >= 0 && index < slots;
}

// `read` and `write` are the request's indices.  A padding `read` decides for the whole request, a
// padding `write` only drops the new state, or sends it to the scratch slot.  Requires: that is a
// slot, PaddingParams::kDropped or kNone.
__device__ inline Slots resolve_slots(long long read, long long write, long long read_slots,
                                      long long write_slots, const PaddingParams& padding) {
  Slots slots{.read = read, .write = write};
  if (is_pad(read, padding.index)) {
    if (padding.scratch == PaddingParams::kDropped) {
      slots.kind = padding.zero ? Slots::Kind::kZero : Slots::Kind::kSkip;
      return slots;
    }
    slots.read = slots.write = padding.scratch;
  } else if (is_pad(write, padding.index)) {
    slots.store = padding.scratch != PaddingParams::kDropped;
    slots.write = slots.store ? padding.scratch : 0;
  }
  // An index that is neither padding nor a slot must not touch memory.
  if (!is_slot(slots.read, read_slots) || !is_slot(slots.write, write_slots)) {
    slots.kind = Slots::Kind::kInvalid;
  }
  return slots;
}

// The slots of request or sequence n.
template <auto kKey>
__device__ Slots slots_of(const StateParams& states, long long n) {
  if constexpr (kKey.states.location == gdn::StateLocation::kDense) return {.read = n, .write = n};
  const long long read = load_index<kKey.states.index_dtype>(states.read_indices, n);
  const long long write = load_index<kKey.states.index_dtype>(states.write_indices, n);
  return resolve_slots(read, write, states.read.slots, states.written.slots, states.padding);
}

}  // namespace cubinery::dev
