#include "runtime/gdn/shared/extent.h"

#include <fmt/format.h>

#include <algorithm>

namespace cubinery::gdn {

TokenForm LaunchExtent::form(bool heads_first) const {
  const unsigned first = varlen ? 0 : 1;  // of tokens and heads
  TokenForm form{.rank = first + 2,
                 .token = first + (heads_first ? 1 : 0),
                 .head = first + (heads_first ? 0 : 1),
                 .extra = varlen ? ExtraDim::kFirst : ExtraDim::kNone};
  if (!varlen) form.dims[form.batch = 0] = sequences_dim();
  form.dims[form.token] = tokens_dim();
  return form;
}

Status find_tokens(const TensorName& name, const Tensor& x, int rank, bool heads_first,
                   LaunchExtent* extent) {
  const bool packed = extent->varlen && x.rank == rank - 1;
  if (x.rank != rank && !packed) {
    return wrong_rank(name, x.rank,
                      extent->varlen ? fmt::format("{}, or {} with B = 1", rank - 1, rank)
                                     : fmt::format("{}", rank));
  }
  extent->sequences = x.shape[0];
  extent->tokens = x.shape[(packed ? 0u : 1u) + (heads_first ? 1u : 0u)];
  return {};
}

Status find_bounds(const TensorName& name, const Tensor& cu_seqlens, DType dtype,
                   std::int64_t most_sequences, std::int64_t* sequences) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, cu_seqlens, dtype));
  if (cu_seqlens.rank != 1) return wrong_rank(name, cu_seqlens.rank, "1");
  *sequences = std::max<std::int64_t>(cu_seqlens.shape[0], 0) - 1;
  return check_count(name, "N", *sequences, most_sequences);
}

}  // namespace cubinery::gdn
