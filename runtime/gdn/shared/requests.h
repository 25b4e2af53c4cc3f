// What operators share whose launches are made of requests, of one token or of several: arguments,
// grids, default keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/tokens/key.h"
#include "cubinery/kernel.h"
#include "runtime/gdn/shared/bind_rows.h"

namespace cubinery::gdn {

// ---- Arguments of requests of several tokens ----------------------------------------------------

inline Dim requests_dim(bool varlen, std::int64_t requests) {
  return {varlen ? "N" : "B", requests};
}

// `tokens`: dense: of each request; packed: of all.
inline Dim tokens_dim(bool varlen, std::int64_t tokens) { return {varlen ? "total" : "T", tokens}; }
inline TokenForm token_form(bool varlen, std::int64_t requests, std::int64_t tokens) {
  if (varlen) {
    return {.dims = {tokens_dim(varlen, tokens)},
            .rank = 2,
            .token = 0,
            .head = 1,
            .extra = ExtraDim::kFirst};
  }
  return {.dims = {requests_dim(varlen, requests), tokens_dim(varlen, tokens)},
          .rank = 3,
          .batch = 0,
          .token = 1,
          .head = 2};
}

// The bounds of packed requests, as far as they can be checked before N is known; N.
inline Status check_bounds(std::string_view op, const Tensor& cu_seqlens, DType dtype) {
  const TensorName name{op, tensors::kCuSeqlens.info.name};
  CUBINERY_RETURN_IF_ERROR(check_data(name, cu_seqlens, dtype));
  if (cu_seqlens.rank != 1) return wrong_rank(name, cu_seqlens.rank, "1");
  return check_count(name, "N", std::max<std::int64_t>(cu_seqlens.shape[0], 0) - 1, kMaxInt);
}
inline std::int64_t requests_of(const Tensor& cu_seqlens) { return cu_seqlens.shape[0] - 1; }

template <class Problem>
Status bind_bounds(std::string_view op, const Problem& problem, const Tensor& cu_seqlens,
                   std::int64_t requests, StridedVector* bounds) {
  return bind_vector(op, tensors::kCuSeqlens, problem, cu_seqlens, {"N + 1", requests + 1}, bounds);
}

// ---- Grids: (blocks of a request, requests) -----------------------------------------------------

// Requests are the second dimension, which CUDA limits, and the third where they are more.
// Requires: at least one.
inline Launch request_grid(unsigned blocks, std::int64_t requests, bool enable_pdl) {
  constexpr unsigned kMostRows = 65535;
  const auto count = static_cast<unsigned>(requests);
  const unsigned rows = std::min(count, kMostRows);
  return {
      .grid_x = blocks, .grid_y = rows, .grid_z = (count - 1) / rows + 1, .enable_pdl = enable_pdl};
}

// Blocks of a request whose warps have warp_v value columns each.
template <class Key>
unsigned blocks_of_request(const Key& key, int heads) {
  const int warps = heads * (key.value_dim / key.warp_v);
  return static_cast<unsigned>((warps + key.warps - 1) / key.warps);
}

// ---- Keys of the paths that take all tokens of a request at once --------------------------------

// The default configurations, from a key's fixed fields: blocks of four warps with as few columns
// each as a product has, and, where what every warp does once takes long beside the passing of its
// states, blocks of two warps with half a head each.
template <class Key>
std::vector<std::tuple<Key>> default_wy_keys(Key key) {
  Key wide = key;
  wide.warp_v = 64;
  wide.held_v = key.draft_tokens > 8 ? 32 : 16;
  wide.warps = 2;
  key.warps = 4;
  while (!valid(key)) key.warps /= 2;  // a long key_dim
  const bool is_long = key.draft_tokens > 8 || (key.draft_tokens == 8 && !key.states.store);
  if (is_long && valid(wide)) return {wide, key};
  return {key};
}

}  // namespace cubinery::gdn
