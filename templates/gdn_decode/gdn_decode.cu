// One Gated DeltaNet step for each request and head:
//
//   S <- e^g S;   d = beta (v - S^T k);   S <- S + k d^T;   o = scale S^T q
//
// computed in one pass over S, since s = S^T k and r = S^T q come from the old state:
//
//   d = beta (v - e^g s);   o = scale (e^g r + (q.k) d);   S <- e^g S + k d^T
//
// One warp <-> (request, head, warp_v value columns).  Its part of S stays in registers between the
// load and the store; k_lanes lanes share a column and sum over key_dim by shuffles.  Warps share
// nothing: no shared memory, no block barrier.  The time is that of reading and writing S once. All
// arithmetic is fp32; o and S are rounded once, when they are stored.
#include "common/gates.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/norm.cuh"
#include "common/operands.cuh"
#include "common/slots.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "gdn_decode/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnDecodeKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnDecodeKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_decode: key outside the tuning space");

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own
using gdn::StateLayout;

constexpr bool kRowsAreV = kKey.states.layout == StateLayout::kVK;
constexpr int kVLanes = 32 / kKey.k_lanes;
constexpr int kKLaneStride = kRowsAreV ? 1 : kVLanes;  // between the lanes of a value column
constexpr int kVec = kKey.vec_bytes / size_of(kKey.states.dtype);
constexpr int kKPart = kKey.key_dim / kKey.k_lanes;          // elements of k and q per thread
constexpr int kVPart = kKey.warp_v / kVLanes;                // value columns per thread
constexpr int kRows = kRowsAreV ? kVPart : kKPart;           // state rows per thread
constexpr int kVecs = (kRowsAreV ? kKPart : kVPart) / kVec;  // vectors per row and thread
constexpr int kRowLength = kRowsAreV ? kKey.key_dim : kKey.value_dim;

// The lanes that run along a row are neighbours, so that a warp's loads coalesce.
struct Lane {
  int k = kRowsAreV ? threadIdx.x % kKey.k_lanes : threadIdx.x % 32 / kVLanes;
  int v = kRowsAreV ? threadIdx.x % 32 / kKey.k_lanes : threadIdx.x % kVLanes;
};

__device__ float sum_over_k(float x) { return dev::sum_over_lanes<kKey.k_lanes, kKLaneStride>(x); }

// Position in key_dim of this thread's element `e` of k and q.
__device__ int k_index(Lane lane, int e) {
  return kRowsAreV ? (e / kVec * kKey.k_lanes + lane.k) * kVec + e % kVec
                   : e * kKey.k_lanes + lane.k;
}

// Position in the warp's columns of this thread's column `e`.
__device__ int v_index(Lane lane, int e) {
  return kRowsAreV ? e * kVLanes + lane.v : (e / kVec * kVLanes + lane.v) * kVec + e % kVec;
}

// A thread's part of the state: rows[r][c] holds kVec neighbours of one state row.
struct StatePart {
  dev::Vec<kKey.states.dtype, kKey.vec_bytes> rows[kRows][kVecs];

  // Element (k_index(ke), v_index(ve)).
  __device__ float get(int ke, int ve) const {
    return kRowsAreV ? rows[ve][ke / kVec].get(ke % kVec) : rows[ke][ve / kVec].get(ve % kVec);
  }

  // Offset in the head's matrix of rows[r][c]; the warp's columns start at first_v.
  static __device__ int offset(Lane lane, int first_v, int r, int c) {
    const int row = kRowsAreV ? first_v + v_index(lane, r) : k_index(lane, r);
    const int column = kRowsAreV ? k_index(lane, c * kVec) : first_v + v_index(lane, c * kVec);
    return row * kRowLength + column;
  }
};

// This thread's elements of a row of key_dim, divided by the row's norm with use_qk_l2norm.
__device__ void load_key_row(float (&dst)[kKPart], Lane lane, const dev::Storage<kKey.dtype>* row) {
#pragma unroll
  for (int e = 0; e < kKPart; ++e) dst[e] = dev::load<kKey.dtype>(row, k_index(lane, e));
  if constexpr (kKey.inputs.use_qk_l2norm) dev::normalize<kKey.k_lanes, kKLaneStride>(dst);
}

