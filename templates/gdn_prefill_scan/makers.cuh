// A warpgroup that makes the records of a unit's chunks beside the warps that compute with them.
// Part of gdn_prefill_scan.cu.
//
// It takes two chunks at a time.  Of each [K; Q] K^T is one product, whose rows lie with the warps;
// then one warp makes T of a chunk, from k k^T, and another one all else.
#pragma once

#include "common/hopper/wgmma.cuh"
#include "common/make_record.cuh"
#include "gdn_prefill_scan/by_wgmma.cuh"

namespace {

// For the makers.  A template, so that keys without them do not compile it.
template <int kMakers = makers(kKey)>
class Makers {
 public:
  __device__ Makers(const GdnPrefillScanParams& p, const Unit& unit)
      : p_(p),
        row_(plan().row),
        token_(plan().token),
        head_(plan().head),
        tokens_(static_cast<int>(unit.sequence.tokens)),
        warp_(dev::uniform(static_cast<int>(threadIdx.x / 32)) - kKey.warps),
        of_all_(dev::gates_of_tokens<kKey>(p.gates, unit.h)) {}

  __device__ void run(const Unit& unit) const {
    const Span& span = unit.span;
    const int mine = warp_ % 2;  // of two chunks
    const bool inverts = warp_ < 2;
    dev::TokenFactors factors{0.0f, 0.0f};
    dev::GivenGates given{};
    if (!inverts) {
      given = load_gates_of(span.first + mine);
      factors = store_gates_of(span.first + mine, given);
      given = load_gates_of(span.first + 2 + mine);
    }
    Turn turn;  // of the first of the two chunks
    for (int chunk = span.first; chunk < span.end; chunk += 2) {
      Turn second = turn;
      // Of an odd chunk the product is there twice.
      if (chunk + 1 < span.end) second.pass();
      Products products[2];
      multiply(products, unit, chunk, turn, second);
#pragma unroll
      for (int i = 0; i < 2; ++i) store_tiles(products[i], i);
      // Orders the tiles, and gates, before their reading.
      sync_makers();
      const int stage = mine == 0 ? turn.stage : second.stage;
      if (chunk + mine < span.end) {
        if (inverts) {
          make_transition(chunk + mine, stage);
        } else {
          make_attention(chunk + mine, stage, factors);
          if (is_tail(unit, chunk + mine)) clear_values(chunk + mine, mine == 0 ? turn : second);
        }
        // The record, and zeros, before the products with them, and the rows' reading before the
        // next copies.
        dev::show_to_engines();
        if (inverts) {
          // Orders what all lanes have done before the coming of one: nobody but products reads it.
          __syncwarp();
          if (dev::is_elected()) dev::come_to(made_at(stage));
        } else {
          dev::come_to(made_at(stage));  // each lane: its factors are read by ld
        }
      }
      if (!inverts) {
        factors = store_gates_of(chunk + 2 + mine, given);
        given = load_gates_of(chunk + 4 + mine);
      }
      turn.pass();
      turn.pass();
    }
  }

 private:
  // Of a product's rows: k's columns, and where norms are needed q's.
  static constexpr int kTiles = kKey.inputs.use_qk_l2norm ? 4 : 2;
  using Products = dev::Acc[kTiles];
  using Inverse = dev::UnitLowerInverse<2, kKey.dtype != DType::kBF16>;
  using Norms = dev::Norms<kKey.inputs.use_qk_l2norm>;
  static constexpr int kTile = 16 * 16;  // elements

  // A barrier of the makers.
  static __device__ void sync_makers() { asm volatile("bar.sync 2, 128;" ::: "memory"); }

  // In shared memory, in fp32, for each of the two chunks: the tiles of k k^T and q k^T,
  // lower_tile() says where; with norms those on the diagonal of q q^T, and those of k^ k^T; what
  // an inverse takes; gates of two chunks; and norms for each warp.
  static constexpr int kTilesOfMatrix = lower_tiles(kChunk);
  static constexpr int kTilesOfChunk =
      kKey.inputs.use_qk_l2norm ? 3 * kTilesOfMatrix + 2 : 2 * kTilesOfMatrix;
  static constexpr int kInverse = kInverseScratchBytes / 4;
  static constexpr int kWork = kTilesOfChunk * kTile + kInverse + 8 * kChunk;
  static_assert(kMakers == 0 || 2 * kWork * 4 == maker_bytes(kKey));

