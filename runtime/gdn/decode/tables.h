// The tables of the decode operator: fields of its problem, tensors and numbers of its launches.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>

#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_decode_names.h"
#include "runtime/gdn/shared/numbers.h"
#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery {

template <>
struct Fields<gdn::DecodeProblem> {
  static constexpr const char* kName = "gdn_decode";
  static constexpr const char* kHelp = "One decode step: one token per request.";
  using P = gdn::DecodeProblem;
  static constexpr auto kList = field_table(
      gdn::operand_fields<P>(gdn::kStateFloats), gdn::mode_fields<P>(),
      fixed<&P::output_norm>(
          "o is stored as it is (none), or normalised over value_dim, weighted and gated by "
          "silu(z) first (gated_rms), or by sigmoid(z) (sigmoid_gated_rms; no kernel does it "
          "yet)"),
      fixed<&P::norm_weight_dtype>("dtype of norm_weight (output_norm)", gdn::kFloats),
      gdn::decode_conv_fields<P>(), gdn::batch_invariant_field<P>());
  static constexpr std::string_view kOutline[] = {"key_dim",      "value_dim",   "dtype",
                                                  "output_dtype", "state_dtype", "state_layout",
                                                  "output_norm"};
  static constexpr std::string_view kNotForSpeed[] = {"q_heads", "k_heads", "v_heads",
                                                      "batch_invariant"};
};

namespace gdn {

// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kDecodeOp = Fields<DecodeProblem>::kName;

namespace tensors {

// Of the outputs' norm.
inline constexpr Absence kNoNorm{"output_norm is none",
                                 CUBINERY_WHERE(p.output_norm == OutputNorm::kNone)};
inline constexpr auto kZ = spec("the gate of the norm", CUBINERY_MEMBER(z),
                                rows(TensorId::kZ, Axis::kHeads, Axis::kValueDim, Access::kRead),
                                CUBINERY_TYPE(dtype), kNoNorm);
inline constexpr auto kNormWeight =
    spec(CUBINERY_MEMBER(norm_weight),
         vector(TensorId::kNormWeight, TensorKind::kColumns, Axis::kValueDim, "norm_weight_dtype"),
         CUBINERY_TYPE(norm_weight_dtype), kNoNorm);

}  // namespace tensors

constexpr auto norm_tensors() { return std::tuple{tensors::kZ, tensors::kNormWeight}; }

template <>
struct Tensors<DecodeArgs> {
  using Problem = DecodeProblem;
  static constexpr std::size_t kPositional = 5;
  static constexpr TensorId kInstead = TensorId::kX;
  static constexpr auto kList =
      std::tuple_cat(optional_operand_tensors(), gate_tensors(), std::tuple{tensors::kO},
                     state_tensors(), norm_tensors(), front_conv_tensors());
};

template <>
struct Numbers<DecodeArgs> {
  static constexpr std::tuple kList{
      numbers::kPadSlotId,  numbers::kZeroPadding, numbers::kScratchSlot, numbers::kScale,
      numbers::kLowerBound, numbers::kNormEps,     numbers::kEnablePdl};
  static constexpr std::tuple kSizes{Number{Member{"batch", numbers::kItself}, "", "requests"}};
};

}  // namespace gdn
}  // namespace cubinery
