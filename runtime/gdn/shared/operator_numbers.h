// The numbers of the operators' arguments, which stand behind the tensors (operator_tensors.h):
// what they are called and mean.  Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "runtime/gdn/shared/operator_tensors.h"

namespace cubinery::gdn {

struct NumberInfo {
  std::string_view name;
  std::string_view absent;  // what it is then; empty: it is never absent
  std::string_view doc;
};

// In the arguments of one operator: in(args), of C's structs too.
template <class In>
struct PlacedNumber {
  NumberInfo info;
  In in;
};
template <class In>
PlacedNumber(NumberInfo, In) -> PlacedNumber<In>;

namespace numbers {

inline constexpr PlacedNumber kScratchSlot{
    {"scratch_slot", "", "the slot of rows of padding; padding scratch only"},
    CUBINERY_IN(scratch_slot)};
inline constexpr PlacedNumber kScale{{"scale", "key_dim^-1/2", "q is multiplied by it"},
                                     CUBINERY_IN(scale)};
inline constexpr PlacedNumber kConvScale{{"scale", "1", "q is multiplied by it; split_qkv only"},
                                         CUBINERY_IN(scale)};
inline constexpr PlacedNumber kNormEps{{"norm_eps", "1e-6", "output_norm gated_rms only"},
                                       CUBINERY_IN(norm_eps)};
inline constexpr PlacedNumber kLowerBound{
    {"lower_bound", "gate_mode is not lower_bound", "the least of the decay's logarithm, below 0"},
    CUBINERY_IN(lower_bound)};
inline constexpr PlacedNumber kMaxSeqlen{
    {"max_seqlen", "not known", "tokens of the longest sequence, a hint; varlen only"},
    CUBINERY_IN(max_seqlen)};
inline constexpr PlacedNumber kEnablePdl{
    {"enable_pdl", "", "the launch may overlap the kernel in front of it (sm_90 and newer)"},
    CUBINERY_IN(enable_pdl)};

}  // namespace numbers

// Specialised for the arguments of each operator: kList, a tuple of PlacedNumber.
template <class Args>
struct Numbers;

template <>
struct Numbers<DecodeArgs> {
  static constexpr std::tuple kList{numbers::kScratchSlot, numbers::kScale, numbers::kLowerBound,
                                    numbers::kNormEps, numbers::kEnablePdl};
};
template <>
struct Numbers<PrefillArgs> {
  static constexpr std::tuple kList{numbers::kScratchSlot, numbers::kScale, numbers::kLowerBound,
                                    numbers::kMaxSeqlen, numbers::kEnablePdl};
};
template <>
struct Numbers<VerifyArgs> {
  static constexpr std::tuple kList{numbers::kScratchSlot, numbers::kScale, numbers::kLowerBound,
                                    numbers::kEnablePdl};
};
template <>
struct Numbers<CommitArgs> {
  static constexpr std::tuple kList{numbers::kScratchSlot, numbers::kLowerBound,
                                    numbers::kEnablePdl};
};
template <>
struct Numbers<ConvArgs> {
  static constexpr std::tuple kList{numbers::kScratchSlot, numbers::kConvScale, numbers::kMaxSeqlen,
                                    numbers::kEnablePdl};
};

// The arguments of a problem's operator: what its launches take.
template <class Operator, class Args, class... Rest>
Args args_of_launch(Status (Operator::*)(Stream, const Args&, Rest...) const);
template <class Problem>
using ArgsOf = decltype(args_of_launch(&Problem::Operator::launch));

}  // namespace cubinery::gdn
