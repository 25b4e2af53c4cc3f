// How a prefill cuts long sequences into segments that run side by side, and what the segments
// leave for each other in the workspace.  Compiled by the host and by NVRTC.
//
// A segment is a run of whole chunks.  A sequence of c chunks has ceil(c / most) segments of
// ceil(c / segments) chunks, the last of what remains: that depends on nothing but c and `most`.
//
// The state in front of a segment is found in one of two ways, for each head by itself:
//
//   forgotten  the chunks in front of the segment, a few of them, have decayed what was in front of
//              those below fp32's last bit.  Then a run of these chunks from a state of zero gives
//              it.  ChunkWy::bound says how far a chunk decays, whatever the state.
//   carried    S_(j+1) = decay_j S_j + D_j S_j + N_j, where the segment j, run from a state of
//              zero, ends with N_j, and run from the identity without values, with
//              decay_j I + D_j.
//
// With a decay for each channel decay_j is one for each row of S, and all states are carried: what
// a key takes from a channel that decays late to one that has decayed early, no bound that is
// cheap leaves much of.
//
// N of a segment that no state is carried to is the state behind it: what the next one goes on
// from. Segment j's N and D are looked for at first token / tokens of a segment + j.  Only segments
// with another one behind them have any, so those of different sequences lie in different places.
#pragma once

#include "common/chunk/steps.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_types.h"

namespace cubinery {

struct Cut {
  int segments;
  int chunks;  // of each segment but the last
};

// Of a sequence of `chunks`; one without tokens has one segment too.
constexpr Cut cut(int chunks, int most) {
  const int segments = chunks <= most ? 1 : (chunks + most - 1) / most;
  return {.segments = segments, .chunks = (chunks + segments - 1) / segments};
}

// With context_parallel (steps.h): all but the last have `of_segment` chunks.
constexpr Cut cut_on_grid(int chunks, int of_segment) {
  return {.segments = chunks <= of_segment ? 1 : (chunks + of_segment - 1) / of_segment,
          .chunks = of_segment};
}

// A state that has been multiplied by no more than 2^-kForgottenBits counts as forgotten: half a
// unit in fp32's last place.
inline constexpr float kForgottenBits = 24.0f;

// Chunks in front of a segment that may forget what is in front of them, at most: a warp looks at
// them, and a run that warms up is to be short.
constexpr int forgetting_chunks(const Cut& cut) {
  return cut.chunks / 2 < 32 ? cut.chunks / 2 : 32;
}

// The segments of sequence n have numbers from its first token / tokens of a segment + n on; a
// launch has at most this many.
constexpr long long segment_slots(long long tokens, long long sequences, long long segment_tokens) {
  return tokens / segment_tokens + sequences;
}
// Segments with results.
constexpr long long segment_results(long long tokens, long long segment_tokens) {
  return tokens / segment_tokens;
}

// Of one segment and head: N^T as fp32 tiles, then, in their place, the state behind the segment.
constexpr long long segment_state_bytes(int key_dim, int value_dim) {
  return 4LL * key_dim * value_dim;
}
// Of the decay, and of 16 columns of D with all of it.
constexpr int segment_decay_bytes(int key_dim, gdn::Decay decay) {
  return decay == gdn::Decay::kChannel ? key_dim * 4 : 16;
}
constexpr int transition_slice_bytes(int key_dim, DType dtype, gdn::Decay decay) {
  return 16 * key_dim * size_of(dtype) + segment_decay_bytes(key_dim, decay);
}
// Of one segment and head: D.
constexpr long long segment_transition_bytes(int key_dim, DType dtype, gdn::Decay decay) {
  return key_dim / 16 * transition_slice_bytes(key_dim, dtype, decay);
}
// Counters of a launch: tickets, then three for each segment and head with results.
constexpr long long segment_counters(long long results, int heads) {
  return 1 + 3 * results * heads;
}

// Pointers may be null where no sequence of the launch has more than one segment.
struct SegmentParams {
  int chunks;          // of a segment, at most
  int slots;           // of the launch
  int chains;          // sequences, if any may have more than two segments
  StepParams step;     // with context_parallel
  unsigned* tickets;   // one
  unsigned* started;   // [results][heads]: blocks that have read the initial state
  unsigned* finished;  // [results][heads]: blocks that have left N or D; with context_parallel
                       // [slots][heads]: the reach of the segment's transition, the only counters
  unsigned* ready;     // [results][heads]: blocks that have left the state behind the segment
  void* states;        // [results][heads] of segment_state_bytes()
  void* transitions;   // [results][heads] of segment_transition_bytes()
};

}  // namespace cubinery
