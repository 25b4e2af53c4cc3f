// The tokens of each request at once against one state, in the WY form, on the tensor cores:
//
//   L_ij = beta_i k^_i.k^_j e^(G_i - G_j), j < i     T = (I + L)^-1
//   P_ij = scale q^_i.k^_j e^(G_i - G_j), j <= i     X = beta (V - e^G K^ S)
//   U = T X      O = scale e^G Q^ S + P U      S_t = e^(G_t) S + sum over i <= t of
//                                                    e^(G_t - G_i) k^_i u_i^T
//
// with G the sums of g up to and with each token.  Every state comes from the first one: no error
// adds up.  In a tree, j < i says that token j is an ancestor of token i, and G sums along the
// path: the same products, of which other elements are 0.
//
// One warp <-> (request, head, warp_v value columns).  Everything is computed transposed, value
// columns as rows: then the state, as it lies in memory, is the left operand of K S and Q S, and
// each product finds its left operand where the one before left its result.  T, P and the factors
// need no state: the block's first warp makes them while the state is on its way to shared memory.
// With a norm of outputs a block has one head, whose outputs wait in shared memory for the last of
// its columns, and a warp passes over its own warp_v at a time.
//
// What is rounded: o and stored states, and, where no state is stored and o has 16 bits, S to tf32.
// Products of 16-bit numbers are exact; fp32 goes into others as two tf32, which have 22 of its
// bits.
#include "common/gates.cuh"
#include "common/launch.cuh"
#include "common/output_norm.cuh"
#include "common/requests.cuh"
#include "common/tokens/factors.cuh"
#include "common/tokens/state_tile.cuh"
#include "common/tokens/values.cuh"
#include "common/tokens/warp_columns.cuh"
#include "gdn_verify_wy/key.h"
#include "gdn_verify_wy/operands.cuh"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnVerifyWyKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnVerifyWyKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_verify_wy: key outside the tuning space");

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

using dev::Acc;
using WyFactors = dev::WyFactors<kKey>;
using Output = dev::Storage<kKey.output_dtype>;
using StateTile = dev::StateTile<kKey>;
using StateTiles = dev::StateTiles<kKey>;

constexpr bool kPaired = is_paired(kKey);  // k and q, and u and o
constexpr int kHalves = dev::kTokenHalves<kKey>;
constexpr bool kOneHead = is_of_one_head(kKey);  // of a block
constexpr bool kIsNormed = is_normed(kKey);
constexpr int kPasses = warp_passes(kKey);
constexpr int kFactorsAt = factors_at(kKey);
constexpr int kWaitingAt = kFactorsAt - waiting_bytes(kKey);

// Of a tile's two columns from v on: to memory, or to where they wait for their norm.
__device__ void put_outputs(const GdnVerifyParams& p, TokenStrides::At at, int count, int v,
                            const Acc& o, float* waiting) {
  Output* const rows = dev::row_at<kKey.output_dtype>(p.o, at) + v;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int i = dev::tile_column() + 8 * h + e - (kPaired ? kKey.draft_tokens : 0);
      if (i < 0 || i >= count) continue;
      if constexpr (kIsNormed) {
        float* const row = waiting + i * waiting_stride(kKey) + v;
        *reinterpret_cast<float2*>(row) = make_float2(o.x[0][h][e], o.x[1][h][e]);
      } else {
        Output* const row = rows + i * p.o.stride.token;
        row[0] = dev::from_float<kKey.output_dtype>(o.x[0][h][e]);
        row[1] = dev::from_float<kKey.output_dtype>(o.x[1][h][e]);
      }
    }
  }
}

// What a tree has as the parent of the token at `at`; -1 where no token `is_there`, and in a chain.
__device__ long long parent_of(const GdnVerifyParams& p, TokenStrides::At at, bool is_there) {
  if constexpr (!kKey.tree) return -1;
  if (!is_there) return -1;
  return dev::as<kKey.parents_dtype>(p.parents.data)[dev::offset_of(p.parents.stride, at)];
}

// The states of the block's warps, then outputs that wait, then the factors, then channels.
extern __shared__ __align__(16) unsigned char shared[];

}  // namespace

