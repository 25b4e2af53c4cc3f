// The field tables of the problems: the one list that JSON, the command line's flags, Python's
// classes and the documents' tables are printed from.  Persistent: names are those of manifests.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "cubinery/fields.h"
#include "cubinery/gdn_commit.h"
#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_conv_names.h"
#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_decode_names.h"
#include "cubinery/gdn_fields.h"
#include "cubinery/gdn_prefill.h"
#include "cubinery/gdn_verify.h"
#include "cubinery/gdn_verify_names.h"

namespace cubinery {

template <>
struct EnumNames<gdn::Segments> {
  static constexpr const char* kType = "cubinery::gdn::Segments";
  static constexpr std::array<EnumName<gdn::Segments>, 3> kNames{
      {{gdn::Segments::kAuto, "kAuto", "auto"},
       {gdn::Segments::kNever, "kNever", "never"},
       {gdn::Segments::kAlways, "kAlways", "always"}}};
};

namespace gdn {

// The fields that problems have in common, in the runs in which JSON has them.
inline constexpr const char* kKeyDimHelp = "size of q and k of a head; 16 to 256, a multiple of 16";
inline constexpr const char* kValueDimHelp = "size of v of a head; 16 to 256, a multiple of 16";

template <class P>
constexpr auto head_fields(const char* key_dim_help = kKeyDimHelp,
                           const char* value_dim_help = kValueDimHelp) {
  return field_table(fixed<&P::heads, &Heads::q>("query heads of one GPU").named("q_heads"),
                     fixed<&P::heads, &Heads::k>("key heads of one GPU").named("k_heads"),
                     fixed<&P::heads, &Heads::v>("value heads of one GPU").named("v_heads"),
                     fixed<&P::key_dim>(key_dim_help), fixed<&P::value_dim>(value_dim_help));
}

// `state_dtypes`: as state_dtype_fields() takes them.
template <class P>
constexpr auto operand_fields(std::span<const DType> state_dtypes = kFloats) {
  return field_table(head_fields<P>(), fixed<&P::dtype>("dtype of q, k and v", kFloats),
                     fixed<&P::output_dtype>("dtype of o", kFloats), input_dtype_fields<P>(),
                     state_dtype_fields<P>(state_dtypes));
}

// Of packed requests, and of those that have several tokens.
template <class P>
constexpr auto request_fields() {
  return field_table(
      fixed<&P::cu_seqlens_dtype>("dtype of cu_seqlens (varlen)", kIntegers),
      fixed<&P::varlen>("requests are packed behind each other, their bounds in cu_seqlens"),
      fixed<&P::draft_tokens>(
          "the most tokens of a request: its drafts and the token in front of them; 1 to 16"));
}

template <class P>
constexpr auto mode_fields() {
  return field_table(state_place_fields<P>(), input_mode_fields<P>(), state_use_fields<P>());
}

template <class P>
constexpr auto batch_invariant_field() {
  return fixed<&P::batch_invariant>(
      "the same bits for a request whatever the batch, instead of the fastest kernels for "
      "each size");
}

}  // namespace gdn

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
          "states are also kept from before tokens 0, N, 2N... (before) or after tokens N, "
          "2N... (after); N is checkpoint_every"),
      fixed<&P::checkpoint_every>("tokens from one checkpoint to the next; a multiple of 16"),
      fixed<&P::segments>(
          "long sequences are cut into segments that run side by side: where that is faster "
          "(auto), never, or always; with batch_invariant, auto means never"),
      gdn::batch_invariant_field<P>());
};

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
      gdn::batch_invariant_field<P>());
};

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
};

namespace gdn {

inline constexpr std::array kConvGateModes{GateMode::kNone, GateMode::kComputed};
inline constexpr std::array kConvBetaModes{BetaMode::kOne, BetaMode::kLogit,
                                           BetaMode::kDoubledLogit};

}  // namespace gdn

