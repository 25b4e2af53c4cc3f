// The tokens of the requests of a verification, and where their states are.  Templates over the
// kernels' keys, which name what they are made of alike.
#pragma once

#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/slots.cuh"
#include "common/step.cuh"
#include "common/verify_params.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery::dev {

// Which new states are kept.
template <auto kKey>
inline constexpr bool kStoresEvery = stores_every(kKey);
template <auto kKey>
inline constexpr bool kStoresLast = kKey.states.store && !kStoresEvery<kKey>;

// Tokens first ... first + count - 1 of row `batch` of the tensors of tokens.
struct Tokens {
  long long batch;
  long long first;
  long long count;
};

template <auto kKey, class Params>
__device__ Tokens tokens_of(const Params& p, long long n) {
  if constexpr (!kKey.varlen) return {.batch = n, .first = 0, .count = p.tokens};
  const long long first = load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, n);
  const long long end = load_index<kKey.cu_seqlens_dtype>(p.cu_seqlens, n + 1);
  return {.batch = 0, .first = first, .count = end - first};
}

// Whether the bounds of any request decrease or leave the tensors.
template <auto kKey, class Params>
__device__ bool is_malformed(const Params& p) {
  bool malformed = false;
  for (int n = threadIdx.x % 32; n < p.requests; n += 32) {
    const Tokens tokens = tokens_of<kKey>(p, n);
    malformed |= tokens.first < 0 || tokens.count < 0 || tokens.first + tokens.count > p.tokens;
  }
  return __any_sync(0xffffffffu, malformed);
}

// Fills the warp's columns of tokens at.token, at.token + stride, ... before `end`.
template <auto kKey, class Params>
__device__ void fill_outputs(const Params& p, TokenStrides::At at, long long end, int stride,
                             int first_v, float value) {
  for (; at.token < end; at.token += stride) {
    Storage<kKey.output_dtype>* const o = row_at<kKey.output_dtype>(p.o, at) + first_v;
    for (int v = threadIdx.x % 32; v < warp_columns(kKey); v += 32) {
      o[v] = from_float<kKey.output_dtype>(value);
    }
  }
}

// Where a request's states are.
struct Places {
  Slots slots;      // with kStoresEvery in a pool lane t has the slot of step t
  long long start;  // the step whose state the request starts from
};

template <auto kKey, class Params>
__device__ Places places_of(const Params& p, long long n, int tokens) {
  Places places{.slots = {.read = n, .write = n}, .start = 0};
  if constexpr (kKey.from_accepted) {
    const long long accepted = load_index<kKey.accepted_dtype>(p.accepted, n);
    places.start = accepted == 0 ? 0 : accepted - 1;
    if (all_lanes(places.start < 0 || places.start >= p.steps.readable)) {
      places.slots.kind = Slots::Kind::kInvalid;
      return places;
    }
  }
  if constexpr (kKey.states.location == gdn::StateLocation::kPool) {
    const auto slot_at = [n](const StridedVector& indices, long long step, long long stride) {
      return as<kKey.states.index_dtype>(indices.data)[n * indices.stride + step * stride];
    };
    long long step = places.start;
    if constexpr (kStoresEvery<kKey>) {
      const long long last = min(tokens, p.draft_tokens) - 1;
      step = min(static_cast<long long>(threadIdx.x % 32), last);
    }
    places.slots = resolve_slots(slot_at(p.states.read_indices, places.start, p.steps.read_index),
                                 slot_at(p.states.write_indices, step, p.steps.written_index),
                                 p.states.read.slots, p.states.written.slots, p.states.padding);
    // One step's slot that cannot be is enough: nothing is written then.
    const bool is_invalid = places.slots.kind == Slots::Kind::kInvalid;
    if (__any_sync(0xffffffffu, is_invalid)) places.slots.kind = Slots::Kind::kInvalid;
  }
  return places;
}

// The tokens of one request, as a warp sees them that computes some of its columns.
struct Request {
  TokenStrides::At at;  // its first token, for the warp's head
  int count;            // of its tokens; one more than there may be: too many
  long long end;        // behind the last
};

// False: the bounds of requests cannot be, and o says so.
template <auto kKey, class Params>
__device__ bool find_tokens(const Params& p, long long n, int h, int first_v, Request* request) {
  if constexpr (kKey.varlen) {
    if (is_malformed<kKey>(p)) {
      fill_outputs<kKey>(p, {.batch = 0, .token = n, .head = h}, p.tokens, p.requests, first_v,
                         nan());
      return false;
    }
  }
  const Tokens tokens = tokens_of<kKey>(p, n);
  request->at = {.batch = tokens.batch, .token = tokens.first, .head = h};
  request->count = static_cast<int>(min(tokens.count, static_cast<long long>(p.draft_tokens) + 1));
  request->end = tokens.first + tokens.count;
  return true;
}

// False: there is nothing to compute; what is to be said of that is in o.
template <auto kKey, class Params>
__device__ bool find_places(const Params& p, long long n, int first_v, const Request& request,
                            Places* places) {
  if (all_lanes(request.count == 0) && !kStoresLast<kKey>) return false;
  *places = places_of<kKey>(p, n, request.count);
  Slots& slots = places->slots;
  if (slots.kind == Slots::Kind::kCompute && request.count > p.draft_tokens) {
    slots.kind = Slots::Kind::kInvalid;
  }
  if (all_lanes(slots.kind == Slots::Kind::kCompute)) return true;
  if (all_lanes(slots.kind == Slots::Kind::kSkip)) return false;
  fill_outputs<kKey>(p, request.at, request.end, 1, first_v,
                     slots.kind == Slots::Kind::kZero ? 0.0f : nan());
  return false;
}

// Whether the state after token `t` is kept, and in which slot.
struct KeptStep {
  bool stores;
  long long slot;
};
template <auto kKey>
__device__ KeptStep kept_step(const Slots& slots, int t) {
  if constexpr (kKey.states.location != gdn::StateLocation::kPool) return {true, slots.write};
  return {__shfl_sync(0xffffffffu, static_cast<int>(slots.store), t) != 0,
          __shfl_sync(0xffffffffu, slots.write, t)};
}

}  // namespace cubinery::dev
