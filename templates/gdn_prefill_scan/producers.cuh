// A warpgroup that makes the WY factors of units' chunks beside the warps that compute with them.
// Part of gdn_prefill_scan.cu.
//
// It takes two chunks at a time.  Of each [K; Q] K^T is one product, whose rows lie with the warps;
// then one warp makes T of a chunk, from k k^T, and another one all else.  Two more warps have the
// gates ready, so that nobody waits for these.
#pragma once

#include "common/chunk/make_wy.cuh"
#include "common/hopper/wgmma.cuh"
#include "gdn_prefill_scan/by_wgmma.cuh"
#include "gdn_prefill_scan/tickets.cuh"
#include "gdn_prefill_scan/units.cuh"

namespace {

// The gates of the chunk in a stage.
__device__ dev::GatesOfHead gates_at(int stage) {
  float* const sums = reinterpret_cast<float*>(producers_place()) + stage * 2 * kChunk;
  return {.sums = sums, .betas = sums + kChunk};
}

// For the warps that have the gates, which take turns.  A template, so that keys without producers
// do not compile it.
template <int kProducers = producers(kKey)>
class GateKeeper {
 public:
  __device__ explicit GateKeeper(const GdnPrefillScanParams& p) : p_(p) {}

  __device__ void run() const {
    // Chunks of all units, counted through.
    int mine = dev::uniform(static_cast<int>(threadIdx.x / 32)) % kGateWarps;
    int first = 0;  // of the unit
    Turn turn;
    for (int i = 0; i < mine; ++i) turn.pass();
    for (WorkTurn at; at.is_there(); at.leave()) {
      const Work& work = at.work();
      const int end = first + chunks_in(work.unit);
      if (mine < end) {
        const dev::GatesOfTokens of_all = dev::gates_of_tokens<kKey>(p_.gates, work.unit.h);
        dev::GivenGates given = load(work, mine - first);
        for (; mine < end; mine += kGateWarps) {
          const dev::GivenGates next = load(work, mine - first + kGateWarps);
          // The producers have read those of the chunk that was in the stage before.
          if (mine >= kKey.stages) dev::wait_for_phase(made_at(turn.stage), turn.parity ^ 1);
          const dev::GivenGates of_lane[1] = {given};
          dev::store_gates<kKey, kChunk>(gates_at(turn.stage), of_all, of_lane,
                                         tokens_in(work.unit) - (mine - first) * kChunk);
          dev::come_to(filled_at(turn.stage));  // each lane, behind its writing
          given = next;
          for (int i = 0; i < kGateWarps; ++i) turn.pass();
        }
      }
      first = end;
    }
  }

 private:
  // Of this lane's token, of a chunk of the unit's.
  __device__ dev::GivenGates load(const Work& work, int chunk) const {
    const int token = chunk * kChunk + static_cast<int>(threadIdx.x % 32);
    if (token >= tokens_in(work.unit)) return {};
    const Plan& at = work.plan;
    const int first = at.token + first_chunk(work.unit) * kChunk;
    return dev::load_gates<kKey>(p_.gates, TokenStrides::At{at.row, first + token, at.head});
  }

  const GdnPrefillScanParams& p_;
};

// For the producers.
template <int kProducers = producers(kKey)>
class Producers {
 public:
  __device__ explicit Producers(const GdnPrefillScanParams& p)
      : scale_(p.scale), warp_(dev::uniform(static_cast<int>(threadIdx.x / 32)) - kKey.warps) {}

  __device__ void run() const {
    const int number = warp_ % 2;  // of two chunks
    const bool inverts = warp_ < 2;
    Turn turn;  // of the first of the two chunks
    for (WorkTurn at; at.is_there();) {
      const int tokens = dev::uniform(tokens_in(at.work().unit));
      at.leave();
      for (int left = tokens; left > 0; left -= 2 * kChunk) {
        Turn second = turn;
        // Of an odd chunk the product is there twice.
        if (left > kChunk) second.pass();
        Products products[2];
        multiply(products, left, turn, second);
#pragma unroll
        for (int i = 0; i < 2; ++i) store_tiles(products[i], i);
        // Orders the tiles before their reading.
        sync_producers();
        const int stage = number == 0 ? turn.stage : second.stage;
        const unsigned parity = number == 0 ? turn.parity : second.parity;
        const int mine = left - number * kChunk;
        if (mine > 0) {
          if (inverts) {
            make_t(stage);
          } else {
            make_attention(mine, stage);
            if (is_tail(mine)) clear_values(mine, stage, parity);
          }
          // The WY factors, and zeros, before the products with them, and the rows' reading before
          // the next copies.
          dev::show_to_tma();
          // Each lane, behind its own.
          dev::come_to(made_at(stage));
        }
        turn = second;
        turn.pass();
      }
    }
  }

