// What gdn_prefill_chunks leaves in the workspace for gdn_prefill_scan, the WY factors for each
// chunk and head.  Compiled by the host and by NVRTC.
//
// With G_i the sum of the chunk's g up to token i, rk_i and rq_i the inverse norms of k_i and q_i
// (1 without use_qk_l2norm), and L = strictlower(k^_i.k^_j beta_j):
//
//   inverse     T_ij = (I + L)^-1_ij e^(G_i - G_j)               j <= i
//   attention   P_ij = scale (q^_i . k^_j) e^(G_i - G_j) beta_j   j <= i
//   k_in[i]     rk_i e^G_i            what S^T k_i is multiplied by
//   q_in[i]     scale rq_i e^G_i      what S^T q_i is multiplied by
//   v_out[i]    rk_i e^(G_C - G_i) beta_i
//                                     what the new value of token i, T's, is multiplied by on its
//                                     way into the state
//   decay       e^G_C                 what the state is multiplied by
//   bound       sum_i log2(e^g_i max(1, |1 - beta_i |k^_i|^2|))
//                                     what the chunk makes of a state in front of it, its values
//                                     aside, is at most 2^bound times as large: the norm of
//                                     e^g (I - beta k^ k^T) is the larger of e^g and
//                                     e^g |1 - beta |k^|^2|
//
// With a decay for each channel of k, G_i is a row over channels and its exponentials stand inside
// the sums over them, so that no factor of a token can have them.  With
// L = strictlower(A_ij beta_j), products of rows element by element, and . their sum over channels:
//
//   A_ij = k^_i e^(G_i - G_j) . k^_j
//   inverse     T = (I + L)^-1
//   attention   P_ij = scale (q^_i e^(G_i - G_j) . k^_j) beta_j   j <= i
//   keys        k^_i e^G_i            what S^T is multiplied by for what it recalls,
//   queries     scale q^_i e^G_i      and for outputs
//   updates     beta_i k^_i e^(G_C - G_i)
//                                     what T's new value of token i is multiplied by on its way
//                                     into the state
//   decay       e^G_C                 a row
#pragma once

#include "common/key_rules.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_types.h"

namespace cubinery {

// The 16x16 tiles of a lower triangular matrix; kernels keep them row by row.
constexpr int lower_tiles(int chunk_size) { return chunk_size / 16 * (chunk_size / 16 + 1) / 2; }
// Position of tile (row, column), column <= row.
constexpr int lower_tile(int row, int column) { return row * (row + 1) / 2 + column; }
// The same in the WY factors, where T and P lie column by column, the last column first, as
// wy_tiles.cuh says.
constexpr int wy_tile(int row, int column, int chunk_size) {
  const int behind = chunk_size / 16 - 1 - column;  // columns
  return behind * (behind + 1) / 2 + row - column;
}

struct ChunkWy {
  // Byte offsets, all multiples of 16.
  int attention;
  int k_in;
  int q_in;
  int v_out;
  int decay;
  int bound;
  int bytes;
};

// T's tiles come first.
constexpr ChunkWy chunk_wy(int chunk_size, DType dtype) {
  const int matrix = lower_tiles(chunk_size) * 16 * 16 * size_of(dtype);
  const int vector = chunk_size * 4;
  ChunkWy wy{};
  wy.attention = matrix;
  wy.k_in = 2 * matrix;
  wy.q_in = wy.k_in + vector;
  wy.v_out = wy.q_in + vector;
  wy.decay = wy.v_out + vector;
  wy.bound = wy.decay + 4;
  wy.bytes = wy.decay + 16;
  return wy;
}

// All that gdn_prefill_chunks leaves of a chunk and head with `only_decays`.
struct ChunkDecay {
  float decay;
  float bound;  // of chunks that may forget what is in front of them (segments.h)
};

// With a decay for each channel: matrices of a row for each token, as products read them from
// shared memory (wy_rows.cuh), where they are copied as they lie.  Queries are rows behind keys in
// one of them.
struct ChannelWy {
  // Byte offsets, all multiples of 16.
  int attention;
  int keys;
  int updates;
  int decay;
  int bytes;
};

// Bytes of such a row in one of the blocks that wgmma reads (common/hopper/wgmma.cuh); 0 where it
// reads none, and rows are padded.
constexpr int swizzled_key_bytes(int key_dim, DType dtype) {
  if (size_of(dtype) != 2 || key_dim % 32 != 0 || key_dim > 128) return 0;
  return key_dim % 64 == 0 ? 128 : 64;
}
constexpr int channel_row_bytes(int key_dim, DType dtype) {
  const int elements =
      swizzled_key_bytes(key_dim, dtype) > 0 ? key_dim : padded_row(key_dim, dtype);
  return elements * size_of(dtype);
}

// T's tiles come first.
constexpr ChannelWy channel_wy(int chunk_size, int key_dim, DType dtype) {
  const int matrix = lower_tiles(chunk_size) * 16 * 16 * size_of(dtype);
  const int rows = chunk_size * channel_row_bytes(key_dim, dtype);
  ChannelWy wy{};
  wy.attention = matrix;
  wy.keys = 2 * matrix;
  wy.updates = wy.keys + 2 * rows;
  wy.decay = wy.updates + rows;
  wy.bytes = wy.decay + key_dim * 4;
  return wy;
}

// Of one chunk and head.
constexpr int wy_bytes(gdn::Decay decay, int chunk_size, int key_dim, DType dtype) {
  return decay == gdn::Decay::kChannel ? channel_wy(chunk_size, key_dim, dtype).bytes
                                       : chunk_wy(chunk_size, dtype).bytes;
}

// What the inverse of a chunk takes of shared memory for each warp (inverse.cuh).
inline constexpr int kInverseScratchBytes = 32 * 12 * 4;

// WY factors of one head lie by slot.  Sequence n's first slot is its first token's chunk plus n,
// so that no sequence needs to know the lengths of those before it; a launch has this many slots.
constexpr long long chunk_slots(long long tokens, long long sequences, int chunk_size) {
  return tokens / chunk_size + sequences;
}

}  // namespace cubinery
