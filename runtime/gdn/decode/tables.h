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
      gdn::operand_fields<P>(gdn::kStateFloats), gdn::mode_fields<P>(), gdn::norm_fields<P>(),
      gdn::decode_conv_fields<P>(), gdn::batch_invariant_field<P>());
  static constexpr std::string_view kOutline[] = {"key_dim",      "value_dim",   "dtype",
                                                  "output_dtype", "state_dtype", "state_layout",
                                                  "output_norm",  "decay"};
  static constexpr std::string_view kNotForSpeed[] = {"q_heads", "k_heads", "v_heads",
                                                      "batch_invariant"};
};

namespace gdn {

// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kDecodeOp = Fields<DecodeProblem>::kName;

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
