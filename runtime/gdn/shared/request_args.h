// What the arguments of operators have in common whose requests have several tokens: verify,
// commit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "runtime/gdn/shared/bind_rows.h"

namespace cubinery::gdn {

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

}  // namespace cubinery::gdn
