// How many sequences and tokens a launch has, by the shapes of its tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_types.h"
#include "runtime/gdn/shared/args_binding.h"

namespace cubinery::gdn {

// The dimensions of an operator's tensors of tokens and heads, and which of them is what.
struct TokenForm {
  static constexpr unsigned kNone = 4;  // no such dimension

  std::array<Dim, 3> dims{};
  unsigned rank = 0;       // of dims
  unsigned batch = kNone;  // packed tensors have none
  unsigned token = kNone;  // one step of decoding has none
  unsigned head = kNone;   // each tensor has an extent of its own here, or no such dimension
  ExtraDim extra = ExtraDim::kNone;
};

// Of tensors that count tokens only, or channels behind them.  Requires: heads come last.
inline TokenForm without_heads(TokenForm form) {
  form.head = TokenForm::kNone;
  --form.rank;
  return form;
}

struct LaunchExtent {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // dense: of each sequence; packed: of all
  bool varlen = false;

  std::int64_t all_tokens() const { return varlen ? tokens : sequences * tokens; }
  Dim sequences_dim() const { return varlen ? Dim{"N", sequences} : Dim{"B", sequences}; }
  Dim tokens_dim() const { return varlen ? Dim{"total", tokens} : Dim{"T", tokens}; }
  TokenForm form(bool heads_first) const;
};

// Whether heads come before the tokens.
template <class Problem>
constexpr bool has_heads_first(const Problem& problem) {
  if constexpr (requires { problem.token_layout; }) {
    return problem.token_layout == TokenLayout::kBHTD;
  } else {
    return false;
  }
}

// Parts of find_extent(): tokens, and the sequences of dense ones, from a tensor that has `rank`
// dimensions where it is dense; N from cu_seqlens.
Status find_tokens(const TensorName& name, const Tensor& x, int rank, bool heads_first,
                   LaunchExtent* extent);
Status find_bounds(const TensorName& name, const Tensor& cu_seqlens, DType dtype,
                   std::int64_t most_sequences, std::int64_t* sequences);

// By the first tensor of tokens and cu_seqlens, before anything else is checked.  Arguments without
// bounds have room for as many sequences as there are states, in a pool for any number.
// most_tokens(sequences) are accepted.
template <class Args, class MostTokens>
Status find_extent(const typename Tensors<Args>::Problem& problem, const Args& args,
                   std::int64_t most_sequences, const MostTokens& most_tokens,
                   LaunchExtent* extent) {
  constexpr std::string_view kOp = Fields<typename Tensors<Args>::Problem>::kName;
  constexpr const auto& kFirst = placed<Args, first_of_tokens<Args>()>();
  constexpr const TensorInfo& kInfo = kFirst.info;
  static_assert(std::tuple_size_v<decltype(kFirst.absences)> == 0, "every problem has it");
  constexpr TensorName kTokens{kOp, kInfo.name};
  const Tensor& x = kFirst.in(args);
  extent->varlen = problem.varlen;
  CUBINERY_RETURN_IF_ERROR(check_data(kTokens, x, kFirst.type(problem)));
  CUBINERY_RETURN_IF_ERROR(find_tokens(kTokens, x, kInfo.rank(), has_heads_first(problem), extent));
  if (!problem.varlen) {
    CUBINERY_RETURN_IF_ERROR(check_count(kTokens, "B", extent->sequences, most_sequences));
  } else if constexpr (has_row<Args>(TensorId::kCuSeqlens)) {
    const TensorName bounds{kOp, tensors::kCuSeqlens.info.name};
    CUBINERY_RETURN_IF_ERROR(find_bounds(bounds, args.cu_seqlens, problem.cu_seqlens_dtype,
                                         most_sequences, &extent->sequences));
  } else if (problem.states.location == StateLocation::kPool) {
    extent->sequences = most_sequences;
  } else {
    extent->sequences = args.state.shape[0];
    CUBINERY_RETURN_IF_ERROR(
        check_count({kOp, tensors::kState.info.name}, "N", extent->sequences, most_sequences));
  }
  return check_count(kTokens, extent->tokens_dim().name, extent->tokens,
                     most_tokens(extent->sequences));
}

}  // namespace cubinery::gdn
