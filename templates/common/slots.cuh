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

template <gdn::PadIndex kPadIndex>
__device__ bool is_pad(long long index) {
  return kPadIndex == gdn::PadIndex::kNegative ? index < 0 : index == 0;
}

__device__ inline bool is_slot(long long index, long long slots) {
  return index >= 0 && index < slots;
}

// `read` and `write` are the request's indices.  A padding `read` decides for the whole request, a
// padding `write` only drops the new state (kScratch: sends it to the scratch slot).  Requires:
// scratch is a slot.
template <gdn::Padding kPadding, gdn::PadIndex kPadIndex>
__device__ Slots resolve_slots(long long read, long long write, long long read_slots,
                               long long write_slots, long long scratch) {
  Slots slots{.read = read, .write = write};
  if constexpr (kPadding != gdn::Padding::kNone) {
    if (is_pad<kPadIndex>(read)) {
      if constexpr (kPadding == gdn::Padding::kSkip) slots.kind = Slots::Kind::kSkip;
      if constexpr (kPadding == gdn::Padding::kZero) slots.kind = Slots::Kind::kZero;
      if constexpr (kPadding != gdn::Padding::kScratch) return slots;
      slots.read = slots.write = scratch;
    } else if (is_pad<kPadIndex>(write)) {
      if constexpr (kPadding == gdn::Padding::kScratch) slots.write = scratch;
      if constexpr (kPadding != gdn::Padding::kScratch) {
        slots.store = false;
        slots.write = 0;
      }
    }
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
  return resolve_slots<kKey.states.padding, kKey.states.pad_index>(
      read, write, states.read.slots, states.written.slots, states.scratch_slot);
}

}  // namespace cubinery::dev