template <>
struct Fields<gdn::ConvProblem> {
  static constexpr const char* kName = "gdn_conv";
  static constexpr const char* kHelp =
      "A causal convolution in front of the others: its sums, SiLU, the split into q, k and v.";
  using P = gdn::ConvProblem;
  static constexpr auto kList = field_table(
      gdn::head_fields<P>("size of q and k of a head; 8 to 256, a multiple of 8",
                          "size of v of a head; 8 to 256, a multiple of 8"),
      fixed<&P::dtype>("dtype of x, y, q, k and v", gdn::kFloats),
      fixed<&P::weight_dtype>("dtype of weight and bias", gdn::kFloats),
      fixed<&P::width>("taps of the convolution; 2 to 4"),
      fixed<&P::activation>("what the sums go through"), fixed<&P::has_bias>("there is a bias"),
      fixed<&P::split_qkv>("q, k and v are written, not y"), gdn::input_dtype_fields<P>(),
      gdn::state_dtype_fields<P>(),
      fixed<&P::cu_seqlens_dtype>("dtype of cu_seqlens and checkpoint_cu_starts (varlen)",
                                  gdn::kIntegers),
      fixed<&P::varlen>("sequences are packed behind each other, their bounds in cu_seqlens"),
      fixed<&P::states, &gdn::ConvStates::layout>(
          "of a state [channels, columns], columns are neighbours in memory (FLA, "
          "Transformers, SGLang), or channels (vLLM)")
          .named("state_layout"),
      gdn::state_slot_fields<P>(),
      fixed<&P::inputs, &gdn::Inputs::decay>("of the gates that are computed: one for a token "
                                             "and head (head), or for each channel of k "
                                             "(channel; no kernel makes these yet)"),
      fixed<&P::inputs, &gdn::Inputs::gate_mode>(
          "g is computed from A_log, a and dt_bias; needs split_qkv", gdn::kConvGateModes),
      fixed<&P::inputs, &gdn::Inputs::beta_mode>(
          "beta is computed: the sigmoid of b (logit) or twice that (doubled_logit); needs "
          "split_qkv",
          gdn::kConvBetaModes),
      fixed<&P::inputs, &gdn::Inputs::use_qk_l2norm>("q and k are normalised; needs split_qkv"),
      gdn::state_use_fields<P>(),
      fixed<&P::states, &gdn::ConvStates::whole_window>(
          "states have width columns (FLA, Transformers), not width - 1 (vLLM, SGLang)"),
      fixed<&P::stored_states>(
          "new states are those after a sequence's last token (last) or after each of up to "
          "16 tokens (every)"),
      fixed<&P::from_accepted>(
          "the number of accepted tokens says from which column of its state a request goes "
          "on, or with stored_states every from which state; needs has_initial_state and "
          "store_state"),
      fixed<&P::accepted_dtype>("dtype of accepted (from_accepted)", gdn::kIntegers),
      fixed<&P::checkpoints>(
          "states are also kept from before tokens 0, N, 2N... (before) or after tokens N, "
          "2N... (after); N is checkpoint_every"),
      fixed<&P::checkpoint_every>("tokens from one checkpoint to the next"),
      gdn::batch_invariant_field<P>());
};

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
template <class P>
requires requires { typename P::Operator; }
const char* why_invalid(const P&) { return nullptr; }

// The operators' names: those of their results, and what messages begin with.
inline constexpr std::string_view kDecodeOp = Fields<DecodeProblem>::kName;
inline constexpr std::string_view kPrefillOp = Fields<PrefillProblem>::kName;
inline constexpr std::string_view kVerifyOp = Fields<VerifyProblem>::kName;
inline constexpr std::string_view kCommitOp = Fields<CommitProblem>::kName;
inline constexpr std::string_view kConvOp = Fields<ConvProblem>::kName;

}  // namespace gdn
}  // namespace cubinery
