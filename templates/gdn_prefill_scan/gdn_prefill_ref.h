// References of a prefill: one head of one sequence.  Host only.
//
//   gdn_prefill_ref          token by token: what the kernels are checked against, in double
//   gdn_prefill_chunked_ref  the chunked algebra of gdn_prefill_chunks and gdn_prefill_scan, with
//                            the operands of its matrix products rounded by the caller.  Without
//                            rounding and in double it equals the first and locates faults; in
//                            float, rounding to dtype, it is the yardstick of what naive
//                            arithmetic loses.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "gdn_decode/gdn_decode_ref.h"
#include "gdn_prefill_scan/channel_chunks_ref.h"
#include "gdn_prefill_scan/prefill_head_ref.h"

namespace cubinery::gdn {

// Advances `state` [key_dim][value_dim] by tokens first ... last - 1 and writes their rows of `o`,
// which is that of the whole sequence: [T][value_dim].
template <class Real>
void gdn_prefill_ref(const PrefillRefHead<Real>& head, int first, int last, Real* state, Real* o) {
  DecodeRefHead<Real> token;
  for (int t = first; t < last; ++t) {
    set_token_ref(head, t, &token);
    gdn_decode_ref(token, state, o + std::ptrdiff_t{t} * head.value_dim);
  }
}

// All tokens.
template <class Real>
void gdn_prefill_ref(const PrefillRefHead<Real>& head, Real* state, Real* o) {
  gdn_prefill_ref(head, 0, head.tokens(), state, o);
}

// The chunked algebra of one decay for a head; channel_chunks_ref.h has that of others.
//
// The WY factors of a chunk (common/chunk/wy.h states the formulas), its matrices row by row.
template <class Real>
struct ChunkRef {
  explicit ChunkRef(std::size_t count)
      : tokens(static_cast<int>(count)),
        gated_inverse(count * count),
        attention(count * count),
        k_in(count),
        q_in(count),
        v_out(count) {}

