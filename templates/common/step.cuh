// One Gated DeltaNet step, a warp at a time: how its lanes share the state, and the arithmetic.
// Kernels that agree in k_lanes and vec_bytes agree in every bit.
//
// Templates over the kernels' keys, which name dims, dtypes, k_lanes and vec_bytes alike.  k_lanes
// lanes lie along key_dim, the others along value columns; those that run along a row of the state
// are neighbours, so that a warp's loads coalesce.
#pragma once

#include "common/operands.cuh"
#include "common/slots.cuh"
#include "common/uniform.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"

namespace cubinery::dev {

template <auto kKey>
struct Step {
  static constexpr bool kRowsAreV = kKey.states.layout == gdn::StateLayout::kVK;
  static constexpr int kVLanes = 32 / kKey.k_lanes;
  static constexpr int kKLaneStride = kRowsAreV ? 1 : kVLanes;  // between a column's lanes
  static constexpr int kRowLength = kRowsAreV ? kKey.key_dim : kKey.value_dim;
  static constexpr int kVec = kKey.vec_bytes / size_of(kKey.states.dtype);
  static constexpr int kKPart = kKey.key_dim / kKey.k_lanes;  // elements of k and q per thread
  // Of those, how many lie side by side, so that they are loaded as vectors.
  static constexpr int kKRun = kRowsAreV ? kVec : kKPart % 4 == 0 ? 4 : kKPart % 2 == 0 ? 2 : 1;

  // A piece of the state is as few columns as a warp has with one vector of each row that they
  // touch.
  static constexpr int kColumns = kRowsAreV ? 1 : kVec;  // of a piece, per thread
  static constexpr int kPieceV = kVLanes * kColumns;
  static constexpr int kVecs = kRowsAreV ? kKPart / kVec : kKPart;  // of a piece, per thread

  struct Lane {
    int k = kRowsAreV ? threadIdx.x % kKey.k_lanes : threadIdx.x % 32 / kVLanes;
    int v = kRowsAreV ? threadIdx.x % 32 / kKey.k_lanes : threadIdx.x % kVLanes;

    // In the warp.
    __device__ int number() const { return kRowsAreV ? v * kKey.k_lanes + k : k * kVLanes + v; }
  };

  // Position in key_dim of a thread's element `e` of k and q, behind its first one.
  static constexpr int k_offset(int e) { return e / kKRun * kKey.k_lanes * kKRun + e % kKRun; }

  static __device__ float sum_over_k(float x) {
    return sum_over_lanes<kKey.k_lanes, kKLaneStride>(x);
  }

  // A thread's part of a piece of the state.
  struct Piece {
    Vec<kKey.states.dtype, kKey.vec_bytes> vecs[kVecs];

    // Element `ke` of the thread's part of a column.
    __device__ float get(int ke, int column) const {
      return kRowsAreV ? vecs[ke / kVec].get(ke % kVec) : vecs[ke].get(column);
    }
    // The element of get() that is number `i` of vecs[c].
    static constexpr int key_of(int c, int i) { return kRowsAreV ? c * kVec + i : c; }
    static constexpr int column_of(int i) { return kRowsAreV ? 0 : i; }

    // Of vecs[c] of a piece in the head's matrix, behind the thread's first vector of piece 0.
    static constexpr int offset(int piece, int c) {
      return kRowsAreV ? piece * kPieceV * kRowLength + k_offset(c * kVec)
                       : k_offset(c) * kRowLength + piece * kPieceV;
    }
    // The thread's first vector of a piece; its first column there is v.
    static __device__ int first(Lane lane, int v) {
      return kRowsAreV ? v * kRowLength + lane.k * kKRun : lane.k * kKRun * kRowLength + v;
    }
  };
};

// This thread's elements of a row of k or q, in flight until get().
template <auto kKey>
class KeyRow {
  using S = Step<kKey>;

 public:
  // `aligned`: the row starts at a multiple of 16 bytes.
  __device__ KeyRow(const Storage<kKey.dtype>* row, bool aligned, typename S::Lane lane) {
    row += lane.k * S::kKRun;
    if (aligned && kWhole) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) load_vector(vectors_[i], row + S::k_offset(i * kEach));
      return;
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float elements[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        elements[e] = e < kUsed ? load<kKey.dtype>(row, S::k_offset(i * kUsed + e)) : 0.0f;
      }
      vectors_[i].set(elements);
    }
  }

  __device__ void get(float (&to)[S::kKPart]) const {
#pragma unroll
    for (int e = 0; e < S::kKPart; ++e) to[e] = vectors_[e / kUsed].get(e % kUsed);
  }

 private:
  static constexpr int kRunBytes = S::kKRun * size_of(kKey.dtype);
  static constexpr int kBytes = kRunBytes < 4 ? 4 : kRunBytes < 16 ? kRunBytes : 16;
  using Vector = Vec<kKey.dtype, kBytes>;
  static constexpr int kEach = Vector::kElements;
  static constexpr bool kWhole = kRunBytes >= 4;           // else a vector is half empty
  static constexpr int kUsed = kWhole ? kEach : S::kKRun;  // elements
  static constexpr int kVectors = S::kKPart / kUsed;

  Vector vectors_[kVectors];
};

// The indices of a request's slots, in flight until resolve().
template <auto kKey>
class GivenSlots {
 public:
  __device__ GivenSlots(const StateParams& states, long long n) : read_(n), write_(n) {
    if constexpr (kKey.states.location == gdn::StateLocation::kPool) {
      read_ = load_index<kKey.states.index_dtype>(states.read_indices, n);
      write_ = load_index<kKey.states.index_dtype>(states.write_indices, n);
    }
  }

  __device__ Slots resolve(const StateParams& states) const {
    if constexpr (kKey.states.location == gdn::StateLocation::kDense) {
      return {.read = read_, .write = write_};
    }
    return resolve_slots(read_, write_, states.read.slots, states.written.slots, states.padding);
  }

 private:
  long long read_, write_;
};

// The arithmetic, of sums s over S k and r over S q of the old state; common/decays.cuh says what
// the decay is in it.
//
// Every fused multiply-add is written out: the compiler's choice differs between tilings, and so
// would bits.
struct StepFactors {
  float decay, beta;  // Decays::of_sums()
  float qk;           // q.k
  float scale;
};

__device__ inline float correction(const StepFactors& f, float s, float v) {
  return f.beta * fmaf(-f.decay, s, v);
}
__device__ inline float output_of(const StepFactors& f, float r, float d) {
  return f.scale * fmaf(f.qk, d, __fmul_rn(f.decay, r));
}
// An element of the state.
__device__ inline float updated(float decay, float old, float k, float d) {
  return fmaf(k, d, __fmul_rn(decay, old));
}

}  // namespace cubinery::dev
