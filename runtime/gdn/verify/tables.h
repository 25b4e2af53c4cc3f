// The tables of the verify operator: fields of its problem, tensors and numbers of its launches.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>

#include "cubinery/gdn_verify.h"
#include "cubinery/gdn_verify_names.h"
#include "runtime/gdn/shared/numbers.h"
#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery {

template <>
struct Fields<gdn::VerifyProblem> {
  static constexpr const char* kName = "gdn_verify";
  static constexpr const char* kHelp = "A verification: the draft tokens of each request.";
  using P = gdn::VerifyProblem;
  static constexpr auto kList = field_table(
      gdn::operand_fields<P>(), gdn::request_fields<P>(), gdn::mode_fields<P>(),
      fixed<&P::stored_states>(
          "new states are those after a request's last token (last) or after each of its "
          "tokens (every)"),
      fixed<&P::from_accepted>(
          "the number of accepted tokens chooses which step's state a request starts from; "
          "needs has_initial_state"),
      fixed<&P::accepted_dtype>("dtype of accepted (from_accepted)", gdn::kIntegers),
      fixed<&P::tree>(
          "a request's tokens are a tree, each follows the one that parents names; needs "
          "stored_states every or store_state false"),
      fixed<&P::parents_dtype>("dtype of parents (tree)", gdn::kIntegers),
      fixed<&P::round_each_token>(
          "the state is rounded to state_dtype after each token, as by decode steps"),
      gdn::norm_fields<P>(), gdn::batch_invariant_field<P>());
  static constexpr std::string_view kOutline[] = {
      "key_dim",      "value_dim",   "dtype",         "output_dtype", "state_dtype",
      "state_layout", "store_state", "stored_states", "output_norm",  "decay"};
  static constexpr std::string_view kNotForSpeed[] = {
      "q_heads", "k_heads", "v_heads", "from_accepted", "accepted_dtype", "batch_invariant"};
};

namespace gdn {

// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kVerifyOp = Fields<VerifyProblem>::kName;

template <>
struct Tensors<VerifyArgs> {
  using Problem = VerifyProblem;
  static constexpr std::size_t kPositional = 5;
  static constexpr auto kList = std::tuple_cat(
      token_tensors(), state_tensors(),
      std::tuple{tensors::kCuSeqlens, tensors::kAccepted, tensors::kParents}, norm_tensors());
};

template <>
struct Numbers<VerifyArgs> {
  static constexpr std::tuple kList{
      numbers::kPadSlotId,  numbers::kZeroPadding, numbers::kScratchSlot, numbers::kScale,
      numbers::kLowerBound, numbers::kNormEps,     numbers::kEnablePdl};
  static constexpr std::tuple kSizes{
      Number{CUBINERY_MEMBER(requests), "", "B, or N"},
      Number{CUBINERY_MEMBER(tokens), "", "of all requests: B T, or the packed total"}};
};

}  // namespace gdn
}  // namespace cubinery
