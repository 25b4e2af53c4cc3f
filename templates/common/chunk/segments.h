// How a prefill cuts long sequences into parts that run side by side, and what the parts leave for
// each other in the workspace.  Compiled by the host and by NVRTC.
//
// A part is a run of whole chunks.  A sequence of c chunks has ceil(c / most) parts of
// ceil(c / parts) chunks, the last of what remains: that depends on nothing but c and `most`.
//
// The state in front of a part is found in one of two ways, for each head by itself:
//
//   forgotten  the chunks in front of the part, a few of them, have decayed what was in front of
//              those below fp32's last bit.  Then a run of these chunks from a state of zero gives
//              it.  ChunkRecord::bound says how far a chunk decays, whatever the state.
//   carried    S_(j+1) = decay_j S_j + D_j S_j + N_j, where the part j, run from a state of zero,
//              ends with N_j, and run from the identity without values, with decay_j I + D_j.
//
// N of a part that no state is carried to is the state behind it: what the next one goes on from.
// Part j's N and D are looked for at first token / tokens of a part + j.  Only parts with another
// one behind them have any, so those of different sequences lie in different places.
#pragma once

#include "cubinery/dtype.h"

namespace cubinery {

struct Cut {
  int parts;
  int chunks;  // of each part but the last
};

// Of a sequence of `chunks`; one without tokens has one part too.
constexpr Cut cut(int chunks, int most) {
  const int parts = chunks <= most ? 1 : (chunks + most - 1) / most;
  return {.parts = parts, .chunks = (chunks + parts - 1) / parts};
}

// The parts of sequence n have numbers from its first token / tokens of a part + n on; a launch has
// at most this many.
constexpr long long part_slots(long long tokens, long long sequences, long long part_tokens) {
  return tokens / part_tokens + sequences;
}
// Parts with results.
constexpr long long part_results(long long tokens, long long part_tokens) {
  return tokens / part_tokens;
}

// Of one part and head: N^T as fp32 tiles, then, in their place, the state behind the part.
constexpr long long part_state_bytes(int key_dim, int value_dim) {
  return 4LL * key_dim * value_dim;
}
// Of 16 columns of D, and of the decay.
constexpr int transition_slice_bytes(int key_dim, DType dtype) {
  return 16 * key_dim * size_of(dtype) + 16;
}
// Of one part and head: D.
constexpr long long part_transition_bytes(int key_dim, DType dtype) {
  return key_dim / 16 * transition_slice_bytes(key_dim, dtype);
}
// Counters of a launch: tickets, then three for each part and head with results.
constexpr long long part_counters(long long results, int heads) { return 1 + 3 * results * heads; }

// Pointers may be null where no sequence of the launch has more than one part.
struct PartParams {
  int chunks;          // of a part, at most
  int slots;           // of the launch
  int chains;          // sequences, if any may have more than two parts
  unsigned* tickets;   // one
  unsigned* started;   // [results][heads]: blocks that have read the initial state
  unsigned* finished;  // [results][heads]: blocks that have left N or D
  unsigned* ready;     // [results][heads]: blocks that have left the state behind the part
  void* states;        // [results][heads] of part_state_bytes()
  void* transitions;   // [results][heads] of part_transition_bytes()
};

}  // namespace cubinery
