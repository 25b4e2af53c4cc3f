// What the problems of the Gated DeltaNet operators have in common: heads, inputs, states.  Keys of
// their kernels have the same parts.  Compiled by the host and by NVRTC.
//
// JSON, the command line and Python have the fields of all parts in one flat list; a comment begins
// with the name that a field has there, where it is another.
#pragma once

#include "cubinery/dtype.h"
#include "cubinery/gdn_conv_types.h"
#include "cubinery/gdn_types.h"

namespace cubinery::gdn {

// Each is 1 to 65,536 and divides the largest of the three; v_heads above k_heads are a multiple of
// them.  Value head h has key head h / (v_heads / k_heads), in llama.cpp h mod k_heads:
// cubinery/gdn.h says which head uses which.
struct Heads {
  int q = 16;  // q_heads
  int k = 16;  // k_heads
  int v = 32;  // v_heads

  // The largest of the three: heads of the states and of o.
  constexpr int count() const {
    const int keys = q > k ? q : k;
    return keys > v ? keys : v;
  }
};

// What a token brings besides q, k and v, and what the kernel makes of it.
struct Inputs {
  DType gate_dtype = DType::kF32;     // of g, alpha or a: f32, bf16 or f16
  DType beta_dtype = DType::kF32;     // of beta or its logit: likewise
  DType a_log_dtype = DType::kF32;    // of A_log: likewise (GateMode::kComputed, kLowerBound)
  DType dt_bias_dtype = DType::kF32;  // of dt_bias: likewise (GateMode::kComputed, kLowerBound)
  Decay decay = Decay::kHead;
  GateMode gate_mode = GateMode::kLog;
  BetaMode beta_mode = BetaMode::kGiven;
  bool use_qk_l2norm = false;  // the kernel divides q and k by sqrt(sum x^2 + 1e-6)
};

struct States {
  // state_dtype: f32, bf16 or f16; rounded to nearest when stored.  Decode also keeps states in
  // f8e4m3 and f8e5m2: cubinery/gdn_decode.h says what that costs.
  DType dtype = DType::kF32;
  // Of indices and slots: i32 or i64 (StateLocation::kPool, Checkpoints::kAt).
  DType index_dtype = DType::kI32;
  StateLayout layout = StateLayout::kVK;           // state_layout
  StateLocation location = StateLocation::kDense;  // state_location
  bool has_initial = true;  // has_initial_state; false: every sequence starts from zero
  bool store = true;        // store_state; false: new states are not kept
};

// A convolution's states: the last inputs of each channel.  Fields as in States, but for those that
// have a comment.
struct ConvStates {
  DType dtype = DType::kBF16;  // state_dtype: f32, bf16 or f16
  DType index_dtype = DType::kI32;
  ConvStateLayout layout = ConvStateLayout::kColumns;  // state_layout: what is fast
  StateLocation location = StateLocation::kDense;
  bool has_initial = true;
  bool store = true;
  // A state has as many columns as the convolution has taps (FLA, Transformers), not one less.
  bool whole_window = false;
};

// The convolution before a decode step, in its launch: q, k and v are its sums.  Names in lists
// begin with "conv_".
struct DecodeConv {
  int width = 0;  // taps: 2 to 4; 0: there is no convolution, q, k and v are given
  Activation activation = Activation::kSilu;
  bool has_bias = false;
  DType weight_dtype = DType::kBF16;                         // of weight and bias: f32, bf16 or f16
  DType state_dtype = DType::kBF16;                          // of the last inputs: likewise
  ConvStateLayout state_layout = ConvStateLayout::kColumns;  // how they lie
  bool whole_window = false;  // a state has as many columns as taps, not one less

  constexpr bool is_there() const { return width != 0; }
};

}  // namespace cubinery::gdn
