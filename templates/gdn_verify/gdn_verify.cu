// The tokens of each request, one after the other, against one state: for every token the step of
// gdn_decode.
//
// One warp <-> (request, head, warp_v value columns).  Its part of S stays in registers, in fp32,
// over all tokens; what the next token brings is loaded while this one is computed.  Warps share
// nothing, no shared memory and no block barrier, but for a norm of outputs: then a block has one
// head, whose outputs wait in shared memory for the last of its columns, and a warp passes over
// its own warp_v at a time.  A request's tokens cost the time of reading its state once, and of
// their arithmetic.
#include "common/decays.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/norm.cuh"
#include "common/operands.cuh"
#include "common/output_norm.cuh"
#include "common/requests.cuh"
#include "common/slots.cuh"
#include "common/step.cuh"
#include "common/uniform.cuh"
#include "common/vec.cuh"
#include "gdn_verify/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnVerifyKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnVerifyKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_verify: key outside the tuning space");

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

using Step = dev::Step<kKey>;
using Piece = Step::Piece;
using Lane = Step::Lane;
using Decays = dev::Decays<kKey>;
using Input = dev::Storage<kKey.dtype>;

constexpr bool kIsNormed = is_normed(kKey);
// Of outputs as a token's step leaves them: in memory, or waiting for their norm.
constexpr DType kOutput = kIsNormed ? DType::kF32 : kKey.output_dtype;
using Output = dev::Storage<kOutput>;

constexpr DType kState = kKey.states.dtype;
constexpr int kPieces = kKey.warp_v / Step::kPieceV;

// A thread's part of the state.
struct StatePart {
  float values[kPieces][Step::kVecs][Step::kVec];

  // Element `ke` of the thread's part of a column of a piece.
  __device__ float& at(int piece, int ke, int column) {
    return Step::kRowsAreV ? values[piece][ke / Step::kVec][ke % Step::kVec]
                           : values[piece][ke][column];
  }
};

// `from`: the thread's first vector.
__device__ void load_state(StatePart* state, const dev::Storage<kState>* from) {
  Piece pieces[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int c = 0; c < Step::kVecs; ++c) {
      dev::load_streaming(pieces[i].vecs[c], from + Piece::offset(i, c));
    }
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int c = 0; c < Step::kVecs; ++c) {
#pragma unroll
      for (int e = 0; e < Step::kVec; ++e) state->values[i][c][e] = pieces[i].vecs[c].get(e);
    }
  }
}

__device__ void store_state(const StatePart& state, dev::Storage<kState>* to) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int c = 0; c < Step::kVecs; ++c) {
      dev::Vec<kState, kKey.vec_bytes> rounded;
      rounded.set(state.values[i][c]);
      dev::store_streaming(to + Piece::offset(i, c), rounded);
    }
  }
}

// Where a head's tokens lie in one of q, k and v.
struct Rows {
  const Input* first;
  long long stride;
  bool aligned;

  __device__ Rows(const InputRows<TokenStrides>& rows, TokenStrides::At at)
      : stride(rows.stride.token), aligned(rows.aligned) {
    at.head = dev::own_head(rows, at.head);
    first = dev::as<kKey.dtype>(rows.data) + dev::offset_of(rows.stride, at);
  }
  __device__ const Input* row(int t) const { return first + t * stride; }
};

// What a token brings to a thread whose first column is v, in flight until it is used.
struct Token {
  dev::KeyRow<kKey> k, q;
  float values[kPieces][Step::kColumns];
  Decays::Given gates;

  __device__ Token(const GdnVerifyParams& p, const Rows& k, const Rows& q, const Rows& v,
                   TokenStrides::At at, int t, Lane lane, int first_column)
      : k(k.row(t), k.aligned, lane), q(q.row(t), q.aligned, lane) {
    at.token += t;
    gates = Decays::Given(p.gates, at, lane);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < Step::kColumns; ++j) {
        values[i][j] = dev::load<kKey.dtype>(v.row(t), first_column + i * Step::kPieceV + j);
      }
    }
  }
};

