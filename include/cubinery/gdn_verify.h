// The Gated DeltaNet verification operator: speculative verification of draft tokens.
// cubinery/gdn.h has the formulas, their sources, and when to launch it.
//
// One launch takes 1 to 16 tokens of each request through the steps of decode.  It keeps no state,
// the last one, or all intermediate states.  The accepted count of a request is known later:
//
//   kept                    after sampling
//   kEvery, from_accepted   the next launch reads the counts on the device and starts from the
//   state
//                           after the last accepted token.  No copy, no decision on the host:
//                           verify, sample, verify fits into one CUDA graph.
//   kEvery                  the caller copies the state that it goes on from.
//   store = false           a commit (gdn_commit.h) computes the accepted tokens again, in all
//                           layers at once.
//   kLast                   the state is right where all tokens are accepted.
//
// Draft tokens are a chain, or a tree: then each token follows the one that VerifyArgs::parents
// names, and all paths are verified at once.
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
#include "cubinery/gdn_verify_types.h"
#include "cubinery/kernel.h"
#include "cubinery/operator.h"
#include "cubinery/status.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

class Verify;

// A verification: what is fixed when a model is loaded.
struct VerifyProblem {
  using Operator = Verify;

  Heads heads{};
  int key_dim = 128;    // 16 to 256, a multiple of 16
  int value_dim = 128;  // likewise

  DType dtype = DType::kBF16;         // q, k, v: f32, bf16 or f16
  DType output_dtype = DType::kBF16;  // o: likewise

  Inputs inputs{};
  States states{};

  int draft_tokens = 4;  // draft tokens of a request and the token before them: 1 to 16
  bool varlen = false;   // packed requests, their bounds in cu_seqlens
  DType cu_seqlens_dtype = DType::kI32;              // i32 or i64 (varlen)
  StoredStates stored_states = StoredStates::kLast;  // with states.store
  bool from_accepted = false;  // VerifyArgs::accepted chooses the state; needs states.has_initial
  DType accepted_dtype = DType::kI32;  // i32 or i64 (from_accepted)
  // Tokens are trees (VerifyArgs::parents).  Not with stored_states kLast, because no token of a
  // tree is the last, nor with round_each_token.  Only the path `wy` takes trees, which has no f32
  // dtype.
  bool tree = false;
  DType parents_dtype = DType::kI32;  // i32 or i64 (tree)
  // The state is rounded to states.dtype after each token, as by decode steps that store it.  Then
  // T tokens have the bits of T decode steps of a configuration with the same k_lanes and
  // vec_bytes; with f32 states they always have.  Off: it is rounded only where it is stored.
  bool round_each_token = false;
  // o is normalised and gated before it is stored, as DecodeProblem's is: a token's has the bits of
  // a decode step wherever its o without a norm has them.
  OutputNorm output_norm = OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;  // of norm_weight: f32, bf16 or f16 (output_norm)
  // The same bits for a request whatever the batch: one path and one value of the fields that
  // change bits for all sizes.  Off: the fastest for each size; results may differ in their last
  // bits between sizes, never from run to run.
  bool batch_invariant = false;

  // OK, or kInvalidArgument naming the field, its value and what is accepted.
  Status check() const;
  // What every problem has: cubinery/operator.h says what they do.
  Result<std::vector<KernelSpec>> kernels(std::string_view arch,
                                          const std::vector<std::string>& paths = {}) const {
    return internal::ProblemMethods<VerifyProblem>::kernels(*this, arch, paths);
  }
  std::string to_json() const { return internal::ProblemMethods<VerifyProblem>::to_json(*this); }
  static Result<VerifyProblem> from_json(std::string_view json) {
    return internal::ProblemMethods<VerifyProblem>::from_json(json);
  }
};

// The tensors of one verification.  Device memory; absent where the problem does not use them.
//
// Dense: B requests of T tokens, shapes as below.  Packed (varlen): N requests, tensors of tokens
// have one dimension of `total` tokens in place of B and T, or B = 1 and T = total.  Strides are
// free where nothing else is said: tensors are read and written as they lie.
struct VerifyArgs {
  Tensor q{};        // [B, T, q_heads, key_dim]; unit innermost stride
  Tensor k{};        // [B, T, k_heads, key_dim]; unit innermost stride
  Tensor v{};        // [B, T, v_heads, value_dim]; unit innermost stride
  Tensor g{};        // [B, T, heads]: g, alpha or a, by gate_mode, with Decay::kChannel a row of
                     // key_dim each, unit innermost stride; absent with GateMode::kNone
  Tensor beta{};     // [B, T, heads]: beta or its logit, by beta_mode; absent with BetaMode::kOne
  Tensor A_log{};    // [heads]; GateMode::kComputed and kLowerBound only; may be absent with
                     // the latter: zeros
  Tensor dt_bias{};  // likewise; with Decay::kChannel [heads, key_dim], also [heads * key_dim],
                     // and may be absent then: zeros
  Tensor o{};        // [B, T, heads, value_dim]; unit innermost stride; written