 private:
  // Of a product's rows: k's columns, and where norms are needed q's.
  static constexpr int kTiles = kKey.inputs.use_qk_l2norm ? 4 : 2;
  using Products = dev::Acc[kTiles];
  using Inverse = dev::UnitLowerInverse<2, kKey.dtype != DType::kBF16>;
  static constexpr bool kNorms = kKey.inputs.use_qk_l2norm;
  static constexpr int kTile = 16 * 16;  // elements

  // A barrier of the producers.
  static __device__ void sync_producers() { asm volatile("bar.sync 2, 128;" ::: "memory"); }

  // In shared memory, behind the gates, in fp32, for each of the two chunks: the tiles of k k^T and
  // q k^T, lower_tile() says where; with norms those on the diagonal of q q^T; what an inverse
  // takes; and six vectors.
  static constexpr int kTilesOfMatrix = lower_tiles(kChunk);
  static constexpr int kTilesOfChunk = 2 * kTilesOfMatrix + (kNorms ? 2 : 0);
  static constexpr int kInverse = kInverseScratchBytes / 4;
  static constexpr int kWork = kTilesOfChunk * kTile + kInverse + (kNorms ? 6 * kChunk : 0);
  static_assert(kProducers == 0 ||
                (kKey.stages * 2 * kChunk + 2 * kWork) * 4 == producer_bytes(kKey));

  static __device__ float* tiles_of(int i) { return gates_at(kKey.stages).sums + i * kWork; }
  static __device__ float* kk_tiles(int i) { return tiles_of(i); }
  static __device__ float* qk_tiles(int i) { return tiles_of(i) + kTilesOfMatrix * kTile; }
  static __device__ float* qq_tiles(int i) { return qk_tiles(i) + kTilesOfMatrix * kTile; }
  static __device__ float* scratch(int i) { return tiles_of(i) + kTilesOfChunk * kTile; }
  static __device__ float* vector(int i, int number) {
    return scratch(i) + kInverse + number * kChunk;
  }

  // Waits for two chunks, and multiplies.  Products that ran while WY factors are made would be
  // slower: the warps' other products wait for them.
  __device__ void multiply(Products (&products)[2], int left, const Turn& first,
                           const Turn& second) const {
    dev::wait_for_phase(filled_at(first.stage), first.parity);
    dev::wait_for_phase(filled_at(second.stage), second.parity);
    // Of the sequence's last chunk, which is one of these.
    const int behind = left <= kChunk ? left : left - kChunk;
    if (is_tail(behind)) {
      clear_keys_from<kProducers * 32>(stage_at(left <= kChunk ? first.stage : second.stage),
                                       behind);
      dev::show_to_tma();
    }
    // Orders zeros before the product, and what was read for the last two chunks before what is
    // written for these.
    sync_producers();
    dev::start_products();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned stage = dev::uniform_address(stage_at(i == 0 ? first.stage : second.stage));
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        const unsigned long long rows = SwizzledKeys::by_rows(stage, k);
        if (k == 0) {
          dev::multiply_shared<kKey.dtype, false>(products[i], rows, rows);
        } else {
          dev::multiply_shared<kKey.dtype, true>(products[i], rows, rows);
        }
      }
    }
    dev::commit_products();
    dev::finish_products<0>(products[0]);
    dev::finish_products<0>(products[1]);
  }

  __device__ void store_tiles(const Products& products, int i) const {
    const int row = warp_ % 2;
    float* const tiles = warp_ < 2 ? kk_tiles(i) : qk_tiles(i);
    const auto store = [&](float* to, int tile, const dev::Acc& stored) {
      dev::store_tile(to, tile, dev::round_to<DType::kF32>(stored));
    };
    store(tiles, lower_tile(row, 0), products[0]);
    if (row == 1) store(tiles, lower_tile(1, 1), products[1]);
    if constexpr (kKey.inputs.use_qk_l2norm) {
      if (warp_ == 2) store(qq_tiles(i), 0, products[2]);
      if (warp_ == 3) store(qq_tiles(i), 1, products[3]);
    }
  }

  // Of this lane's token: element (i, i) of the tiles of a matrix, `step` tiles from one on the
  // diagonal to the next.
  static __device__ float diagonal(const float* tiles, int step) {
    const int i = threadIdx.x % 32;
    return tiles[i / 16 * step * kTile + dev::tile_element<DType::kF32>(i % 16, i % 16)];
  }

  // T.  With norms n the inverse of I + L, L_ij = n_i k_i.k_j n_j beta_j, is that of
  // I + k_i.k_j n_j^2 beta_j times n_i / n_j: so no matrix is normalised in front of it.
  __device__ void make_t(int stage) const {
    const int mine = warp_;
    const dev::GatesOfHead gates = gates_at(stage);
    const float* strengths = gates.betas;
    const float *rows = vector(mine, 1), *columns = vector(mine, 2);
    if constexpr (kNorms) {
      const int i = threadIdx.x % 32;
      const float norm = dev::inverse_norm(diagonal(kk_tiles(mine), 2));
      vector(mine, 0)[i] = gates.betas[i] * norm * norm;
      vector(mine, 1)[i] = norm;
      vector(mine, 2)[i] = __fdividef(1.0f, norm);
      // Orders them before their reading.
      __syncwarp();
      strengths = vector(mine, 0);
    }
    Inverse inverse(kk_tiles(mine), strengths, scratch(mine));
    inverse.compute();
    store_gated(
        shared + stage * stage_bytes(kKey) + kWyAt, gates.sums,
        [&](int row, int column) { return inverse.block(row, column); },
        [&](int i, int j) { return kNorms ? rows[i] * columns[j] : 1.0f; });
  }

  // P, and what the WY factors have beside matrices.
  __device__ void make_attention(int left, int stage) const {
    const int mine = warp_ - 2;
    const dev::GatesOfHead gates = gates_at(stage);
    const int i = threadIdx.x % 32;
    const dev::Norms<kNorms> norms{.k = vector(mine, 3), .q = vector(mine, 4)};
    const float* columns = gates.betas;
    if constexpr (kNorms) {
      norms.k[i] = dev::inverse_norm(diagonal(kk_tiles(mine), 2));
      norms.q[i] = dev::inverse_norm(diagonal(qq_tiles(mine), 1));
      vector(mine, 5)[i] = norms.k[i] * gates.betas[i];
      // Orders them before their reading.
      __syncwarp();
      columns = vector(mine, 5);
    }
    const int last = (left < kChunk ? left : kChunk) - 1;
    const dev::TokenFactors factors(gates.sums[i], gates.sums[last]);
    char* const to = reinterpret_cast<char*>(shared) + factors_place(stage);
    factors.template store<kWy>(to, i, norms, gates.betas[i], scale_);
    if (i == last) *reinterpret_cast<float*>(to + kWy.decay - kWy.k_in) = factors.in;
    store_gated(
        shared + stage * stage_bytes(kKey) + kWyAt + kMatrix, gates.sums,
        [&](int row, int column) {
          dev::Acc s = dev::to_float(dev::load_tile<DType::kF32>(
              dev::shared_address(qk_tiles(mine)), lower_tile(row, column)));
          scale(s, scale_);
          return s;
        },
        [&](int i, int j) { return kNorms ? norms.of_q(i) * columns[j] : columns[j]; });
  }

  // Writes a chunk's matrix, of which tile_of(row, column) are the tiles, gated.
  template <class TileOf, class Factor>
  static __device__ void store_gated(unsigned char* matrix, const float* sums, TileOf tile_of,
                                     Factor factor) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int column = 0; column <= row; ++column) {
        dev::Acc x = tile_of(row, column);
        dev::gate_tile(x, row, column, sums, factor);
        dev::store_wy_tile<kKey.dtype>(matrix, column_place(column) / (kTile * kSize) + row,
                                       dev::round_to<kKey.dtype>(x));
      }
    }
  }

  // With one warp.
  static __device__ void clear_values(int left, int stage, unsigned parity) {
    dev::wait_for_phase(values_at(stage), parity);
    clear_values_from<32>(stage_at(stage), left);
  }

  float scale_;
  int warp_;  // of the producers
};

