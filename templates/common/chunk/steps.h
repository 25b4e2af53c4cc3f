// How a prefill finds states that come from another GPU (context parallelism).  Compiled by the
// host and by NVRTC.
//
// Sequences are cut into segments (segments.h) of the same number of chunks, from each sequence's
// first token on this GPU on, and these into parts.  Three launches:
//
//   start   runs every segment, side by side: from a state of zero, unless the state in front of it
//           is known to be the sequence's initial one.  So it has outputs, and each part leaves N,
//           the state behind it.  Beside that it runs the segment's transition, from the identity:
//           each part leaves D, so that the state behind it is decay S + D S + N, with S in front
//           of the segment.  It ends where the transition is forgotten: no element is 2^-24 or
//           more. Its reach is how many chunks that took.
//   carry   finds S in front of each segment, along each sequence: what is behind the segment
//   before,
//           which is N where the transition was forgotten.  The first one's has come from the GPU
//           in front, the last state is for the GPU behind.
//   finish  runs the first chunks of each segment once more, from S, as many as its reach says, the
//           parts side by side: behind them nothing of S is left.
//
// Who has which segment changes nothing of what is computed: the same bits on any number of GPUs.
//
// A forgotten transition stays so where no token's map of states is expansive: |1 - beta |k|^2| <=
// 1, as with normalised keys and beta from 0 to 2.  `may_forget` says whether that holds.
#pragma once

namespace cubinery {

enum class Step : unsigned char { kStart = 1, kCarry = 2, kFinish = 3 };

struct StepParams {
  Step step;
  bool continues;  // the first sequence goes on from another GPU
  bool may_forget;
};

// Of a transition that was not forgotten.
inline constexpr unsigned kWholeReach = 0x7fffffff;

// Parts of a segment, all but the last one short: reaches are.
inline constexpr int kParts = 4;
inline constexpr int kPartTokens = 2048;  // at most
constexpr int part_chunks(int chunks_of_segment, int chunk_size) {
  const int even = chunks_of_segment / kParts;
  const int most = kPartTokens / chunk_size;
  return even < 1 ? 1 : even < most ? even : most;
}

}  // namespace cubinery