  // [N + 1], varlen only: request n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.  Tokens
  // before cu_seqlens[0] and from cu_seqlens[N] on are left alone.  Values that decrease, or leave
  // 0 to total, are an error only the device can see: every o is then NaN and no state is touched.
  // So is a request of more than draft_tokens: its o is NaN and its states are not touched.
  Tensor cu_seqlens{};

  // [N], from_accepted only: request n starts from the state of step accepted[n] - 1, 1 to S, of
  // those that an earlier launch kept.  The first token of a verification comes from the model
  // itself and is always accepted: 0 is taken as 1.  A count outside of 0 to S touches no state and
  // fills the request's o with NaN.  The index of a padding request is found by its count, too: 0
  // or 1 will do.
  Tensor accepted{};

  // [B, T]; packed [total]; tree only: which token of its request each token follows, counted from
  // the request's first as 0; -1: none, it starts from the request's initial state.  A token's
  // output, and the state after it, are those of decoding its ancestors and then itself, as long as
  // all numbers of the request are finite.  parents[t] = t - 1 is a chain, with the same bits as
  // without a tree.  A parent outside of -1 to t - 1 is an error only the device can see: the
  // request's o is then NaN and its states are not touched.  Those of padding are looked at only
  // where it is computed, on the scratch slot.
  //
  // Step t is the state after token t, whatever its path.  So `accepted` of the launch that goes on
  // from token t is t + 1, not the number of tokens on its path.
  Tensor parents{};

  // As cubinery/gdn.h says, but where there is a state for each step:
  //   from_accepted  dense states.in is [N, S, heads, rows, columns]; in a pool states.indices is
  //                  [N, S].  S is at least 1.
  //   kEvery         dense states.out is [N, steps, heads, rows, columns]; in a pool
  //                  states.out_indices is [N, steps].  Step t, from 0, has the state after token
  //                  t; steps that a request does not have are left alone.  The last state goes to
  //                  its step's place and no other.  `steps` is at least T, or draft_tokens with
  //                  varlen. In place, without states.out and states.out_indices, needs
  //                  from_accepted: the steps are then written where S of them were read.
  //   kLast          in place with from_accepted: the state goes where the request's was read.
  // The slots of a request's steps differ from each other and from those of other requests; that it
  // starts from may be one of them.  A padding index of one step drops its state only
  // (scratch_slot: sends it there).
  //
  // kLast: a request of no tokens has its initial state as new state.  kEvery: it has none.
  Tensor state{};              // [N or slots, heads, rows, columns]; "States" in cubinery/gdn.h
  Tensor state_out{};          // likewise, where new states go; absent: in place
  Tensor state_indices{};      // [N]: the slots to read; StateLocation::kPool only
  Tensor state_out_indices{};  // [N]: the slots to write; absent: those that are read
  // StateLocation::kPool: the index that means that a request is padding; a negative one: every
  // negative index does.  Absent: none does.  "Padding" in cubinery/gdn.h says what becomes of it.
  std::optional<std::int64_t> pad_slot_id{};
  bool zero_padding = false;                   // its outputs are set to zero, not left alone
  std::optional<std::int64_t> scratch_slot{};  // it is computed, on this slot

  Tensor z{};            // like o, of dtype, but read; VerifyProblem::output_norm only
  Tensor norm_weight{};  // [value_dim], of all heads; likewise

  std::optional<float> scale{};        // default key_dim^-1/2
  std::optional<float> norm_eps{};     // default 1e-6; finite, 0 or more; with output_norm only
  std::optional<float> lower_bound{};  // of g, -5 to below 0; GateMode::kLowerBound only
  // PDL: the launch may overlap the kernel before it on the stream (sm_90 and newer).
  bool enable_pdl = false;
};

// The size of one launch.
struct VerifySize {
  std::int64_t requests = 0;  // B, or N
  std::int64_t tokens = 0;    // of all requests: B T, or total
};

// A verification operator.
class Verify : public OneKernelOperator<VerifyProblem, VerifySize> {
 public:
  using OneKernelOperator::OneKernelOperator;

  // Enqueues one verification on `stream`.  Checks every argument; does not allocate, lock or
  // synchronise, and may be captured in a CUDA graph, whose replays read indices, counts and bounds
  // anew.  N = 0 does nothing.
  //
  // kInvalidArgument: names the tensor, what it is and what is accepted.  kUnsupported:
  // enable_pdl on a device before sm_90.  kDriver: CUDA refused the launch.
  Status launch(Stream stream, const VerifyArgs& args) const;
};

}  // namespace cubinery::gdn

// The library has it.
extern template struct cubinery::internal::ProblemMethods<cubinery::gdn::VerifyProblem>;