  static __device__ float* tiles_of(int i) {
    return reinterpret_cast<float*>(makers_place()) + i * kWork;
  }
  static __device__ float* kk_tiles(int i) { return tiles_of(i); }
  static __device__ float* qk_tiles(int i) { return tiles_of(i) + kTilesOfMatrix * kTile; }
  static __device__ float* qq_tiles(int i) { return qk_tiles(i) + kTilesOfMatrix * kTile; }
  static __device__ float* normalised_tiles(int i) {
    return kKey.inputs.use_qk_l2norm ? qq_tiles(i) + 2 * kTile : kk_tiles(i);
  }
  static __device__ float* scratch(int i) { return tiles_of(i) + kTilesOfChunk * kTile; }
  static __device__ dev::GatesOfHead gates_of(int i, int chunk) {
    float* const sums = scratch(i) + kInverse + chunk / 2 % 2 * 2 * kChunk;
    return {.sums = sums, .betas = sums + kChunk};
  }
  __device__ Norms norms() const {
    float* const k = scratch(warp_ % 2) + kInverse + (4 + warp_ / 2 * 2) * kChunk;
    return {.k = k, .q = k + kChunk};
  }

  // Of this lane's token of a chunk; for one warp.
  __device__ dev::GivenGates load_gates_of(int chunk) const {
    const int token = chunk * kChunk + static_cast<int>(threadIdx.x % 32);
    if (token >= tokens_) return {};
    return dev::load_gates<kKey>(p_.gates, TokenStrides::At{row_, token_ + token, head_});
  }
  // Returns the factors of this lane's token.
  __device__ dev::TokenFactors store_gates_of(int chunk, const dev::GivenGates& given) const {
    const dev::GivenGates of_lane[1] = {given};
    const int left = tokens_ - chunk * kChunk;
    const float sum =
        dev::store_gates<kKey, kChunk>(gates_of(warp_ % 2, chunk), of_all_, of_lane, left);
    return {sum, __shfl_sync(0xffffffffu, sum, left < kChunk ? left - 1 : kChunk - 1)};
  }

