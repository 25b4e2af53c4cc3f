// The chunked algebra of a prefill with a decay for each channel of k, as gdn_prefill_ref.h has
// that of one for a head: with the operands of its matrix products rounded by the caller.  Host
// only.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "gdn_decode/gdn_decode_ref.h"
#include "gdn_prefill_scan/prefill_head_ref.h"

namespace cubinery::gdn {

// A token of a chunk.
template <class Real>
struct ChannelTokenRef {
  std::vector<Real> q{}, k{};  // not divided by their norms
  Real q_factor = 1;           // scale / norm of q
  Real k_factor = 1;           // 1 / norm of k
  Real beta = 1;
  std::vector<Real> sums{};  // of the chunk's g up to this token, of each channel
};

// The WY factors of a chunk (common/chunk/wy.h states the formulas), its matrices row by row.
template <class Real>
struct ChannelChunkRef {
  int tokens = 0;
  std::vector<Real> inverse{};    // [tokens][tokens], rounded; 0 above the diagonal
  std::vector<Real> attention{};  // likewise
  std::vector<Real> keys{}, queries{}, updates{};  // [tokens][key_dim], rounded
  std::vector<Real> decays{};                      // [key_dim]
};

template <class Real>
std::vector<ChannelTokenRef<Real>> channel_tokens_ref(const PrefillRefHead<Real>& head, int first,
                                                      int last) {
  const Real least = -128;  // as in chunk_tokens_ref()
  std::vector<ChannelTokenRef<Real>> tokens;
  DecodeRefHead<Real> token;
  std::vector<Real> sums(static_cast<std::size_t>(head.key_dim));
  for (int t = first; t < last; ++t) {
    set_token_ref(head, t, &token);
    for (std::size_t d = 0; d < sums.size(); ++d) {
      const Real g = log_decay_ref(token, d);
      sums[d] += g < least ? least : g;  // keeps a NaN
    }
    tokens.push_back({.q = token.q,
                      .k = token.k,
                      .q_factor = head.scale / norm_ref(token.q, head.inputs),
                      .k_factor = 1 / norm_ref(token.k, head.inputs),
                      .beta = beta_ref(token),
                      .sums = sums});
  }
  return tokens;
}

// The first row of the upper half of what has rows i and j < i in different halves.
constexpr std::size_t anchor_ref(std::size_t i, std::size_t j) {
  std::size_t half = 1;
  while (i / (2 * half) != j / (2 * half)) half *= 2;
  return i / half * half;
}

// x e^(G_i - G_j) . k_j, of rows i >= j and a row x of i, each factor rounded.
template <class Real, class Round>
Real decayed_product_ref(const std::vector<ChannelTokenRef<Real>>& tokens,
                         const std::vector<Real>& x, std::size_t i, std::size_t j, Round round) {
  const std::vector<Real>& k = tokens[j].k;
  Real sum = 0;
  if (i == j) {
    for (std::size_t d = 0; d < k.size(); ++d) sum += x[d] * k[d];
    return sum;
  }
  const std::vector<Real>& anchor = tokens[anchor_ref(i, j)].sums;
  for (std::size_t d = 0; d < k.size(); ++d) {
    sum += round(x[d] * std::exp(tokens[i].sums[d] - anchor[d])) *
           round(k[d] * std::exp(anchor[d] - tokens[j].sums[d]));
  }
  return sum;
}

// What gdn_prefill_chunks makes of tokens first ... last - 1, at least one.
template <class Real, class Round>
ChannelChunkRef<Real> channel_chunk_ref(const PrefillRefHead<Real>& head, int first, int last,
                                        Round round) {
  const std::vector<ChannelTokenRef<Real>> tokens = channel_tokens_ref(head, first, last);
  const std::size_t size = tokens.size();
  const std::vector<Real>& total = tokens.back().sums;
  ChannelChunkRef<Real> chunk{.tokens = last - first,
                              .inverse = std::vector<Real>(size * size),
                              .attention = std::vector<Real>(size * size)};
  std::vector<Real> inverse(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    const ChannelTokenRef<Real>& row = tokens[i];
    inverse[i * size + i] = 1;
    for (std::size_t j = 0; j <= i; ++j) {
      const ChannelTokenRef<Real>& column = tokens[j];
      const Real factor = column.k_factor * column.beta;
      chunk.attention[i * size + j] =
          round(row.q_factor * factor * decayed_product_ref(tokens, row.q, i, j, round));
      if (i == j) continue;
      const Real lower = row.k_factor * factor * decayed_product_ref(tokens, row.k, i, j, round);
      add_scaled_ref(inverse.data() + i * size, -lower, inverse.data() + j * size,
                     static_cast<int>(j) + 1);
    }
    for (std::size_t d = 0; d < total.size(); ++d) {
      const Real k = row.k_factor * row.k[d];
      chunk.keys.push_back(round(k * std::exp(row.sums[d])));
      chunk.queries.push_back(round(row.q_factor * row.q[d] * std::exp(row.sums[d])));
      chunk.updates.push_back(round(row.beta * k * std::exp(total[d] - row.sums[d])));
    }
  }
  chunk.inverse = rounded_ref(inverse, round);
  for (const Real sum : total) chunk.decays.push_back(std::exp(sum));
  return chunk;
}

// What gdn_prefill_scan makes of a chunk whose first token is `first`.
template <class Real, class Round>
void scan_channel_chunk_ref(const PrefillRefHead<Real>& head, int first,
                            const ChannelChunkRef<Real>& chunk, Round round, Real* state, Real* o) {
  const int width = head.value_dim, dim = head.key_dim;
  Real* const out = o + std::ptrdiff_t{first} * width;
  const std::vector<Real> operand =
      rounded_ref(std::vector<Real>(state, state + dim * width), round);
  std::vector<Real> corrected(static_cast<std::size_t>(chunk.tokens) *
                              static_cast<std::size_t>(width));
  std::vector<Real> new_values(corrected.size());
  for (int i = 0; i < chunk.tokens; ++i) {
    Real* const row = corrected.data() + i * width;
    recall_ref(operand, chunk.keys.data() + i * dim, dim, width, round, row);
    recall_ref(operand, chunk.queries.data() + i * dim, dim, width, round, out + i * width);
    for (int j = 0; j < width; ++j) row[j] = round(head.v_row(first + i)[j] - row[j]);
  }
  add_lower_product_ref(chunk.inverse, chunk.tokens, corrected, width, new_values.data());
  new_values = rounded_ref(new_values, round);
  add_lower_product_ref(chunk.attention, chunk.tokens, new_values, width, out);
  for (int d = 0; d < dim; ++d) {
    for (int j = 0; j < width; ++j) state[d * width + j] *= chunk.decays.data()[d];
    for (int i = 0; i < chunk.tokens; ++i) {
      add_scaled_ref(state + d * width, chunk.updates.data()[i * dim + d],
                     new_values.data() + i * width, width);
    }
  }
}

}  // namespace cubinery::gdn
