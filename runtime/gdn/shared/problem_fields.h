// What the field tables of the problems (tables.h beside each operator) have in common.  They are
// the one list that JSON, the command line's flags, Python's classes and the documents' tables are
// printed from.  Persistent: names are those of manifests.
#pragma once

#include <span>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode_names.h"
#include "cubinery/gdn_fields.h"

namespace cubinery::gdn {

// The fields that problems have in common, in the runs in which JSON has them.
inline constexpr const char* kKeyDimHelp = "size of q and k of a head; 16 to 256, a multiple of 16";
inline constexpr const char* kValueDimHelp = "size of v of a head; 16 to 256, a multiple of 16";

template <class P>
constexpr auto head_fields(const char* key_dim_help = kKeyDimHelp,
                           const char* value_dim_help = kValueDimHelp) {
  return field_table(fixed<&P::heads, &Heads::q>("query heads of one GPU").named("q_heads"),
                     fixed<&P::heads, &Heads::k>("key heads of one GPU").named("k_heads"),
                     fixed<&P::heads, &Heads::v>(
                         "value heads of one GPU; value head h has key head h / (v_heads / "
                         "k_heads), contiguous groups (llama.cpp: h mod k_heads)")
                         .named("v_heads"),
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

// Of the norm behind the outputs.
template <class P>
constexpr auto norm_fields() {
  return field_table(
      fixed<&P::output_norm>(
          "o is stored as it is (none), or normalised over value_dim, weighted and gated by "
          "silu(z) first (gated_rms), or by sigmoid(z) (sigmoid_gated_rms)"),
      fixed<&P::norm_weight_dtype>("dtype of norm_weight (output_norm)", kFloats));
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

// Problems have no rules that depend on the table alone: check() explains what it refuses.
template <class P>
requires requires { typename P::Operator; }
const char* why_invalid(const P&) { return nullptr; }

}  // namespace cubinery::gdn