// Each warp its part of the block's units.  Four warpgroups start with 128 registers for each
// thread; those that compute take what the one that copies leaves.
template <int kProducers = producers(kKey)>
__device__ void share_units(const GdnPrefillScanParams& p) {
  if (makes()) return Producers<>(p).run();
  if (computes()) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
    return run_units(p);
  }
  asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
  if (copies() && dev::is_elected()) UnitsCopier<>(p).run();
  if constexpr (kKey.segments) {
    if (plans()) TicketPlanner<>(p).run();
  } else {
    if (plans()) Planner<>(p).run();
  }
  if (keeps_gates()) GateKeeper<>(p).run();
}

// What the block does.
template <int kProducers = producers(kKey)>
__device__ void run_all_units(const GdnPrefillScanParams& p) {
  if constexpr (kKey.segments) {
    if (is_malformed(p)) return fill_slots(p);
  } else if constexpr (kKey.varlen) {
    // The stages are not in use yet.
    if (!dev::rank_sequences<kKey.cu_seqlens_dtype, threads(kKey), kMostRanked>(
            p.cu_seqlens, p.sequences, p.tokens, order_of_sequences(),
            reinterpret_cast<int*>(shared))) {
      return fill_shares(p);
    }
  }
  // Orders the reading of lengths before the stages' first contents.
  __syncthreads();
  if (threadIdx.x == 0) {
    set_up_stages();
    for (int place = 0; place < kUnits; ++place) {
      dev::set_up_barrier(planned_at(place));
      dev::set_up_barrier(done_at(place), kReaders);
    }
    if constexpr (kKey.segments) {
      dev::set_up_barrier(brought_at());
      dev::set_up_barrier(emptied_at());
      dev::store_shared_zeros(zeros_at());
    }
  }
  for (int stage = 0; computes() && stage < kKey.stages; ++stage) clear_above_diagonals(stage);
  dev::show_to_tma();
  // Orders these, and the order of sequences, before all else.
  __syncthreads();
  share_units(p);
}

}  // namespace
