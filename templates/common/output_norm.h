// The norm behind an operator's outputs: what keys and parameters have of it.  Compiled by the host
// and by NVRTC.
#pragma once

#include "common/key_rules.h"
#include "common/params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_decode_types.h"

namespace cubinery {

template <class Strides>
struct NormParams {
  InputRows<Strides> z;
  StridedVector weight;
  float eps;
};

// Of a kernel's key, or of an operator's problem.
template <class Key>
constexpr bool is_normed(const Key& key) {
  if constexpr (requires { key.output_norm; }) return key.output_norm != gdn::OutputNorm::kNone;
  return false;
}

// Value columns that a warp of a verification has, in passes of warp_v.  With a norm the warps of a
// block have all columns of a head.
template <class Key>
constexpr int warp_columns(const Key& key) {
  return is_normed(key) ? key.value_dim / key.warps : key.warp_v;
}
template <class Key>
constexpr int warp_passes(const Key& key) {
  return warp_columns(key) / key.warp_v;
}

// From one token's outputs to the next one's where they wait for a norm, in floats: tokens lie in
// banks of their own.
template <class Key>
constexpr int waiting_stride(const Key& key) {
  return key.value_dim + 4;
}

// The rule that a key of a verification breaks, or nullptr.  Requires: warp_v divides value_dim.
template <class Key>
constexpr const char* why_norm_invalid(const Key& key) {
  if (!is_float(key.norm_weight_dtype)) return "norm_weight_dtype must be f32, bf16 or f16";
  if (is_normed(key) && key.value_dim / key.warp_v % key.warps != 0)
    return "warps must divide value_dim / warp_v with output_norm: all columns of a head lie in "
           "one block";
  return nullptr;
}

}  // namespace cubinery
