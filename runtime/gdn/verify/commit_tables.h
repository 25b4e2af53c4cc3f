// The tables of the commit operator: fields of its problem, tensors and numbers of its launches.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>

#include "cubinery/gdn_commit.h"
#include "runtime/gdn/shared/numbers.h"
#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery {

template <>
struct Fields<gdn::CommitProblem> {
  static constexpr const char* kName = "gdn_commit";
  static constexpr const char* kHelp =
      "A commit: the states after the accepted tokens of a verification, in all layers.";
  using P = gdn::CommitProblem;
  static constexpr auto kList = field_table(
      gdn::head_fields<P>(), fixed<&P::dtype>("dtype of q, k and v", gdn::kHalfFloats),
      gdn::input_dtype_fields<P>(), gdn::state_dtype_fields<P>(), gdn::request_fields<P>(),
      gdn::mode_fields<P>(), fixed<&P::accepted_dtype>("dtype of accepted", gdn::kIntegers),
      gdn::batch_invariant_field<P>());
  static constexpr std::string_view kOutline[] = {
      "key_dim", "value_dim", "dtype", "state_dtype", "state_layout", "draft_tokens", "decay"};
  static constexpr std::string_view kNotForSpeed[] = {"q_heads", "k_heads", "v_heads",
                                                      "accepted_dtype", "batch_invariant"};
};

namespace gdn {

// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kCommitOp = Fields<CommitProblem>::kName;

// Operands of one layer; a table of layers stands for them.
template <>
struct Tensors<CommitLayer> {
  using Problem = CommitProblem;
  static constexpr auto kList = layer_tensors();
};

// Of a commit itself.
namespace commit_tensors {

inline constexpr auto kLayers = spec("what table() made, without gaps", CUBINERY_MEMBER(layers),
                                     {TensorId::kLayers,
                                      TensorKind::kLayers,
                                      {Axis::kLayers, Axis::kWords},
                                      Access::kRead,
                                      "i64",
                                      Optional::kEverywhere},
                                     [](const auto&) { return DType::kI64; });
inline constexpr auto kAccepted = spec(
    "so many tokens of each request are accepted; absent: all of them", CUBINERY_MEMBER(accepted),
    tensors::vector(TensorId::kAccepted, TensorKind::kCounts, Axis::kSequences, "accepted_dtype",
                    Optional::kEverywhere),
    CUBINERY_TYPE(accepted_dtype));

}  // namespace commit_tensors

// Those of its one layer, which are absent with a table of layers, then its own.
template <>
struct Tensors<CommitArgs> {
  using Problem = CommitProblem;
  static constexpr std::size_t kPositional = 4;
  static constexpr TensorId kInstead = TensorId::kLayers;
  static constexpr auto kList = std::tuple_cat(
      tensors_of_layer(),
      std::tuple{commit_tensors::kLayers, commit_tensors::kAccepted, tensors::kCuSeqlens,
                 tensors::kStateIndices, tensors::kStateOutIndices});
};

template <>
struct Numbers<CommitArgs> {
  static constexpr std::tuple kList{numbers::kPadSlotId, numbers::kScratchSlot,
                                    numbers::kLowerBound, numbers::kEnablePdl};
  static constexpr std::tuple kSizes{
      Number{CUBINERY_MEMBER(layers), "", "those of the table, or 1"},
      Number{CUBINERY_MEMBER(requests), "", "N"}};
};

}  // namespace gdn
}  // namespace cubinery