  int tokens;
  std::vector<Real> gated_inverse;  // [tokens][tokens], rounded; 0 above the diagonal
  std::vector<Real> attention;      // likewise
  std::vector<Real> k_in;
  std::vector<Real> q_in;
  std::vector<Real> v_out;
  Real decay = 1;
};

// What a token adds to the WY factors of its chunk.
template <class Real>
struct ChunkTokenRef {
  std::vector<Real> q{}, k{};  // as operands of a product
  Real q_factor = 1;           // scale / norm of q
  Real k_factor = 1;           // 1 / norm of k
  Real beta = 1;
  Real gate_sum = 0;  // of the chunk's g up to this token
};

template <class Real, class Round>
std::vector<ChunkTokenRef<Real>> chunk_tokens_ref(const PrefillRefHead<Real>& head, int first,
                                                  int last, Round round) {
  // e^-128 is 0 in fp32.  Without a bound, differences of sums would be inf - inf.
  const Real least = -128;
  std::vector<ChunkTokenRef<Real>> tokens;
  DecodeRefHead<Real> token;
  Real gate_sum = 0;
  for (int t = first; t < last; ++t) {
    set_token_ref(head, t, &token);
    const Real g = log_decay_ref(token);
    gate_sum += g < least ? least : g;  // keeps a NaN
    tokens.push_back({.q = rounded_ref(token.q, round),
                      .k = rounded_ref(token.k, round),
                      .q_factor = head.scale / norm_ref(token.q, head.inputs),
                      .k_factor = 1 / norm_ref(token.k, head.inputs),
                      .beta = beta_ref(token),
                      .gate_sum = gate_sum});
  }
  return tokens;
}

// Row i of (I + L)^-1 from the rows above it.
template <class Real>
void invert_row_ref(const std::vector<ChunkTokenRef<Real>>& tokens, std::size_t i, Real* inverse) {
  const std::size_t size = tokens.size();
  const ChunkTokenRef<Real>& row = tokens[i];
  inverse[i * size + i] = 1;
  for (std::size_t m = 0; m < i; ++m) {
    const ChunkTokenRef<Real>& column = tokens[m];
    const Real lower = row.k_factor * column.k_factor * column.beta * dot_ref(row.k, column.k);
    add_scaled_ref(inverse + i * size, -lower, inverse + m * size, static_cast<int>(m) + 1);
  }
}

// What gdn_prefill_chunks makes of tokens first ... last - 1, at least one.
template <class Real, class Round>
ChunkRef<Real> chunk_ref(const PrefillRefHead<Real>& head, int first, int last, Round round) {
  const std::vector<ChunkTokenRef<Real>> tokens = chunk_tokens_ref(head, first, last, round);
  const std::size_t size = tokens.size();
  const Real total = tokens.back().gate_sum;
  ChunkRef<Real> chunk(size);
  std::vector<Real> inverse(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    const ChunkTokenRef<Real>& row = tokens[i];
    invert_row_ref(tokens, i, inverse.data());
    for (std::size_t j = 0; j <= i; ++j) {
      const ChunkTokenRef<Real>& column = tokens[j];
      const Real gate = std::exp(row.gate_sum - column.gate_sum);
      const Real qk = row.q_factor * column.k_factor * dot_ref(row.q, column.k);
      chunk.gated_inverse[i * size + j] = round(inverse[i * size + j] * gate);
      chunk.attention[i * size + j] = round(qk * gate * column.beta);
    }
    chunk.k_in[i] = row.k_factor * std::exp(row.gate_sum);
    chunk.q_in[i] = row.q_factor * std::exp(row.gate_sum);
    chunk.v_out[i] = row.k_factor * std::exp(total - row.gate_sum) * row.beta;
  }
  chunk.decay = std::exp(total);
  return chunk;
}

// What gdn_prefill_scan makes of a chunk whose first token is `first`.
template <class Real, class Round>
void scan_chunk_ref(const PrefillRefHead<Real>& head, int first, const ChunkRef<Real>& chunk,
                    Round round, Real* state, Real* o) {
  const int width = head.value_dim;
  Real* const out = o + std::ptrdiff_t{first} * width;
  const std::vector<Real> operand =
      rounded_ref(std::vector<Real>(state, state + head.key_dim * width), round);
  std::vector<Real> corrected(chunk.k_in.size() * static_cast<std::size_t>(width));
  std::vector<Real> new_values(corrected.size());
  for (int i = 0; i < chunk.tokens; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Real* const row = corrected.data() + i * width;
    recall_ref(operand, head.k_row(first + i), head.key_dim, width, round, row);
    recall_ref(operand, head.q_row(first + i), head.key_dim, width, round, out + i * width);
    for (int j = 0; j < width; ++j) {
      row[j] = round(head.v_row(first + i)[j] - chunk.k_in[at] * row[j]);
      out[i * width + j] *= chunk.q_in[at];
    }
  }
  add_lower_product_ref(chunk.gated_inverse, chunk.tokens, corrected, width, new_values.data());
  add_lower_product_ref(chunk.attention, chunk.tokens, rounded_ref(new_values, round), width, out);

  for (int e = 0; e < head.key_dim * width; ++e) state[e] *= chunk.decay;
  for (int i = 0; i < chunk.tokens; ++i) {
    Real* const row = new_values.data() + i * width;
    for (int j = 0; j < width; ++j)
      row[j] = round(chunk.v_out[static_cast<std::size_t>(i)] * row[j]);
    for (int d = 0; d < head.key_dim; ++d) {
      add_scaled_ref(state + d * width, round(head.k_row(first + i)[d]), row, width);
    }
  }
}

// As gdn_prefill_ref, in chunks of `chunk_size` tokens counted from `first`.  `round` takes and
// returns a Real; it is applied to q and k too, which changes nothing where they are of dtype
// already.  A short last chunk gives what one padded with zeros does.
template <class Real, class Round>
void gdn_prefill_chunked_ref(const PrefillRefHead<Real>& head, int chunk_size, int first, int last,
                             Round round, Real* state, Real* o) {
  for (int begin = first; begin < last; begin += chunk_size) {
    const int end = std::min(begin + chunk_size, last);
    if (head.inputs.decay == Decay::kChannel) {
      scan_channel_chunk_ref(head, begin, channel_chunk_ref(head, begin, end, round), round, state,
                             o);
      continue;
    }
    scan_chunk_ref(head, begin, chunk_ref(head, begin, end, round), round, state, o);
  }
}

// All tokens.
template <class Real, class Round>
void gdn_prefill_chunked_ref(const PrefillRefHead<Real>& head, int chunk_size, Round round,
                             Real* state, Real* o) {
  gdn_prefill_chunked_ref(head, chunk_size, 0, head.tokens(), round, state, o);
}

}  // namespace cubinery::gdn
