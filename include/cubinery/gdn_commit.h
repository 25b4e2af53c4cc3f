// The Gated DeltaNet commit operator: advances each request's state over its accepted tokens, in
// all layers at once.  cubinery/gdn.h has the formulas, their sources, and when to launch it.
//
// Speculative decoding verifies draft tokens, samples, and keeps those that are accepted.
//
//   1. Verify with store = false reads each layer's states and writes none.  The engine keeps k, v,
//      g and beta of the layer.
//   2. The sampler writes the accepted count of each request, on the device.
//   3. Commit reads these counts and tensors and writes the state after the accepted tokens: one
//      launch for all layers.
//
// Tokens are a chain.  Of a tree, copy the rows of the accepted path one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "cubinery/kernel.h"
#include "cubinery/operator.h"
#include "cubinery/status.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

class Commit;

// A commit: what is fixed when a model is loaded.  Fields as in VerifyProblem.
struct CommitProblem {
  using Operator = Commit;

  Heads heads{};
  int key_dim = 128;    // 16 to 256, a multiple of 16
  int value_dim = 128;  // likewise

  DType dtype = DType::kBF16;  // k, v: bf16 or f16

  Inputs inputs{};
  States states{};  // has_initial and store stay true

  int draft_tokens = 4;  // draft tokens of a request and the token before them: 1 to 16
  bool varlen = false;   // packed requests, their bounds in cu_seqlens
  DType cu_seqlens_dtype = DType::kI32;  // i32 or i64 (varlen)
  DType accepted_dtype = DType::kI32;    // i32 or i64
  // The same bits for a request whatever the batch.
  bool batch_invariant = false;

  // OK, or kInvalidArgument naming the field, its value and what is accepted.
  Status check() const;
  // What every problem has: cubinery/operator.h says what they do.
  Result<std::vector<KernelSpec>> kernels(std::string_view arch,
                                          const std::vector<std::string>& paths = {}) const {
    return internal::ProblemMethods<CommitProblem>::kernels(*this, arch, paths);
  }
  std::string to_json() const { return internal::ProblemMethods<CommitProblem>::to_json(*this); }
  static Result<CommitProblem> from_json(std::string_view json) {
    return internal::ProblemMethods<CommitProblem>::from_json(json);
  }
};

// The tensors of one layer.  Device memory.  Dense: B requests of T tokens.  Packed (varlen):
// tensors of tokens have one dimension of `total` tokens in place of B and T, or B = 1 and T =
// total.  They may have room for more requests and tokens than a launch has.
struct CommitLayer {
  Tensor k{};          // [B, T, k_heads, key_dim]; unit innermost stride
  Tensor v{};          // [B, T, v_heads, value_dim]; unit innermost stride
  Tensor g{};          // [B, T, heads]: g, alpha or a, by gate_mode, with Decay::kChannel a row of
                       // key_dim each, unit innermost stride; absent with GateMode::kNone
  Tensor beta{};       // [B, T, heads]: beta or its logit, by beta_mode; absent with BetaMode::kOne
  Tensor A_log{};      // [heads]; GateMode::kComputed and kLowerBound only; may be absent with
                       // the latter: zeros
  Tensor dt_bias{};    // likewise; with Decay::kChannel [heads, key_dim], also [heads * key_dim],
                       // and may be absent then: zeros
  Tensor state{};      // [N or slots, heads, rows, columns]; "States" in cubinery/gdn.h
  Tensor state_out{};  // likewise, where new states go; absent: in place
};

// One commit.  Either `layer` or `layers` is given.
struct CommitArgs {
  CommitLayer layer{};  // a model of one layer needs no table
  // [layers, 32], i64, without gaps: what Commit::table() made, on the device.  Layers x requests:
  // up to 2^31 - 1.
  Tensor layers{};

  // [N]: so many tokens of each request are accepted, from its first on; with 0 its state stays
  // what it was.  A count below 0 or above the request's tokens is an error only the device can
  // see: the request's states are not touched.  Absent: every token is accepted.
  Tensor accepted{};
  // [N + 1], varlen only: request n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.  Values that
  // decrease, or leave 0 to total, touch no state, and a request of more than draft_tokens not its
  // own.
  Tensor cu_seqlens{};
  // [N], StateLocation::kPool: the slots of the requests, the same in every layer.
  // No two requests may write one slot.  Padding, and an index that is no slot, touch no state.
  Tensor state_indices{};
  // [N]: the slots to write.  Absent: those that are read.  Padding here drops
  // the new state, or sends it to scratch_slot.
  Tensor state_out_indices{};
  // StateLocation::kPool: the index that means that a request is padding; a negative one: every
  // negative index does.  Absent: none does.  "Padding" in cubinery/gdn.h says what becomes of it.
  std::optional<std::int64_t> pad_slot_id{};
  std::optional<std::int64_t> scratch_slot{};  // its new state goes to this slot
  std::optional<float> lower_bound{};          // of g, -5 to below 0; GateMode::kLowerBound only
  // PDL: the launch may overlap the kernel before it on the stream (sm_90 and newer).
  bool enable_pdl = false;
};

// The size of one launch.
struct CommitSize {
  std::int64_t layers = 1;
  std::int64_t requests = 0;
};

// A commit operator.
class Commit : public OneKernelOperator<CommitProblem, CommitSize> {
 public:
  using OneKernelOperator::OneKernelOperator;

  // Pointers, strides and room of each layer's tensors, 32 numbers for each, to be copied to the
  // device once and used until a tensor moves.  kInvalidArgument: no layers, or names the layer and
  // the tensor, what it is and what is accepted.
  Result<std::vector<std::int64_t>> table(const std::vector<CommitLayer>& layers) const;

  // Enqueues one commit of all layers on `stream`.  Checks every argument; does not allocate, lock
  // or synchronise, and may be captured in a CUDA graph, whose replays read the table, counts,
  // indices and bounds anew.  N is cu_seqlens' (varlen), or that of accepted, of state_indices, or
  // of the layer's tensors, the first of these that is there; N = 0 does nothing.  The room that a
  // table's layers have is checked on the device: requests and tokens beyond it touch no state.
  //
  // kInvalidArgument: names the tensor, what it is and what is accepted.  kUnsupported:
  // enable_pdl on a device before sm_90.  kDriver: CUDA refused the launch.
  Status launch(Stream stream, const CommitArgs& args) const;
};

}  // namespace cubinery::gdn

// The library has it.
extern template struct cubinery::internal::ProblemMethods<cubinery::gdn::CommitProblem>;
