// The numbers of the operators' arguments, which stand behind the tensors (tensors.h), and those of
// their sizes: what they are called and mean.  Pure functions.
#pragma once

#include <string_view>
#include <utility>

#include "cubinery/operator.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery::gdn {

// Of an operator's arguments, or of its size.
template <class In>
struct Number : Member<In> {
  std::string_view absent{};  // what it is then; empty: it is never absent
  std::string_view doc{};
};
template <class In>
Number(Member<In>, std::string_view = {}, std::string_view = {}) -> Number<In>;

namespace numbers {

inline constexpr Number kPadSlotId{
    CUBINERY_MEMBER(pad_slot_id), "no index is padding",
    "the index that means that a row is padding, or, negative, that every negative one does; "
    "state_location pool only"};
inline constexpr Number kZeroPadding{
    CUBINERY_MEMBER(zero_padding), "",
    "outputs of rows of padding are set to zero, not left alone; needs pad_slot_id"};
inline constexpr Number kScratchSlot{
    CUBINERY_MEMBER(scratch_slot), "they are not computed",
    "the slot that rows of padding are computed on; needs pad_slot_id, without zero_padding"};
inline constexpr Number kCheckpointEvery{
    CUBINERY_MEMBER(checkpoint_every), "the problem's",
    "tokens from one checkpoint to the next, a multiple of the problem's"};
inline constexpr Number kScale{CUBINERY_MEMBER(scale), "key_dim^-1/2", "q is multiplied by it"};
inline constexpr Number kConvScale{CUBINERY_MEMBER(scale), "1",
                                   "q is multiplied by it; split_qkv only"};
inline constexpr Number kNormEps{CUBINERY_MEMBER(norm_eps), "1e-6", "with output_norm only"};
inline constexpr Number kLowerBound{CUBINERY_MEMBER(lower_bound), "gate_mode is not lower_bound",
                                    "the least of the decay's logarithm, -5 to below 0"};
inline constexpr Number kMaxSeqlen{CUBINERY_MEMBER(max_seqlen), "not known",
                                   "tokens of the longest sequence, a hint; varlen only"};
inline constexpr Number kEnablePdl{
    CUBINERY_MEMBER(enable_pdl), "",
    "the launch may overlap the kernel in front of it (sm_90 and newer)"};

inline constexpr Number kStep{CUBINERY_MEMBER(step), "all of them",
                              "1, 2 or 3: start, carry or finish; context_parallel only"};
inline constexpr Number kContinues{
    CUBINERY_MEMBER(continues), "",
    "the first sequence goes on from the GPU in front, so its initial state is read by step 2; "
    "context_parallel only"};

// Of a size that is one number.
inline constexpr auto kItself = [](auto& size) -> auto& { return size; };

}  // namespace numbers

// Specialised for the arguments of each operator.  Tuples of Number: kList; kSizes, those of
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
