// One step of Gated DeltaNet, or of Kimi Delta Attention, for each request and head:
//
//   S <- e^g S;   d = beta (v - S^T k);   S <- S + k d^T;   o = scale S^T q
//
// computed in one pass over S, since all sums come from the old state (common/decays.cuh).
//
// q, k and v are given, or come from the convolution in front (rows.cuh).
//
// One warp <-> (request, head, warp_v value columns), of which it holds held_v in registers: where
// a piece has been updated and stored, the one held_v columns on is loaded.  Warps share nothing,
// no shared memory and no barrier, but for a norm of outputs (output_norm.cuh) and a convolution.
// The time is that of reading and writing S once.  All arithmetic is fp32; o and S are rounded
// once, when they are stored.  common/step.cuh has how lanes share it.
#include "common/decays.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/norm.cuh"
#include "common/operands.cuh"
#include "common/slots.cuh"
#include "common/step.cuh"
#include "common/uniform.cuh"
#include "common/vec.cuh"
#include "gdn_decode/key.h"
#include "gdn_decode/output_norm.cuh"
#include "gdn_decode/rows.cuh"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnDecodeKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnDecodeKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_decode: key outside the tuning space");
#if __CUDA_ARCH__ < 890
static_assert(!cubinery::is_fp8(kKey.states.dtype),
              "gdn_decode: states in fp8 need sm_89 or newer");
#endif

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

using Step = dev::Step<kKey>;
using Piece = Step::Piece;
using Decays = dev::Decays<kKey>;

constexpr int kPieces = kKey.warp_v / Step::kPieceV;
constexpr int kHeld = kKey.held_v / Step::kPieceV;
using Rows = dev::RowsOf<kKey>::Type;
constexpr bool kIsConvolved = kKey.conv.is_there();
constexpr bool kIsNormed = is_normed(kKey);

// The output of a request that has no slot.
__device__ void fill_output(dev::Storage<kKey.output_dtype>* o, dev::Slots::Kind kind) {
  const float fill = kind == dev::Slots::Kind::kZero ? 0.0f : dev::nan();
  for (int v = threadIdx.x % 32; v < kKey.warp_v; v += 32) {
    o[v] = dev::from_float<kKey.output_dtype>(fill);
  }
}

// A thread's columns of the state on their way through its registers.
class Columns {
 public:
  // `state`: the thread's first vector; `values`: its first column's.
  __device__ Columns(const dev::Storage<kKey.states.dtype>* state,
                     const dev::Storage<kKey.dtype>* values)
      : state_(state), values_(values) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) load(i);
  }

  __device__ const Piece& piece(int place) const { return pieces_[place]; }
  __device__ float value(int place, int column) const {
    if constexpr (!kIsConvolved) return given_values_[place][column];
    return dev::load<kKey.dtype>(values_ - kKey.held_v, place * Step::kPieceV + column);
  }

  // The piece held_v columns on takes this one's place.
  __device__ void load_next(int place) {
    if constexpr (kHeld < kPieces) load(place);
  }

  // Behind this, load_next() loads what is held_v columns further on.  In front of value().
  __device__ void advance() {
    state_ += Piece::offset(kHeld, 0);
    values_ += kKey.held_v;
  }

 private:
  __device__ void load(int place) {
    if constexpr (kKey.states.has_initial) {
#pragma unroll
      for (int c = 0; c < Step::kVecs; ++c) {
        dev::load_streaming(pieces_[place].vecs[c], state_ + Piece::offset(place, c));
      }
    }
    if constexpr (!kIsConvolved) {
#pragma unroll
      for (int j = 0; j < Step::kColumns; ++j) {
        given_values_[place][j] = dev::load<kKey.dtype>(values_, place * Step::kPieceV + j);
      }
    }
  }

  const dev::Storage<kKey.states.dtype>* state_;
  const dev::Storage<kKey.dtype>* values_;
  Piece pieces_[kHeld];
  float given_values_[kHeld][Step::kColumns];
};

// Rounds and stores a piece; `state` is the thread's first vector of it.
__device__ void store(dev::Storage<kKey.states.dtype>* state, int place, const Piece& old,
                      const Decays& decays, const float (&k)[Step::kKPart],
                      const float (&d)[Step::kColumns]) {
#pragma unroll
  for (int c = 0; c < Step::kVecs; ++c) {
    float values[Step::kVec];
#pragma unroll
    for (int i = 0; i < Step::kVec; ++i) {
      const int ke = Piece::key_of(c, i), j = Piece::column_of(i);
      const float before = kKey.states.has_initial ? old.get(ke, j) : 0.0f;
      values[i] = dev::updated(decays.of(ke), before, k[ke], d[j]);
    }
    dev::Vec<kKey.states.dtype, kKey.vec_bytes> vec;
    vec.set(values);
    dev::store_streaming(state + Piece::offset(place, c), vec);
  }
}

}  // namespace

