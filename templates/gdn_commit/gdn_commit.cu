// The states of all layers after the accepted tokens of each request, from k, v and gates that a
// verification left behind:
//
//   L_ij = beta_i k^_i.k^_j e^(G_i - G_j), j < i     T = (I + L)^-1
//   U = T beta (V - e^G K^ S)                        S <- e^(G_n) S + sum over i <= n of
//                                                                     e^(G_n - G_i) k^_i u_i^T
//
// with n the number of accepted tokens: gdn_verify_wy.cu without q and o.  Nothing is rounded but
// the new states; fp32 goes into products as two tf32.
//
// One warp <-> (layer, request, head, warp_v value columns).  Every state is read and written once,
// and that is what the time goes to; layers differ in their tensors alone, which are found through
// a table in memory.
#include "common/gates.cuh"
#include "common/launch.cuh"
#include "common/requests.cuh"
#include "common/tokens/factors.cuh"
#include "common/tokens/state_tile.cuh"
#include "common/tokens/values.cuh"
#include "common/tokens/warp_columns.cuh"
#include "gdn_commit/key.h"
#include "gdn_commit/operands.cuh"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnCommitKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnCommitKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_commit: key outside the tuning space");

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

using dev::Acc;
using StateTile = dev::StateTile<kKey>;
using StateTiles = dev::StateTiles<kKey>;
using WyFactors = dev::WyFactors<kKey>;

constexpr bool kOneHead = is_of_one_head(kKey);  // of a block
constexpr int kFactorsAt = factors_at(kKey);

// What tokens_of() asks for.
struct Bounds {
  int requests;
  long long tokens;
  StridedVector cu_seqlens;
};

// The accepted tokens of a request.
struct Accepted {
  bool is_valid;  // else its state is left alone
  int count;
  TokenStrides::At first;
};

__device__ Accepted accepted_tokens(const GdnCommitParams& p, const GdnCommitLayer& layer,
                                    long long n, int head) {
  const Bounds bounds{p.requests, layer.tokens, p.cu_seqlens};
  if (n >= layer.requests || (kKey.varlen && dev::is_malformed<kKey>(bounds))) return {};
  const dev::Tokens tokens = dev::tokens_of<kKey>(bounds, n);
  const long long count = p.accepted.data == nullptr
                              ? tokens.count
                              : dev::load_index<kKey.accepted_dtype>(p.accepted, n);
  return {.is_valid = tokens.count <= p.draft_tokens && count >= 0 && count <= tokens.count,
          .count = static_cast<int>(count),
          .first = {.batch = tokens.batch, .token = tokens.first, .head = head}};
}

__device__ dev::Slots slots_of(const GdnCommitParams& p, const GdnCommitLayer& layer, long long n) {
  return dev::slots_of<kKey>({.read = layer.read,
                              .written = layer.written,
                              .read_indices = p.read_indices,
                              .write_indices = p.write_indices,
                              .padding = p.padding},
                             n);
}

// The states of the block's warps, then the factors, then channels.
extern __shared__ __align__(16) unsigned char shared[];

}  // namespace

extern "C" __global__ void __launch_bounds__(threads(kKey), min_blocks(kKey))
    gdn_commit(const __grid_constant__ GdnCommitParams p) {
  const dev::WarpColumns<kKey> unit;
  const int h = unit.head;
  const unsigned row = blockIdx.y + blockIdx.z * gridDim.y;
  const unsigned n = row % p.requests, number = row / p.requests;
  // Whole blocks where a barrier below spans warps, here and further on: they have one head of one
  // request.
  if (h >= p.heads || number >= p.layers) return;
  const int v = unit.first_v + 2 * dev::tile_row();  // this lane's first column

  dev::wait_for_previous_kernel();
  const GdnCommitLayer& layer = p.table == nullptr ? p.layer : p.table[number];
  const Accepted accepted = accepted_tokens(p, layer, n, h);
  const dev::Slots slots = slots_of(p, layer, n);
  const bool runs = accepted.is_valid && slots.kind == dev::Slots::Kind::kCompute && slots.store;
  if (!dev::all_lanes(runs)) return;
  const int count = accepted.count;
  const TokenStrides::At at = accepted.first;
  const auto* from = dev::matrix_at<kKey.states.dtype>(layer.read, slots.read, h);
  auto* to = dev::matrix_at<kKey.states.dtype>(layer.written, slots.write, h);
  if (dev::all_lanes(count == 0 && from == to)) return;

  StateTiles tiles(shared);
  tiles.start(from, unit.first_v);
  TokenStrides::At own = at;
  const int token = threadIdx.x % kKey.draft_tokens;
  const bool is_there = token < count;
  own.token += is_there ? token : 0;
  const bool makes_factors = !kOneHead || unit.warp == 0;
  dev::GivenGates given;
  dev::GatesOfTokens all;
  if (count > 0 && makes_factors) {
    given = dev::load_gates<kKey>(layer.gates, own);
    all = dev::gates_of_tokens<kKey>(layer.gates, h, p.lower_bound);
  }
  dev::Operands<kKey> rows(layer, p.lower_bound, at, count, shared + channels_at(kKey));
  dev::TokenValues<kKey> next_values;
  next_values.load(layer.v, at, count, v);
  dev::allow_next_kernel();

  rows.make();
  const dev::OrderOf<kKey> order(-1);
  WyFactors factors;
  if (makes_factors) {
    factors = WyFactors(rows.gram(order), order,
                        is_there ? dev::log_decay_of_head<kKey>(all, given) * dev::kLog2E : 0.0f,
                        is_there ? dev::beta_of<kKey>(given) : 0.0f);
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
    if (i + 1 < StateTiles::kTiles) next_values.load(layer.v, at, count, tile_v + 16);
    Acc products[1]{};  // S^T K^T
    rows.multiply(state, products);
    Acc u{};
    dev::solve(products[0], factors, values, &u);
    rows.store(state, factors, u, order, to + StateTile::first(unit.first_v + 16 * i));
    tiles.load_next(i);
  }
}
