// Where the sequences of a batch lie, and where their chunks' WY factors do.
#pragma once

#include "common/chunk/wy.h"
#include "common/operands.cuh"
#include "common/params.h"

namespace cubinery::dev {

// Tokens first ... first + tokens - 1 of row `batch` of the tensors of tokens.
struct Sequence {
  long long batch;
  long long first;
  long long tokens;
  long long slot;  // of its first chunk
};

// Sequence n of tensors [B, T, ...].
template <int kChunk>
__device__ Sequence dense_sequence(long long n, long long tokens) {
  return {.batch = n, .first = 0, .tokens = tokens, .slot = n * ((tokens + kChunk - 1) / kChunk)};
}

// Sequence n of packed tensors.  Requires: cu_seqlens never decreases.
template <int kChunk, DType kIndex>
__device__ Sequence packed_sequence(long long n, const StridedVector& cu_seqlens) {
  const long long first = load_index<kIndex>(cu_seqlens, n);
  const long long end = load_index<kIndex>(cu_seqlens, n + 1);
  return {.batch = 0, .first = first, .tokens = end - first, .slot = first / kChunk + n};
}

// The packed sequence that owns a slot of `slot_tokens` tokens, or would if it were longer: the
// last one whose first slot is not behind it.  Whatever cu_seqlens holds, the result is one of 0
// ... sequences - 1.
template <DType kIndex>
__device__ int sequence_of_slot(long long slot, int slot_tokens, const StridedVector& cu_seqlens,
                                int sequences) {
  int low = 0;
  int high = sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    const long long first = load_index<kIndex>(cu_seqlens, middle);
    (first / slot_tokens + middle <= slot ? low : high) = middle;
  }
  return low;
}

// Calls f(j, tokens) for the sequences, a thread for some each.  Whether one that this thread has
// is malformed: cu_seqlens is not 0 <= ... never decreasing ... <= tokens.
template <DType kIndex, int kThreads, class Function>
__device__ bool for_each_length(const StridedVector& cu_seqlens, int sequences, long long tokens,
                                Function f) {
  bool malformed = false;
  for (int j = threadIdx.x; j < sequences; j += kThreads) {
    const long long first = load_index<kIndex>(cu_seqlens, j);
    const long long end = load_index<kIndex>(cu_seqlens, j + 1);
    malformed |= first < 0 || end < first || end > tokens;
    f(j, end - first);
  }
  return malformed;
}

// What order[] holds for every sequence when cu_seqlens is malformed.
inline constexpr int kMalformed = -1;

// Writes n to order[rank of n by length, longest first; equal ones by n], so that the longest
// sequences start first.  Called by all threads of one block for each n.  `scratch` is in shared
// memory.
template <DType kIndex, int kThreads>
__device__ void rank_sequence(int n, const StridedVector& cu_seqlens, int sequences,
                              long long tokens, int* order, int* scratch) {
  const long long mine = load_index<kIndex>(cu_seqlens, n + 1) - load_index<kIndex>(cu_seqlens, n);
  if (threadIdx.x == 0) *scratch = 0;
  // Orders the zero before the additions.
  __syncthreads();
  int before = 0;
  bool malformed = for_each_length<kIndex, kThreads>(
      cu_seqlens, sequences, tokens,
      [&](int j, long long length) { before += length > mine || (length == mine && j < n); });
  atomicAdd(scratch, before);
  // Orders the additions before the reading, and asks all threads.
  malformed = __syncthreads_or(malformed);
  if (threadIdx.x == 0) order[malformed ? n : *scratch] = malformed ? kMalformed : n;
}

// Writes to order[] what rank_sequence() would for all n, if there are at most kMost sequences.
// False: cu_seqlens is malformed.  Called by all threads of a block, of which no one reads order[]
// before their next barrier; order[kMost] and `lengths`, kMost numbers, are in shared memory.
template <DType kIndex, int kThreads, int kMost>
__device__ bool rank_sequences(const StridedVector& cu_seqlens, int sequences, long long tokens,
                               short* order, int* lengths) {
  const bool malformed = for_each_length<kIndex, kThreads>(
      cu_seqlens, sequences, tokens, [&](int j, long long length) {
        if (j < kMost) lengths[j] = static_cast<int>(length);
      });
  // Asks all threads, and orders the lengths before their reading.
  if (__syncthreads_or(malformed)) return false;
  if (sequences > kMost) return true;
  for (int n = threadIdx.x; n < sequences; n += kThreads) {
    const int mine = lengths[n];
    int before = 0;
    for (int j = 0; j < sequences; ++j) {
      before += lengths[j] > mine || (lengths[j] == mine && j < n);
    }
    order[before] = static_cast<short>(n);
  }
  return true;
}

}  // namespace cubinery::dev
