// The fields of the parts of cubinery/gdn_parts.h, for the tables of the problems and keys that
// have them.  In the runs in which JSON has them; a table takes all runs of a part, in their order.
// Persistent: names are part of kernel identities, manifests and tuning results.
#pragma once

#include <array>
#include <span>

#include "cubinery/fields.h"
#include "cubinery/gdn_conv_names.h"
#include "cubinery/gdn_names.h"
#include "cubinery/gdn_parts.h"

namespace cubinery::gdn {

inline constexpr std::array kFloats{DType::kF32, DType::kBF16, DType::kF16};
inline constexpr std::array kStateFloats{DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3,
                                         DType::kF8E5M2};
inline constexpr std::array kHalfFloats{DType::kBF16, DType::kF16};
inline constexpr std::array kIntegers{DType::kI32, DType::kI64};

// Of an `inputs`.

template <class T>
constexpr auto input_dtype_fields() {
  constexpr auto kPart = &T::inputs;
  return field_table(fixed<kPart, &Inputs::gate_dtype>("dtype of g, alpha or a", kFloats),
                     fixed<kPart, &Inputs::beta_dtype>("dtype of beta or its logit", kFloats),
                     fixed<kPart, &Inputs::a_log_dtype>(
                         "dtype of A_log (gate_mode computed, lower_bound)", kFloats),
                     fixed<kPart, &Inputs::dt_bias_dtype>(
                         "dtype of dt_bias (gate_mode computed, lower_bound)", kFloats));
}

template <class T>
constexpr auto input_mode_fields() {
  constexpr auto kPart = &T::inputs;
  return field_table(
      fixed<kPart, &Inputs::decay>(
          "a token and head has one decay (head: Gated DeltaNet), or one for each of key_dim "
          "channels (channel: Kimi Delta Attention)"),
      fixed<kPart, &Inputs::gate_mode>(
          "the decay is given as g (log) or e^g (alpha), or computed from A_log, a and dt_bias, by "
          "softplus (computed) or above a lower bound (lower_bound)"),
      fixed<kPart, &Inputs::beta_mode>(
          "the write strength is 1 (one), beta as given, its sigmoid (logit) or twice that "
          "(doubled_logit)"),
      fixed<kPart, &Inputs::use_qk_l2norm>("normalise q and k in the kernel"));
}

// Of a `states`: States, or ConvStates where it has the field.

template <class T>
using StatesOf = decltype(T::states);

// `accepted`: kStateFloats, or kFloats for operators that keep no states in fp8.
template <class T>
constexpr auto state_dtype_fields(std::span<const DType> accepted = kFloats) {
  constexpr auto kPart = &T::states;
  constexpr bool kHasCheckpoints = requires(T of) { of.checkpoints; };
  return field_table(
      fixed<kPart, &StatesOf<T>::dtype>("dtype of states as they are stored", accepted)
          .named("state_dtype"),
      fixed<kPart, &StatesOf<T>::index_dtype>(
          kHasCheckpoints ? "dtype of state indices (state_location pool) and checkpoint_slots"
                          : "dtype of state indices (state_location pool)",
          kIntegers));
}

template <class T>
constexpr auto state_slot_fields() {
  constexpr auto kPart = &T::states;
  return field_table(
      fixed<kPart, &StatesOf<T>::location>(
          "states lie in the order of the batch (dense) or in slots that indices name (pool)")
          .named("state_location"));
}

template <class T>
constexpr auto state_place_fields() {
  return field_table(
      fixed<&T::states, &States::layout>(
          "a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk: "
          "vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h "
          "mod k_heads, and here it is h / (v_heads / k_heads))")
          .named("state_layout"),
      state_slot_fields<T>());
}

template <class T>
constexpr auto state_use_fields() {
  constexpr auto kPart = &T::states;
  return field_table(
      fixed<kPart, &StatesOf<T>::has_initial>("sequences start from a state, not from zero")
          .named("has_initial_state"),
      fixed<kPart, &StatesOf<T>::store>("new states are kept").named("store_state"));
}

// Of a `conv`.

template <class T>
constexpr auto decode_conv_fields() {
  constexpr auto kPart = &T::conv;
  return field_table(
      fixed<kPart, &DecodeConv::width>(
          "taps of the convolution in front, 2 to 4; 0: there is none, q, k and v are given")
          .named("conv_width"),
      fixed<kPart, &DecodeConv::activation>("what the convolution's sums go through (conv_width)")
          .named("conv_activation"),
      fixed<kPart, &DecodeConv::has_bias>("the convolution has a bias (conv_width)")
          .named("conv_has_bias"),
      fixed<kPart, &DecodeConv::weight_dtype>("dtype of conv_weight and conv_bias (conv_width)",
                                              kFloats)
          .named("conv_weight_dtype"),
      fixed<kPart, &DecodeConv::state_dtype>("dtype of conv_state (conv_width)", kFloats)
          .named("conv_state_dtype"),
      fixed<kPart, &DecodeConv::state_layout>(
          "of conv_state [channels, columns], columns are neighbours in memory (FLA, "
          "Transformers, SGLang), or channels (vLLM)")
          .named("conv_state_layout"),
      fixed<kPart, &DecodeConv::whole_window>(
          "conv_state has conv_width columns (FLA, Transformers), not one less (vLLM, SGLang)")
          .named("conv_whole_window"));
}

}  // namespace cubinery::gdn