  // Waits for two chunks, and multiplies.  Products that ran while records are made would be
  // slower: the warps' other products wait for them.
  __device__ void multiply(Products (&products)[2], const Unit& unit, int chunk, const Turn& first,
                           const Turn& second) const {
    dev::wait_for_phase(filled_at(first.stage), first.parity);
    dev::wait_for_phase(filled_at(second.stage), second.parity);
    const int tail = is_tail(unit, chunk) ? chunk : chunk + 1;
    if (tail < unit.span.end && is_tail(unit, tail)) {
      clear_keys_from<kMakers * 32>(stage_at(tail == chunk ? first.stage : second.stage),
                                    tokens_ - tail * kChunk);
      dev::show_to_engines();
    }
    // Orders zeros before the product, and what was read for the last two chunks before what is
    // written for these.
    sync_makers();
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

  // Element (i, i) of the tiles of a matrix; kStep: tiles from one on the diagonal to the next.
  static __device__ float diagonal(const float* tiles, int step) {
    const int i = threadIdx.x % 32;
    return tiles[i / 16 * step * kTile + dev::tile_element<DType::kF32>(i % 16, i % 16)];
  }
  // Writes the norms that this warp needs.
  __device__ void store_norms() const {
    if constexpr (kKey.inputs.use_qk_l2norm) {
      const int i = warp_ % 2;
      norms().k[threadIdx.x % 32] = dev::inverse_norm(diagonal(kk_tiles(i), 2));
      if (warp_ >= 2) norms().q[threadIdx.x % 32] = dev::inverse_norm(diagonal(qq_tiles(i), 1));
      // Orders them before their reading.
      __syncwarp();
    }
  }

  __device__ void make_transition(int chunk, int stage) const {
    const int mine = warp_;
    const dev::GatesOfHead gates = gates_of(mine, chunk);
    store_norms();
    if constexpr (kKey.inputs.use_qk_l2norm) {
      // Elsewhere: the other warp reads the squares of k.
      for_each_tile([&](int row, int column) {
        dev::Acc x = load(kk_tiles(mine), lower_tile(row, column));
        dev::for_each_element([&](int r, int c, int j) {
          x.x[r][c][j] *= norms().of_k(16 * row + dev::tile_row() + 8 * r) *
                          norms().of_k(16 * column + dev::tile_column() + 8 * c + j);
        });
        dev::store_tile(normalised_tiles(mine), lower_tile(row, column),
                        dev::round_to<DType::kF32>(x));
      });
      // Orders the tiles before their reading.
      __syncwarp();
    }
    Inverse inverse(normalised_tiles(mine), gates.betas, scratch(mine));
    inverse.compute();
    unsigned char* const record = shared + stage * stage_bytes(kKey) + kRecordAt;
    for_each_tile([&](int row, int column) {
      dev::Acc t = inverse.block(row, column);
      dev::for_each_gated(row, column, gates,
                          [&](int r, int c, int j, float decay, float beta, bool is_above) {
                            float& x = t.x[r][c][j];
                            x *= decay * beta;
                            if (is_above) x = 0.0f;
                          });
      store(record, t, row, column);
    });
  }

  __device__ void make_attention(int chunk, int stage, const dev::TokenFactors& factors) const {
    const int mine = warp_ - 2;
    const dev::GatesOfHead gates = gates_of(mine, chunk);
    store_norms();
    unsigned char* const record = shared + stage * stage_bytes(kKey) + kRecordAt + kMatrix;
    for_each_tile([&](int row, int column) {
      dev::Acc s = load(qk_tiles(mine), lower_tile(row, column));
      dev::for_each_gated(
          row, column, gates, [&](int r, int c, int j, float decay, float, bool is_above) {
            float& x = s.x[r][c][j];
            x *= decay * (p_.scale * norms().of_q(16 * row + dev::tile_row() + 8 * r)) *
                 norms().of_k(16 * column + dev::tile_column() + 8 * c + j);
            if (is_above) x = 0.0f;
          });
      store(record, s, row, column);
    });
    char* const to = reinterpret_cast<char*>(shared) + kKey.stages * stage_bytes(kKey) +
                     stage * stage_factor_bytes(kKey);
    const unsigned lane = threadIdx.x % 32;
    factors.template store<kRecord>(to, lane, norms(), p_.scale);
    const int left = tokens_ - chunk * kChunk;
    if (lane == (left < kChunk ? left : kChunk) - 1u) {
      *reinterpret_cast<float*>(to + kRecord.decay - kRecord.k_in) = factors.in;
    }
  }

  // With one warp.
  __device__ void clear_values(int chunk, const Turn& turn) const {
    dev::wait_for_phase(values_at(turn.stage), turn.parity);
    clear_values_from<32>(stage_at(turn.stage), tokens_ - chunk * kChunk);
  }

  template <class Function>
  static __device__ void for_each_tile(Function f) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int column = 0; column <= row; ++column) f(row, column);
    }
  }
  static __device__ dev::Acc load(const float* tiles, int tile) {
    return dev::to_float(dev::load_tile<DType::kF32>(dev::shared_address(tiles), tile));
  }
  static __device__ void store(unsigned char* matrix, const dev::Acc& tile, int row, int column) {
    dev::store_record_tile<kKey.dtype>(matrix, column_place(column) / (kTile * kSize) + row,
                                       dev::round_to<kKey.dtype>(tile));
  }

  const GdnPrefillScanParams& p_;
  int row_;    // of the batch
  int token_;  // the sequence's first
  int head_;
  int tokens_;  // of the sequence
  int warp_;    // of the makers
  dev::GatesOfTokens of_all_;
};

// What warps do beside those that compute.  Four warpgroups start with 128 registers for each
// thread; those that compute take what the one that copies leaves.
template <bool kMakes = (makers(kKey) > 0)>
__device__ void run_beside(const GdnPrefillScanParams& p, const Unit& unit) {
  if (makes()) return Makers<>(p, unit).run(unit);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  if (copies() && dev::is_elected()) EngineCopier(unit).run(p, unit);
}
__device__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 168;"); }

}  // namespace
