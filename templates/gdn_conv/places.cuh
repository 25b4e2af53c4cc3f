// Where a sequence's state is.  Templates over GdnConvKey.
#pragma once

#include "common/conv_columns.cuh"
#include "common/operands.cuh"
#include "gdn_conv/key.h"

namespace cubinery::dev {

// What says where a sequence's state is, as it lies in memory.
struct ConvPlacesInMemory {
  long long read, write;  // slots
  bool has_initial;
  long long accepted;
};

template <auto kKey>
__device__ ConvPlacesInMemory load_places(const GdnConvParams& p, int n) {
  ConvPlacesInMemory places{.read = n, .write = n, .has_initial = kKey.states.has_initial};
  if constexpr (kKey.states.location == gdn::StateLocation::kPool) {
    places.read = load_index<kKey.states.index_dtype>(p.read_indices, n);
    places.write = load_index<kKey.states.index_dtype>(p.write_indices, n);
  }
  if (kKey.states.has_initial && p.has_initial.data != nullptr) {
    places.has_initial = load_index<DType::kBool>(p.has_initial, n) != 0;
  }
  if constexpr (kKey.from_accepted) {
    places.accepted = load_index<kKey.accepted_dtype>(p.accepted, n);
  }
  return places;
}

template <auto kKey>
__device__ ConvPlaces places_of(const GdnConvParams& p, const ConvPlacesInMemory& from,
                                int tokens) {
  ConvPlaces places{.slots = {.read = from.read, .write = from.write},
                    .has_initial = from.has_initial,
                    .start = p.columns - (kKey.width - 1)};
  if constexpr (kKey.states.location == gdn::StateLocation::kPool) {
    places.slots = resolve_slots<kKey.states.padding, kKey.states.pad_index>(
        from.read, from.write, p.read_slots, p.written_slots, p.scratch_slot);
  }
  if constexpr (kKey.from_accepted) {
    const bool can_be = from.accepted >= 0 && from.accepted <= p.columns;
    places.start = can_be ? max(static_cast<int>(from.accepted) - 1, 0) : -1;
    const int steps = p.columns - (kKey.width - 2);  // that a request can have
    if ((places.start < 0 || places.start >= steps || tokens > steps) &&
        places.slots.kind == Slots::Kind::kCompute) {
      places.slots.kind = Slots::Kind::kInvalid;
    }
  }
  return places;
}

}  // namespace cubinery::dev
