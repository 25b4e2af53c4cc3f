// Compile-time parameters and arguments of gdn_decode.  Compiled by the host and by NVRTC.
#pragma once

#include "common/conv/params.h"
#include "common/key_rules.h"
#include "common/output_norm.h"
#include "common/params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_decode_types.h"
#include "cubinery/gdn_parts.h"

namespace cubinery {

struct GdnDecodeKey {
  static constexpr bool kTakesChannelDecays = true;

  // The problem: gdn::DecodeProblem explains each.
  int key_dim = 128;
  int value_dim = 128;
  DType dtype = DType::kBF16;
  DType output_dtype = DType::kBF16;
  gdn::Inputs inputs{};
  gdn::States states{};
  gdn::OutputNorm output_norm = gdn::OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;
  gdn::DecodeConv conv{};

  // Tuned.  A warp owns warp_v value columns of one head's state and holds held_v of them at a
  // time, the next ones on their way into the registers of those that are done; k_lanes of its
  // lanes lie along key_dim. Results depend on k_lanes and vec_bytes (the order of summation)
  // alone.
  int warp_v = 16;
  int held_v = 16;
  int k_lanes = 8;
  int vec_bytes = 16;  // of the state, per load and store; 2 only for fp8
  int warps = 4;       // per block
};

constexpr int threads(const GdnDecodeKey& key) { return key.warps * 32; }

// Warps that have the columns of a head.  Requires: warp_v divides value_dim.
constexpr int warps_of_head(const GdnDecodeKey& key) { return key.value_dim / key.warp_v; }

// Elements of k, of q and of decays that a thread has.
constexpr int row_elements(const GdnDecodeKey& key) {
  return (key.inputs.decay == gdn::Decay::kChannel ? 3 : 2) * key.key_dim / key.k_lanes;
}

// Registers that a thread needs for these and for its part of the state.
constexpr int data_registers(const GdnDecodeKey& key) {
  return key.key_dim * key.held_v * size_of(key.states.dtype) / (32 * 4) + row_elements(key);
}

// The elements of both.
constexpr int data_elements(const GdnDecodeKey& key) {
  return key.key_dim * key.held_v / 32 + row_elements(key);
}

// The convolution in front: a thread has four neighbouring channels at a time of those that the
// block needs, q and k of one head and the values of its columns.
inline constexpr int kConvChannels = 4;

constexpr int block_columns(const GdnDecodeKey& key) { return key.warps * key.warp_v; }
constexpr int conv_channels(const GdnDecodeKey& key) {
  return 2 * key.key_dim + block_columns(key);
}
constexpr int conv_passes(const GdnDecodeKey& key) {
  const int at_a_time = threads(key) * kConvChannels;
  return (conv_channels(key) + at_a_time - 1) / at_a_time;
}

// The rule of `conv` that a key breaks.
constexpr const char* why_invalid_conv(const GdnDecodeKey& key) {
  if (!key.conv.is_there()) return nullptr;
  if (key.conv.width < 2 || key.conv.width > 4) return "conv_width must be 0, 2, 3 or 4";
  if (!is_float(key.conv.weight_dtype)) return "conv_weight_dtype must be f32, bf16 or f16";
  if (!is_float(key.conv.state_dtype)) return "conv_state_dtype must be f32, bf16 or f16";
  if (key.value_dim % block_columns(key) != 0)
    return "warps * warp_v must divide value_dim with a convolution: a block has columns of one "
           "head";
  if (block_columns(key) % kConvChannels != 0)
    return "warps * warp_v must be a multiple of 4 with a convolution";
  if (conv_passes(key) > 2) return "a thread's channels of the convolution pass its registers";
  return nullptr;
}

// The rule of blocks that a key breaks.  Requires: warp_v divides value_dim.
constexpr const char* why_invalid_blocks(const GdnDecodeKey& key) {
  if (!is_float(key.norm_weight_dtype)) return "norm_weight_dtype must be f32, bf16 or f16";
  if (is_normed(key)) {
    if (!is_power_of_two(key.warp_v) || key.warp_v < 4 || key.warp_v > 32)
      return "warp_v must be 4, 8, 16 or 32 with output_norm, of whose columns a lane keeps one";
    const int head = warps_of_head(key);
    if (key.warps != head && key.warps != 2 * head && key.warps != 4 * head)
      return "warps must be 1, 2 or 4 times value_dim / warp_v with output_norm: all columns of a "
             "head lie in one block";
  } else if (!key.conv.is_there()) {
    if (key.warps == 1 || key.warps == 2 || key.warps == 4) return nullptr;
    return "warps must be 1, 2 or 4 without output_norm and convolution";
  }
  // From 13 warps on a thread has 128 registers.  Compilers unpack elements of 16 bits early, and
  // spill for more elements than these.
  const int most = size_of(key.states.dtype) == 4               ? 96
                   : key.states.layout == gdn::StateLayout::kVK ? 90
                                                                : 64;
  if (key.warps > 8 && data_elements(key) > most)
    return "a thread's part of the state, k and q passes the registers of so many warps";
  return nullptr;
}

constexpr const char* why_invalid(const GdnDecodeKey& key) {
  const int v_lanes = key.k_lanes > 0 && key.k_lanes <= 32 ? 32 / key.k_lanes : 0;
  const int vec = key.vec_bytes / size_of(key.states.dtype);
  const bool is_pair = is_fp8(key.states.dtype) && key.vec_bytes == 2;
  const bool rows_are_v = key.states.layout == gdn::StateLayout::kVK;
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_head_dim(key.value_dim)) return "value_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (!is_float(key.output_dtype)) return "output_dtype must be f32, bf16 or f16";
  if (const char* reason = why_inputs_invalid(key)) return reason;
  if (const char* reason = gdn::why_invalid(key.states)) return reason;
  if (!is_power_of_two(key.k_lanes) || v_lanes == 0) return "k_lanes must be 1, 2, 4, 8, 16 or 32";
  if (key.vec_bytes != 4 && key.vec_bytes != 8 && key.vec_bytes != 16 && !is_pair)
    return "vec_bytes must be 4, 8 or 16, or 2 with states in fp8";
  if (key.warps < 1 || key.warps > 16) return "warps must be from 1 to 16";
  if (key.warp_v < 1 || key.value_dim % key.warp_v != 0) return "warp_v must divide value_dim";
  if (rows_are_v && key.key_dim % (key.k_lanes * vec) != 0)
    return "k_lanes * vec_bytes must divide a row of key_dim";
  if (rows_are_v && is_pair && key.key_dim % (key.k_lanes * 4) == 0)
    return "vec_bytes = 2 is for rows of key_dim that k_lanes * 4 bytes do not divide";
  if (key.held_v < 1 || key.warp_v % key.held_v != 0) return "held_v must divide warp_v";
  if (rows_are_v && key.held_v % v_lanes != 0) return "held_v must be a multiple of 32 / k_lanes";
  if (!rows_are_v && key.key_dim % key.k_lanes != 0) return "k_lanes must divide key_dim";
  if (!rows_are_v && key.held_v % (v_lanes * vec) != 0)
    return "held_v must be a multiple of a row of (32 / k_lanes) * vec_bytes";
  // Compilers spill registers for these.
  if (!rows_are_v && key.k_lanes == 4 && key.vec_bytes == 4)
    return "k_lanes = 4 needs vec_bytes = 8 or 16 with state_layout = kv";
  if (!rows_are_v && is_fp8(key.states.dtype) && data_elements(key) > 176)
    return "a thread's part of the state, k and q passes 176 elements, in fp8 with state_layout = "
           "kv";
  if (data_registers(key) > 128)
    return "a thread's part of the state, k and q passes 128 registers";
  if (const char* reason = why_invalid_conv(key)) return reason;
  return why_invalid_blocks(key);
}

constexpr bool valid(const GdnDecodeKey& key) { return why_invalid(key) == nullptr; }

// In the order in which the kernel reads them: the first to be read is the first to have come from
// memory.  0.03 to 0.05 us of a small batch on an H200.
struct GdnDecodeParams {
  int requests;
  int heads;
  StateParams states;
  InputRows<RequestStrides> q, k, v;
  GateParams<RequestStrides> gates;
  OutputRows<RequestStrides> o;
  float scale;
  float lower_bound;
  NormParams<RequestStrides> norm;
  ConvInputs conv;
  int k_first, v_first;  // of the convolution's channels, q's are 0 and on
};

}  // namespace cubinery