extern "C" __global__ void __launch_bounds__(threads(kKey), min_blocks(kKey))
    gdn_verify_wy(const __grid_constant__ GdnVerifyParams p) {
  const dev::WarpColumns<kKey> unit;
  int h = unit.head;
  const long long n = blockIdx.y + static_cast<long long>(blockIdx.z) * gridDim.y;
  // Whole blocks where a barrier below spans warps: they have one head and one request.
  if (h >= p.heads || n >= p.requests) return;
  int lane_v = unit.first_v + 2 * dev::tile_row();  // this lane's first column

  dev::wait_for_previous_kernel();
  dev::Request request;
  if (!dev::find_tokens<kKey>(p, n, h, unit.first_v, &request)) return;
  const TokenStrides::At at = request.at;
  const int count = request.count;
  float* const waiting = reinterpret_cast<float*>(shared + kWaitingAt);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    // Else addresses are worked out ahead of the loop, and there are no registers for them.
    if constexpr (kPasses > 1) asm volatile("" : "+r"(h), "+r"(lane_v));
    const int first_v = unit.first_v + pass * kKey.warp_v;
    const int v = lane_v + pass * kKey.warp_v;  // this lane's first of the pass

    // What needs no slot is loaded in front of the wait for it, and used when the state is on its
    // way.
    TokenStrides::At own = at;
    const int token = threadIdx.x % kKey.draft_tokens;
    own.token += token < count ? token : 0;
    const bool makes_factors = !kOneHead || unit.warp == 0;
    dev::GivenGates given;
    if (count > 0 && makes_factors) given = dev::load_gates<kKey>(p.gates, own);
    const long long parent = parent_of(p, own, token < count);
    const dev::GatesOfTokens all = dev::gates_of_tokens<kKey>(p.gates, h, p.lower_bound);
    const int k_head = dev::own_head(p.k, h);
    const int q_head = p.q.group == p.k.group ? k_head : dev::own_head(p.q, h);
    dev::Operands<kKey> rows(p, {at, k_head, q_head, count}, shared + channels_at(kKey));
    dev::TokenValues<kKey> next_values;
    next_values.load(p.v, at, count, v);
    dev::Places places;
    if (!dev::find_places<kKey>(p, n, unit.first_v, request, &places)) return;
    if (kKey.tree && __any_sync(0xffffffffu, parent < -1 || parent >= token)) {
      dev::fill_outputs<kKey>(p, at, request.end, 1, unit.first_v, dev::nan());
      return;
    }
    const dev::OrderOf<kKey> order(static_cast<int>(parent));
    const dev::Slots& slots = places.slots;
    const long long start = places.start;
    StateTiles tiles(shared);
    if constexpr (kKey.states.has_initial) {
      tiles.start(dev::matrix_at<kKey.states.dtype>(p.states.read, slots.read, h) +
                      start * p.steps.read_state,
                  first_v);
    }
    dev::allow_next_kernel();

    rows.make(parent);
    WyFactors factors;
    if (makes_factors) {
      const bool is_there = token < count;
      factors = rows.factors(
          order, is_there ? dev::log_decay_of_head<kKey>(all, given) * dev::kLog2E : 0.0f,
          is_there ? dev::beta_of<kKey>(given) : 0.0f, p.scale);
    }
    if constexpr (kOneHead && kKey.warps > 1) {
      float* const shared_factors = reinterpret_cast<float*>(shared + kFactorsAt);
      if (makes_factors) factors.share(shared_factors);
      // Orders the factors, and updates of channels, before their reading by other warps.
      __syncthreads();
      if (!makes_factors) factors.take(shared_factors);
    }
#pragma unroll 1
    for (int i = 0; i < StateTiles::kTiles; ++i) {
      const StateTile state = tiles.take(i);
      const int tile_v = v + 16 * i;
      if constexpr (StateTiles::kTiles > 1) rows.forget_operands();
      const dev::TokenValues<kKey> values = next_values;
      if (i + 1 < StateTiles::kTiles) next_values.load(p.v, at, count, tile_v + 16);
      Acc u{}, o{};
      rows.solve(state, factors, values, &u, &o);
      put_outputs(p, at, count, tile_v, o, waiting);

      const auto matrix = [&](long long slot, long long step) {
        return dev::matrix_at<kKey.states.dtype>(p.states.written, slot, h) +
               step * p.steps.written_state + StateTile::first(first_v + 16 * i);
      };
      if constexpr (dev::kStoresEvery<kKey>) {
#pragma unroll 1
        for (int t = 0; t < count; ++t) {
          const dev::KeptStep kept = dev::kept_step<kKey>(slots, t);
          if (!kept.stores) continue;
          rows.store(state, factors, u, t, order, true, matrix(kept.slot, t));
        }
      } else if (dev::kStoresLast<kKey> && slots.store) {
        rows.store(state, factors, u, kKey.draft_tokens - 1, order, false,
                   matrix(slots.write, start));
      }
      if constexpr (kKey.states.has_initial) tiles.load_next(i);
    }
    // Orders this pass's reading of factors and states before the next one's.
    if constexpr (kPasses > 1) __syncthreads();
  }
  if constexpr (kIsNormed) dev::store_normed<kKey>(p, at, count, waiting);
}
