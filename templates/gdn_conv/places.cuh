// Where a sequence's state is.  Templates over GdnConvKey.
#pragma once

#include "common/conv/columns.cuh"
#include "common/operands.cuh"
#include "common/requests.cuh"
#include "gdn_conv/key.h"

namespace cubinery::dev {

// What says where a sequence's state is, as it lies in memory.
struct ConvPlacesInMemory {
  long long read, write;  // slots
  bool has_initial;
  long long count;  // of accepted tokens; of the inputs in a circular state
};

template <auto kKey>
__device__ ConvPlacesInMemory load_places(const GdnConvParams& p, int n) {
  ConvPlacesInMemory places{.read = n, .write = n, .has_initial = kKey.states.has_initial};
  constexpr bool kPool = kKey.states.location == gdn::StateLocation::kPool;
  if constexpr (kPool && !kStoresEvery<kKey>) {
    places.read = load_index<kKey.states.index_dtype>(p.read_indices, n);
    places.write = load_index<kKey.states.index_dtype>(p.write_indices, n);
  }
  if (kKey.states.has_initial && p.has_initial.data != nullptr) {
    places.has_initial = load_index<DType::kBool>(p.has_initial, n) != 0;
  }
  if constexpr (has_circular_state(kKey)) {
    places.count = load_index<DType::kI32>(p.accepted, n);
  } else if constexpr (has_long_window(kKey)) {
    places.count = load_index<kKey.accepted_dtype>(p.accepted, n);
  }
  return places;
}

// Where a state is written besides the last one, as NewState says it of that.
template <auto kKey>
struct KeptState {
  void* states;
  const ConvStateStrides& strides;
  long long slot;
  long long offset = 0;  // in elements, behind where the slot begins

  __device__ Storage<kKey.states.dtype>* data() const {
    return as<kKey.states.dtype>(states) + slot * strides.slot + offset;
  }
  __device__ const ConvStateStrides& stride() const { return strides; }
};

// What common/requests.cuh asks of a verification.
struct ConvStepParams {
  StateParams states;
  StateSteps steps;
  StridedVector accepted;
  int draft_tokens;
};

// Where a sequence's steps are, with kStoresEvery: as those of a verification.
template <auto kKey>
__device__ Places step_places_of(const GdnConvParams& p, int n, int tokens) {
  const ConvStepParams steps{.states = {.read = {.data = p.read, .slots = p.read_slots},
                                        .written = {.data = p.written, .slots = p.written_slots},
                                        .read_indices = p.read_indices,
                                        .write_indices = p.write_indices,
                                        .padding = p.padding},
                             .steps = p.steps,
                             .accepted = p.accepted,
                             .draft_tokens = p.draft_tokens};
  Places places = places_of<kKey>(steps, n, tokens);
  if (tokens > p.draft_tokens && places.slots.kind == Slots::Kind::kCompute) {
    places.slots.kind = Slots::Kind::kInvalid;
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
    places.slots = resolve_slots(from.read, from.write, p.read_slots, p.written_slots, p.padding);
  }
  if constexpr (has_circular_state(kKey)) {
    const long long next = max(from.count, 0LL) % p.columns;
    places.start = static_cast<int>((next + p.columns - (kKey.width - 1)) % p.columns);
    if (from.count < 0 && places.slots.kind == Slots::Kind::kCompute) {
      places.slots.kind = Slots::Kind::kInvalid;
    }
  } else if constexpr (has_long_window(kKey)) {
    const bool can_be = from.count >= 0 && from.count <= p.columns;
    places.start = can_be ? max(static_cast<int>(from.count) - 1, 0) : -1;
    const int steps = p.columns - (kKey.width - 2);  // that a request can have
    if ((places.start < 0 || places.start >= steps || tokens > steps) &&
        places.slots.kind == Slots::Kind::kCompute) {
      places.slots.kind = Slots::Kind::kInvalid;
    }
  }
  return places;
}

}  // namespace cubinery::dev