// One token: its update to the state, its outputs to `o`, the thread's first column.
__device__ void step(StatePart* state, const Token& token, const Decays::OfTokens& all, float scale,
                     Lane lane, Output* o) {
  float k[Step::kKPart], q[Step::kKPart];
  token.k.get(k);
  token.q.get(q);
  if constexpr (kKey.inputs.use_qk_l2norm) {
    dev::normalize<kKey.k_lanes, Step::kKLaneStride>(k);
    dev::normalize<kKey.k_lanes, Step::kKLaneStride>(q);
  }
  float qk = 0.0f;
#pragma unroll
  for (int e = 0; e < Step::kKPart; ++e) qk = fmaf(q[e], k[e], qk);
  const Decays decays(all, token.gates, lane);
  const dev::StepFactors factors{.decay = decays.of_sums(),
                                 .beta = token.gates.beta(),
                                 .qk = Step::sum_over_k(qk),
                                 .scale = scale};
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int j = 0; j < Step::kColumns; ++j) {
      float s = 0.0f, r = 0.0f;
#pragma unroll
      for (int e = 0; e < Step::kKPart; ++e) {
        const float x = decays.before_sums(state->at(i, e, j), e);
        s = fmaf(k[e], x, s);
        r = fmaf(q[e], x, r);
      }
      s = Step::sum_over_k(s);
      r = Step::sum_over_k(r);
      const float d = dev::correction(factors, s, token.values[i][j]);
      if (lane.k == 0) {  // all k lanes of a column hold the same value
        o[i * Step::kPieceV + j] = dev::from_float<kOutput>(dev::output_of(factors, r, d));
      }
#pragma unroll
      for (int e = 0; e < Step::kKPart; ++e) {
        float& value = state->at(i, e, j);
        value = dev::updated(decays.of(e), value, k[e], d);
        if constexpr (kKey.round_each_token) {
          value = dev::to_float<kState>(dev::from_float<kState>(value));
        }
      }
    }
  }
}

}  // namespace

// The 1 offers the compiler every register; left to itself it spills some keys to fit more blocks.
extern "C" __global__ void __launch_bounds__(threads(kKey), 1)
    gdn_verify(const __grid_constant__ GdnVerifyParams p) {
  constexpr int kTiles = kKey.value_dim / warp_columns(kKey);
  const int unit = blockIdx.x * kKey.warps + dev::uniform(threadIdx.x / 32);
  const int h = unit / kTiles;
  const long long n = blockIdx.y + static_cast<long long>(blockIdx.z) * gridDim.y;
  // Whole warps, and whole blocks where a barrier below spans warps: they have one head and one
  // request.
  if (h >= p.heads || n >= p.requests) return;
  const int warp_v = unit % kTiles * warp_columns(kKey);  // the warp's first column
  const Lane lane;

  dev::wait_for_previous_kernel();
  dev::Request request;
  if (!dev::find_tokens<kKey>(p, n, h, warp_v, &request)) return;
  dev::Places places;
  if (!dev::find_places<kKey>(p, n, warp_v, request, &places)) return;
  const TokenStrides::At at = request.at;
  const dev::Slots& slots = places.slots;
  const long long start = places.start;
  const int count = request.count;

  __shared__ float waiting[kIsNormed ? kMaxVerifyTokens * waiting_stride(kKey) : 1];
#pragma unroll 1
  for (int pass = 0; pass < warp_passes(kKey); ++pass) {
    const int first_v = warp_v + pass * kKey.warp_v;
    // The long loads first; everything up to their first use hides behind them.
    const int v = first_v + lane.v * Step::kColumns;  // this thread's first column
    const int first_vector = Piece::first(lane, v);
    StatePart state{};
    if constexpr (kKey.states.has_initial) {
      load_state(&state, dev::matrix_at<kState>(p.states.read, slots.read, h) +
                             start * p.steps.read_state + first_vector);
    }
    dev::allow_next_kernel();
    // After step `step`, whose slot is `write`.
    const auto store = [&](long long write, long long step) {
      store_state(state, dev::matrix_at<kState>(p.states.written, write, h) +
                             step * p.steps.written_state + first_vector);
    };
    if (dev::all_lanes(count > 0)) {
      const Decays::OfTokens all(p.gates, h, p.lower_bound, lane);
      const Rows k_rows(p.k, at), q_rows(p.q, at), v_rows(p.v, at);
      void* first_row = waiting;
      if constexpr (!kIsNormed) first_row = dev::row_at<kKey.output_dtype>(p.o, at);
      Output* o = dev::as<kOutput>(first_row) + v;
      Token next(p, k_rows, q_rows, v_rows, at, 0, lane, v);
#pragma unroll 1
      for (int t = 0; t < count; ++t, o += kIsNormed ? waiting_stride(kKey) : p.o.stride.token) {
        const Token token = next;
        if (t + 1 < count) next = Token(p, k_rows, q_rows, v_rows, at, t + 1, lane, v);
        step(&state, token, all, p.scale, lane, o);
        if constexpr (dev::kStoresEvery<kKey>) {
          const dev::KeptStep kept = dev::kept_step<kKey>(slots, t);
          if (kept.stores) store(kept.slot, t);
        }
      }
    }
    if (dev::kStoresLast<kKey> && slots.store) store(slots.write, start);
  }
  if constexpr (kIsNormed) dev::store_normed<kKey>(p, at, count, waiting);
}
