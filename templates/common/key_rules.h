// Rules that several keys share.  Compiled by the host and by NVRTC.
#pragma once

#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"

namespace cubinery {

constexpr bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

constexpr bool is_head_dim(int x) { return x >= 16 && x <= 256 && x % 16 == 0; }

// Elements between rows of a matrix in shared memory: 16 bytes more than the row, which is an odd
// number of 16-byte units.  Eight rows of a column then lie in different banks.  Requires: dim is a
// multiple of 16.
constexpr int padded_row(int dim, DType dtype) { return dim + 16 / size_of(dtype); }

namespace gdn {

// The rule that a part of a key breaks, or nullptr.
constexpr const char* why_invalid(const Inputs& inputs) {
  if (!is_float(inputs.gate_dtype)) return "gate_dtype must be f32, bf16 or f16";
  if (!is_float(inputs.beta_dtype)) return "beta_dtype must be f32, bf16 or f16";
  if (!is_float(inputs.a_log_dtype)) return "a_log_dtype must be f32, bf16 or f16";
  if (!is_float(inputs.dt_bias_dtype)) return "dt_bias_dtype must be f32, bf16 or f16";
  return nullptr;
}

constexpr bool is_state_dtype(DType dtype) { return is_float(dtype) || is_fp8(dtype); }

constexpr const char* why_invalid(const States& states) {
  if (!is_state_dtype(states.dtype)) return "state_dtype must be f32, bf16, f16, f8e4m3 or f8e5m2";
  if (!is_integer(states.index_dtype)) return "index_dtype must be i32 or i64";
  return nullptr;
}

// The same for kernels that keep no states in fp8: all but decode's.
constexpr const char* why_invalid_without_fp8(const States& states) {
  if (!is_float(states.dtype)) return "state_dtype must be f32, bf16 or f16";
  return why_invalid(states);
}

}  // namespace gdn

// The rule that the inputs of a key break, whose kernel may be one of Gated DeltaNet alone.
template <class Key>
requires requires(const Key& key) { gdn::why_invalid(key.inputs); }
constexpr const char* why_inputs_invalid(const Key& key) {
  if constexpr (!requires { Key::kTakesChannelDecays; }) {
    if (key.inputs.decay != gdn::Decay::kHead) return "decay must be head";
    if (key.inputs.gate_mode == gdn::GateMode::kLowerBound)
      return "gate_mode must be none, log, alpha or computed";
  }
  return gdn::why_invalid(key.inputs);
}
}  // namespace cubinery
