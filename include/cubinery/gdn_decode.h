// The Gated DeltaNet decode operator: one token of each request.  cubinery/gdn.h has the formulas,
// their sources, and when to launch it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/dtype.h"
#include "cubinery/gdn_decode_types.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "cubinery/kernel.h"
#include "cubinery/operator.h"
#include "cubinery/status.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

class Decode;

// One decode step (one token per request): what is fixed when a model is loaded.
struct DecodeProblem {
  using Operator = Decode;

  Heads heads{};
  int key_dim = 128;    // 16 to 256, a multiple of 16
  int value_dim = 128;  // likewise

  DType dtype = DType::kBF16;         // q, k, v: f32, bf16 or f16
  DType output_dtype = DType::kBF16;  // o: likewise

  Inputs inputs{};
  // Of decode alone, states may also be in fp8, half the bytes of bf16: f8e4m3 or f8e5m2, on sm_89
  // and newer.  Rounded to nearest, ties to even, when stored; what is larger than the largest
  // finite number (448, 57344), infinities too, becomes that, and NaN stays NaN.  There are no
  // scale factors, and every step rounds the state again: o is soon off by a tenth (f8e4m3) or a
  // fifth (f8e5m2) of its largest element, in heads that hardly decay by a third and a half;
  // docs/problems.md has the measurements.
  States states{};
  OutputNorm output_norm = OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;  // of norm_weight: f32, bf16 or f16 (output_norm)
  // The convolution before it, in the same launch: for small batches, where launches are what a
  // layer waits for.  The same bits as gdn::Conv without norms, then a decode.  Its states have the
  // slots, indices and flags of `states`.
  //
  // The blocks that share a head are one cluster, so there is a limit on heads:
  // lcm(heads / q_heads, heads / k_heads, heads / v_heads) is at most 8 on sm_90 and newer, and 1
  // before.  Beyond it prepare() is kUnsupported; gdn::Conv has no such limit.
  DecodeConv conv{};
  // The same bits for a request whatever the batch: one path and one value of the fields that
  // change bits for all sizes.  Off: the fastest for each size; results may differ in their last
  // bits between sizes, never from run to run.
  bool batch_invariant = false;

  // OK, or kInvalidArgument naming the field, its value and what is accepted.
  Status check() const;
  // What every problem has: cubinery/operator.h says what they do.
  Result<std::vector<KernelSpec>> kernels(std::string_view arch,
                                          const std::vector<std::string>& paths = {}) const {
    return internal::ProblemMethods<DecodeProblem>::kernels(*this, arch, paths);
  }
  std::string to_json() const { return internal::ProblemMethods<DecodeProblem>::to_json(*this); }
  static Result<DecodeProblem> from_json(std::string_view json) {
    return internal::ProblemMethods<DecodeProblem>::from_json(json);
  }
};

// The tensors of one decode step.  Device memory; absent where the problem does not use them.
// B requests.  Strides are free where nothing else is said: tensors are read and written as they
// lie.
struct DecodeArgs {
  // Absent with DecodeProblem::conv.
  Tensor q{};        // [B, q_heads, key_dim], also [B, 1, q_heads, key_dim]; unit innermost stride
  Tensor k{};        // [B, k_heads, key_dim], likewise
  Tensor v{};        // [B, v_heads, value_dim], likewise
  Tensor g{};        // [B, heads], also [B, 1, heads]: g, alpha or a, by gate_mode, with
                     // Decay::kChannel a row of key_dim each, unit innermost stride; absent with
                     // GateMode::kNone
  Tensor beta{};     // [B, heads], also [B, 1, heads]: beta or its logit, by beta_mode; absent with
                     // BetaMode::kOne
  Tensor A_log{};    // [heads]; GateMode::kComputed and kLowerBound only; may be absent with
                     // the latter: zeros
  Tensor dt_bias{};  // likewise; with Decay::kChannel [heads, key_dim], also [heads * key_dim],
                     // and may be absent then: zeros
  Tensor o{};        // [B, heads, value_dim], also [B, 1, ...]; unit innermost stride; written
  Tensor state{};    // [B or slots, heads, rows, columns]; "States" in cubinery/gdn.h
  Tensor state_out{};          // likewise, where new states go; absent: in place
  Tensor state_indices{};      // [B]: the slots to read; StateLocation::kPool only
  Tensor state_out_indices{};  // [B]: the slots to write; absent: those that are read
  // StateLocation::kPool: the index that means that a request is padding; a negative one: every
  // negative index does.  Absent: none does.  "Padding" in cubinery/gdn.h says what becomes of it.
  std::optional<std::int64_t> pad_slot_id{};
  bool zero_padding = false;                   // its outputs are set to zero, not left alone
  std::optional<std::int64_t> scratch_slot{};  // it is computed, on this slot
  Tensor z{};            // like o, of dtype, but read; DecodeProblem::output_norm only
  Tensor norm_weight{};  // [value_dim], of all heads; likewise
  // DecodeProblem::conv only: q, k and v are sums of the convolution, whose tensors are those of
  // gdn::ConvArgs.  Rows and states lie in vectors of four channels: channels (of conv_state: as
  // conv_state_layout says) next to each other, all else at multiples of four elements.  channels:
  // those of q's heads, then k's, then v's.
  Tensor x{};            // [B, channels], also [B, 1, channels]
  Tensor conv_weight{};  // [channels, width]
  Tensor conv_bias{};    // [channels]; has_bias only
  // [B or slots, channels, columns], columns as with gdn::ConvStates; written where `state` is.
  Tensor conv_state{};
  Tensor conv_state_out{};  // absent: in place

  std::optional<float> scale{};        // default key_dim^-1/2
  std::optional<float> norm_eps{};     // default 1e-6; finite, 0 or more; with output_norm only
  std::optional<float> lower_bound{};  // of g, -5 to below 0; GateMode::kLowerBound only
  // PDL: the launch may overlap the kernel before it on the stream (sm_90 and newer).
  bool enable_pdl = false;
};

// A decode operator.
class Decode : public OneKernelOperator<DecodeProblem, std::int64_t> {
 public:
  using OneKernelOperator::OneKernelOperator;

  // Enqueues one step on `stream`.  Checks every argument; does not allocate, lock or synchronise,
  // and may be captured in a CUDA graph.  B = 0 does nothing.
  //
  // kInvalidArgument: names the tensor, what it is and what is accepted.  kUnsupported:
  // enable_pdl on a device before sm_90.  kDriver: CUDA refused the launch.
  Status launch(Stream stream, const DecodeArgs& args) const;
};

}  // namespace cubinery::gdn

// The library has it.
extern template struct cubinery::internal::ProblemMethods<cubinery::gdn::DecodeProblem>;