// The 1 offers the compiler every register; left to itself it spills some keys to fit more blocks.
extern "C" __global__ void __launch_bounds__(threads(kKey), 1)
    gdn_decode(const __grid_constant__ GdnDecodeParams p) {
  constexpr int kTiles = kKey.value_dim / kKey.warp_v;
  const int unit = blockIdx.x * kKey.warps + dev::uniform(threadIdx.x / 32);
  const int h = unit / kTiles;
  const long long n = blockIdx.y + static_cast<long long>(blockIdx.z) * gridDim.y;
  // Whole heads where these are normed, else whole warps: as far as barriers below reach.
  if (h >= p.heads || n >= p.requests) return;
  const int first_v = unit % kTiles * kKey.warp_v;
  const dev::OwnColumns own{
      .n = n,
      .h = h,
      .first = first_v,
      .block_first = static_cast<int>(blockIdx.x) * kKey.warps % kTiles * kKey.warp_v};
  const Step::Lane lane;
  const RequestStrides::At at{n, h};

  dev::wait_for_previous_kernel();
  // Indices first: states wait for them.  Then what does not, used when the states are on their
  // way.
  const dev::GivenSlots<kKey> given_slots(p.states, n);
  Rows rows(p, own, lane);
  const Decays::Given given(p.gates, at, lane);
  const Decays::OfTokens all(p.gates, h, p.lower_bound, lane);
  auto* o = dev::row_at<kKey.output_dtype>(p.o, at) + first_v;
  const dev::Slots slots = given_slots.resolve(p.states);
  if (dev::all_lanes(slots.kind == dev::Slots::Kind::kSkip)) return;
  if (dev::all_lanes(slots.kind != dev::Slots::Kind::kCompute)) return fill_output(o, slots.kind);

  rows.begin(slots);
  const int v = first_v + lane.v * Step::kColumns;  // this thread's first column
  const int first_vector = Piece::first(lane, v);
  Columns columns(dev::matrix_at<kKey.states.dtype>(p.states.read, slots.read, h) + first_vector,
                  rows.values() + lane.v * Step::kColumns);
  dev::NormOf<kKey>::Type norm(p, at, first_v);
  dev::allow_next_kernel();
  float k[Step::kKPart], q[Step::kKPart];
  rows.finish(q, k);
  if constexpr (kKey.inputs.use_qk_l2norm) {
    dev::normalize<kKey.k_lanes, Step::kKLaneStride>(k);
    dev::normalize<kKey.k_lanes, Step::kKLaneStride>(q);
  }
  float qk = 0.0f;
#pragma unroll
  for (int e = 0; e < Step::kKPart; ++e) qk = fmaf(q[e], k[e], qk);
  const Decays decays(all, given, lane);
  const dev::StepFactors factors{.decay = decays.of_sums(),
                                 .beta = given.beta(),
                                 .qk = Step::sum_over_k(qk),
                                 .scale = p.scale};

  auto* written =
      dev::matrix_at<kKey.states.dtype>(p.states.written, slots.write, h) + first_vector;
  const bool stores = kKey.states.store && dev::all_lanes(slots.store);
  auto* const first_o = o;
  o += lane.v * Step::kColumns;
#pragma unroll 1
  for (int first = 0; first < kPieces; first += kHeld) {
    columns.advance();
#pragma unroll
    for (int place = 0; place < kHeld; ++place) {
      const Piece& state = columns.piece(place);
      float d[Step::kColumns];
#pragma unroll
      for (int j = 0; j < Step::kColumns; ++j) {
        float s = 0.0f, r = 0.0f;
        if constexpr (kKey.states.has_initial) {
#pragma unroll
          for (int e = 0; e < Step::kKPart; ++e) {
            const float x = decays.before_sums(state.get(e, j), e);
            s = fmaf(k[e], x, s);
            r = fmaf(q[e], x, r);
          }
          s = Step::sum_over_k(s);
          r = Step::sum_over_k(r);
        }
        d[j] = dev::correction(factors, s, columns.value(place, j));
        if constexpr (kIsNormed) {
          norm.put((first + place) * Step::kColumns + j, lane.k, dev::output_of(factors, r, d[j]));
        } else if (lane.k == 0) {  // all k lanes of a column hold the same value
          o[place * Step::kPieceV + j] =
              dev::from_float<kKey.output_dtype>(dev::output_of(factors, r, d[j]));
        }
      }
      if (stores) store(written, place, state, decays, k, d);
      if (first + kHeld < kPieces) columns.load_next(place);
    }
    written += Piece::offset(kHeld, 0);
    o += kKey.held_v;
  }
  if constexpr (kIsNormed) norm.store(first_o, p.norm.eps);
  rows.end(slots);
}
