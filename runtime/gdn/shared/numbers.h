// The numbers of the operators' arguments, which stand behind the tensors (tensors.h), and those of
// their sizes: what they are called and mean.  Pure functions.
#pragma once

#include <string_view>
#include <utility>

#include "cubinery/operator.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery::gdn {

struct NumberInfo {
  std::string_view name;
  std::string_view absent{};  // what it is then; empty: it is never absent
  std::string_view doc{};
};

// In the arguments of one operator: in(args), of C's structs too; or in its size.
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

// Specialised for the arguments of each operator.  Tuples of PlacedNumber: kList; kSizes, those of
// a launch's size on which the choice of its kernels depends, in the order of C and Python.
template <class Args>
struct Numbers;

// The arguments of a problem's operator: what its launches take.
template <class Operator, class Args, class... Rest>
Args args_of_launch(Status (Operator::*)(Stream, const Args&, Rest...) const);
template <class Problem>
using ArgsOf = decltype(args_of_launch(&Problem::Operator::launch));

// The size of a launch, as Operator::choice() takes it.
template <class Problem, class Size>
Size size_of_choice(const Operator<Problem, Size>&);
template <class Problem>
using SizeOf = decltype(size_of_choice(std::declval<typename Problem::Operator>()));

}  // namespace cubinery::gdn