__device__ void store_output(const GdnDecodeParams& p, Lane lane, long long n, int h, int v,
                             float value) {
  if (lane.k != 0) return;  // all k lanes of a column hold the same value
  dev::row_at<kKey.output_dtype>(p.o, {n, h})[v] = dev::from_float<kKey.output_dtype>(value);
}

}  // namespace

// The 1 offers the compiler every register; left to itself it spills some keys to fit more blocks.
extern "C" __global__ void __launch_bounds__(threads(kKey), 1)
    gdn_decode(const __grid_constant__ GdnDecodeParams p) {
  constexpr int kTiles = kKey.value_dim / kKey.warp_v;
  const int unit = blockIdx.x * kKey.warps + threadIdx.x / 32;
  const int row = unit / kTiles;  // request and head
  const int first_v = unit % kTiles * kKey.warp_v;
  const long long n = row / p.heads;
  const int h = row % p.heads;
  if (n >= p.requests) return;  // whole warps leave: no barrier below spans warps
  const Lane lane;

  dev::wait_for_previous_kernel();
  const dev::Slots slots = dev::slots_of<kKey>(p.states, n);
  if (slots.kind == dev::Slots::Kind::kSkip) return;
  if (slots.kind != dev::Slots::Kind::kCompute) {
    const float fill = slots.kind == dev::Slots::Kind::kZero ? 0.0f : dev::nan();
#pragma unroll
    for (int ve = 0; ve < kVPart; ++ve) {
      store_output(p, lane, n, h, first_v + v_index(lane, ve), fill);
    }
    return;
  }

  // The long loads first; everything up to their first use hides behind them.
  StatePart state;
  if constexpr (kKey.states.has_initial) {
    const auto* head = dev::matrix_at<kKey.states.dtype>(p.states.read, slots.read, h);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kVecs; ++c) {
        dev::load_streaming(state.rows[r][c], head + StatePart::offset(lane, first_v, r, c));
      }
    }
  }
  dev::allow_next_kernel();
  float k[kKPart];
  float q[kKPart];
  load_key_row(k, lane, dev::row_at<kKey.dtype>(p.k, {n, h}));
  load_key_row(q, lane, dev::row_at<kKey.dtype>(p.q, {n, h}));
  float qk = 0.0f;
#pragma unroll
  for (int e = 0; e < kKPart; ++e) qk = fmaf(q[e], k[e], qk);
  qk = sum_over_k(qk);
  const float decay = dev::decay_of<kKey>(p.gates, {n, h});
  const float beta = dev::beta_of<kKey>(p.gates, {n, h});

  float d[kVPart];
#pragma unroll
  for (int ve = 0; ve < kVPart; ++ve) {
    float s = 0.0f;
    float r = 0.0f;
    if constexpr (kKey.states.has_initial) {
#pragma unroll
      for (int ke = 0; ke < kKPart; ++ke) {
        s = fmaf(k[ke], state.get(ke, ve), s);
        r = fmaf(q[ke], state.get(ke, ve), r);
      }
      s = sum_over_k(s);
      r = sum_over_k(r);
    }
    const int v = first_v + v_index(lane, ve);
    const float value = dev::load<kKey.dtype>(dev::row_at<kKey.dtype>(p.v, {n, h}), v);
    // Every fused multiply-add is written out: the compiler's choice differs between tilings, and
    // so would bits.
    d[ve] = beta * fmaf(-decay, s, value);
    store_output(p, lane, n, h, v, p.scale * fmaf(qk, d[ve], __fmul_rn(decay, r)));
  }

  if constexpr (kKey.states.store) {
    if (!slots.store) return;
    auto* head = dev::matrix_at<kKey.states.dtype>(p.states.written, slots.write, h);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kVecs; ++c) {
        float values[kVec];
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          const int ke = kRowsAreV ? c * kVec + i : r;
          const int ve = kRowsAreV ? r : c * kVec + i;
          const float old = kKey.states.has_initial ? __fmul_rn(decay, state.get(ke, ve)) : 0.0f;
          values[i] = fmaf(k[ke], d[ve], old);
        }
        dev::Vec<kKey.states.dtype, kKey.vec_bytes> updated;
        updated.set(values);
        dev::store_streaming(head + StatePart::offset(lane, first_v, r, c), updated);
      }
    }
  }
}
