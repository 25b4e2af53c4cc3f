// The tables of the prefill operator: fields of its problem, tensors and numbers of its launches.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>

#include "cubinery/gdn_prefill.h"
#include "runtime/gdn/shared/numbers.h"
#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery {

template <>
struct EnumNames<gdn::Segments> {
  static constexpr const char* kType = "cubinery::gdn::Segments";
  static constexpr std::array<EnumName<gdn::Segments>, 3> kNames{
      {{gdn::Segments::kAuto, "kAuto", "auto"},
       {gdn::Segments::kNever, "kNever", "never"},
       {gdn::Segments::kAlways, "kAlways", "always"}}};
};

template <>
struct Fields<gdn::PrefillProblem> {
  static constexpr const char* kName = "gdn_prefill";
  static constexpr const char* kHelp = "A prefill: whole sequences.";
  using P = gdn::PrefillProblem;
  static constexpr auto kList = field_table(
      gdn::operand_fields<P>(),
      fixed<&P::cu_seqlens_dtype>("dtype of cu_seqlens and checkpoint_cu_starts (varlen)",
                                  gdn::kIntegers),
      fixed<&P::token_layout>("heads come after the tokens (bthd) or before them (bhtd)"),
      fixed<&P::varlen>("sequences are packed behind each other, their bounds in cu_seqlens"),
      gdn::mode_fields<P>(),
      fixed<&P::checkpoints>(
          "states are also kept from before tokens 0, N, 2N... (before), after tokens N, 2N... "
          "(after), or after as many tokens as checkpoint_offsets says (at); N is "
          "checkpoint_every"),
      fixed<&P::checkpoint_every>("tokens from one checkpoint to the next, or what offsets are "
                                  "multiples of (at), a multiple of 16; launches may have any "
                                  "multiple of it"),
      fixed<&P::segments>(
          "long sequences are cut into segments that run side by side: where that is faster "
          "(auto), never, or always; with batch_invariant, auto means never"),
      fixed<&P::context_parallel>(
          "sequences may be spread over several GPUs, which launch a prefill in three steps"),
      fixed<&P::segment_tokens>("tokens of the segments that sequences are cut into, a multiple of "
                                "64 (context_parallel)"),
      gdn::batch_invariant_field<P>());
  // How a state lies in memory is not among them: it is read and written once for a whole sequence.
  static constexpr std::string_view kOutline[] = {"key_dim", "value_dim", "dtype", "decay",
                                                  "context_parallel"};
  static constexpr std::string_view kNotForSpeed[] = {
      "q_heads",          "k_heads",  "v_heads",        "token_layout",
      "checkpoint_every", "segments", "segment_tokens", "batch_invariant"};
};

namespace gdn {

// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kPrefillOp = Fields<PrefillProblem>::kName;

template <>
struct Tensors<PrefillArgs> {
  using Problem = PrefillProblem;
  static constexpr std::size_t kPositional = 5;
  static constexpr auto kList = std::tuple_cat(
      token_tensors(), state_tensors(), std::tuple{tensors::kCuSeqlens, tensors::kHasInitialState},
      checkpoint_tensors());
};

template <>
struct Numbers<PrefillArgs> {
  static constexpr std::tuple kList{
      numbers::kPadSlotId, numbers::kZeroPadding, numbers::kScratchSlot, numbers::kCheckpointEvery,
      numbers::kScale,     numbers::kLowerBound,  numbers::kMaxSeqlen,   numbers::kEnablePdl,
      numbers::kStep,      numbers::kContinues};
  static constexpr std::tuple kSizes{
      Number{CUBINERY_MEMBER(tokens), "", "of all sequences: B T, or the packed total"},
      Number{CUBINERY_MEMBER(sequences), "", "B, or N"},
      Number{CUBINERY_MEMBER(max_seqlen), "not known", "tokens of the longest sequence"}};
};

}  // namespace gdn
}  // namespace cubinery
