// The field tables of the problems: the one list that JSON, the command line's flags, Python's
// classes and the documents' tables are printed from.  Persistent: names are those of manifests.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_names.h"
#include "cubinery/gdn_prefill.h"

namespace cubinery {
namespace gdn {

inline constexpr std::array kFloats{DType::kF32, DType::kBF16, DType::kF16};
inline constexpr std::array kIntegers{DType::kI32, DType::kI64};

// The fields that every problem has, in the runs in which JSON has them.
template <class P>
constexpr auto operand_fields() {
  return std::tuple{
      fixed("q_heads", &P::heads, &Heads::q, "query heads of one GPU"),
      fixed("k_heads", &P::heads, &Heads::k, "key heads of one GPU"),
      fixed("v_heads", &P::heads, &Heads::v, "value heads of one GPU"),
      fixed("key_dim", &P::key_dim, "size of q and k of a head; 16 to 256, a multiple of 16"),
      fixed("value_dim", &P::value_dim, "size of v of a head; 16 to 256, a multiple of 16"),
      fixed("dtype", &P::dtype, "dtype of q, k and v", kFloats),
      fixed("output_dtype", &P::output_dtype, "dtype of o", kFloats),
      fixed("gate_dtype", &P::gates, &Gates::dtype, "dtype of g, alpha or a", kFloats),
      fixed("beta_dtype", &P::gates, &Gates::beta_dtype, "dtype of beta or its logit", kFloats),
      fixed("a_log_dtype", &P::gates, &Gates::a_log_dtype, "dtype of A_log (gate_mode computed)",
            kFloats),
      fixed("dt_bias_dtype", &P::gates, &Gates::dt_bias_dtype,
            "dtype of dt_bias (gate_mode computed)", kFloats),
      fixed("state_dtype", &P::states, &States::dtype, "dtype of states as they are stored",
            kFloats),
      fixed("index_dtype", &P::states, &States::index_dtype,
            "dtype of state indices (state_location pool)", kIntegers),
  };
}

template <class P>
constexpr auto mode_fields() {
  return std::tuple{
      fixed("state_layout", &P::states, &States::layout,
            "a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk: vLLM, "
            "SGLang, FlashInfer, llama.cpp)"),
      fixed("state_location", &P::states, &States::location,
            "states lie in the order of the batch (dense) or in slots that indices name (pool)"),
      fixed("padding", &P::states, &States::padding,
            "a row whose index means padding is left alone (skip), its output set to zero (zero), "
            "or computed on scratch_slot (scratch); needs state_location pool"),
      fixed("pad_index", &P::states, &States::pad_index, "the index that means padding"),
      fixed("gate_mode", &P::gates, &Gates::mode,
            "the decay is given as g (log) or e^g (alpha), or computed from A_log, a and dt_bias"),
      fixed("beta_mode", &P::gates, &Gates::beta_mode,
            "the write strength is 1 (one), beta as given, its sigmoid (logit) or twice that "
            "(doubled_logit)"),
      fixed("use_qk_l2norm", &P::use_qk_l2norm, "normalise q and k in the kernel"),
      fixed("has_initial_state", &P::states, &States::has_initial,
            "sequences start from a state, not from zero"),
      fixed("store_state", &P::states, &States::store, "new states are kept"),
  };
}

template <class P>
constexpr auto batch_invariant_field() {
  return fixed("batch_invariant", &P::batch_invariant,
               "the same bits for a request whatever the batch, instead of the fastest kernels for "
               "each size");
}

}  // namespace gdn

template <>
struct Fields<gdn::DecodeProblem> {
  static constexpr const char* kName = "gdn_decode";
  static constexpr const char* kHelp = "One decode step: one token per request.";
  using P = gdn::DecodeProblem;
  static constexpr auto kList = std::tuple_cat(gdn::operand_fields<P>(), gdn::mode_fields<P>(),
                                               std::tuple{gdn::batch_invariant_field<P>()});
};

template <>
struct Fields<gdn::PrefillProblem> {
  static constexpr const char* kName = "gdn_prefill";
  static constexpr const char* kHelp = "A prefill: whole sequences.";
  using P = gdn::PrefillProblem;
  static constexpr auto kList = std::tuple_cat(
      gdn::operand_fields<P>(),
      std::tuple{
          fixed("cu_seqlens_dtype", &P::cu_seqlens_dtype,
                "dtype of cu_seqlens and checkpoint_cu_starts (varlen)", gdn::kIntegers),
          fixed("token_layout", &P::token_layout,
                "heads come after the tokens (bthd) or before them (bhtd)"),
          fixed("varlen", &P::varlen,
                "sequences are packed behind each other, their bounds in cu_seqlens"),
      },
      gdn::mode_fields<P>(),
      std::tuple{
          fixed("checkpoints", &P::checkpoints,
                "states are also kept from before tokens 0, N, 2N... (before) or after tokens N, "
                "2N... (after); N is checkpoint_every"),
          fixed("checkpoint_every", &P::checkpoint_every,
                "tokens from one checkpoint to the next; a multiple of 16"),
          gdn::batch_invariant_field<P>(),
      });
};

namespace gdn {

// The operators' names: those of their results, and what messages begin with.
inline constexpr std::string_view kDecodeOp = Fields<DecodeProblem>::kName;
inline constexpr std::string_view kPrefillOp = Fields<PrefillProblem>::kName;

}  // namespace gdn
}  // namespace cubinery
