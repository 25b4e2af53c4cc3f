// The causal convolution before a Gated DeltaNet layer, with what lies between the two: split,
// norms, gates.  As causal-conv1d (github.com/Dao-AILab/causal-conv1d) and Mamba (Gu, Dao 2023,
// arXiv:2312.00752) have it.
//
// Per sequence and channel, with the inputs x of the tokens, those before the first one from the
// state (zeros without one):
//
//   y[t] = act(bias + sum over i < width of weight[i] x[t - width + 1 + i])     act: none or silu
//
// In the same pass (split_qkv) the channels become q, k and v, each in a tensor of its own:
// channels 0 to q_heads key_dim - 1 are q's heads one after the other, then k's, then v's.  Further
//
//   use_qk_l2norm           q <- q / sqrt(sum q^2 + 1e-6) of each head, k likewise
//   ConvArgs::scale         q <- scale q, after the norm
//   gate_mode computed      g = -exp(A_log) softplus(a + dt_bias), softplus(x) = x for x > 20
//   gate_mode lower_bound   g = lower_bound sigmoid(exp(A_log) (a + dt_bias))
//   beta_mode logit         beta = sigmoid(b); doubled_logit: twice that
//
// which a prefill, decode or verification then takes with GateMode::kLog and BetaMode::kGiven.
// With Decay::kChannel g is a row of key_dim numbers, and -128 stands for what is less: e^g is 0
// there.  Arithmetic is fp32; outputs are rounded once, when they are stored.
//
// A prefill has sequences of any length, a decoding step one token of each, a verification up to
// 16.  It is one operator: they differ in how many tokens a launch has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/dtype.h"
#include "cubinery/gdn_conv_types.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "cubinery/gdn_verify_types.h"
#include "cubinery/kernel.h"
#include "cubinery/operator.h"
#include "cubinery/status.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

class Conv;

// A convolution: what is fixed when a model is loaded.
struct ConvProblem {
  using Operator = Conv;

  // With split_qkv, of q, k and v; else without meaning.
  Heads heads{};
  int key_dim = 128;    // 8 to 256, a multiple of 8
  int value_dim = 128;  // likewise

  DType dtype = DType::kBF16;         // x and what becomes of it: f32, bf16 or f16
  DType weight_dtype = DType::kBF16;  // weight and bias: likewise
  int width = 4;                      // taps: 2 to 4
  Activation activation = Activation::kSilu;
  bool has_bias = false;
  bool split_qkv = false;  // q, k and v instead of y

  // With split_qkv.  gate_mode: none, or computed or lower_bound (then g is written); beta_mode:
  // one, or logit or doubled_logit (then beta is).
  Inputs inputs{.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne};
  ConvStates states{};

  bool varlen = false;                   // packed sequences, their bounds in cu_seqlens
  DType cu_seqlens_dtype = DType::kI32;  // cu_seqlens, checkpoint_cu_starts: i32 or i64 (varlen)
  // With states.store.  kEvery: the window after each of up to 16 tokens of a sequence is kept.
  StoredStates stored_states = StoredStates::kLast;
  // States kept besides the last.  Not with from_accepted or stored_states kEvery.
  Checkpoints checkpoints = Checkpoints::kNone;
  // Tokens from one to the next, 1 or more; a launch may have any multiple (used with checkpoints
  // kBefore and kAfter).
  int checkpoint_every = 64;
  // ConvArgs::accepted says from where in its state a request goes on, after a verification, or
  // with stored_states kEvery from which of its states.  Needs has_initial and store.
  bool from_accepted = false;
  DType accepted_dtype = DType::kI32;  // i32 or i64 (from_accepted)
  // States are circular buffers of any number of columns: ConvArgs::cache_seqlens says where a
  // sequence goes on.  Needs has_initial and store; not with from_accepted, stored_states kEvery,
  // checkpoints or whole_window.
  bool circular_state = false;
  // The same bits for a sequence whatever the batch.  So it is anyway: sums are taken in one order.
  bool batch_invariant = false;

  // OK, or kInvalidArgument naming the field, its value and what is accepted.
  Status check() const;
  // What every problem has: cubinery/operator.h says what they do.
  Result<std::vector<KernelSpec>> kernels(std::string_view arch,
                                          const std::vector<std::string>& paths = {}) const {
    return internal::ProblemMethods<ConvProblem>::kernels(*this, arch, paths);
  }
  std::string to_json() const { return internal::ProblemMethods<ConvProblem>::to_json(*this); }
  static Result<ConvProblem> from_json(std::string_view json) {
    return internal::ProblemMethods<ConvProblem>::from_json(json);
  }
};

// The tensors of one convolution.  Device memory; absent where the problem does not use them.
//
// Dense: B sequences of T tokens.  Packed (varlen): N sequences, tensors of tokens have one
// dimension of `total` tokens in place of B and T, or B = 1 and T = total.  Each of these is up to
// 2^31 - 1. Strides are free: tensors are read and written as they lie.  Fast is what lies in whole
// vectors: channels, or a head's elements, next to each other, rows at multiples of 16 bytes,
// states as state_layout says.  x may be [B, channels, T] in memory, which its strides say. Outputs
// may not overlap x.
struct ConvArgs {
  Tensor x{};       // [B, T, channels]; up to 2^20 channels
  Tensor weight{};  // [channels, width]
  Tensor bias{};    // [channels]; has_bias only
  Tensor y{};       // [B, T, channels]; written; without split_qkv
  Tensor q{};       // [B, T, q_heads, key_dim]; written; split_qkv only, like k and v
  Tensor k{};       // [B, T, k_heads, key_dim]
  Tensor v{};       // [B, T, v_heads, value_dim]

  // heads = max(q_heads, k_heads, v_heads).  g and beta are those of every token of the tensors,
  // whatever its sequence.  With Decay::kChannel a, dt_bias and g have one dimension more, of
  // key_dim, unit innermost stride.  Rows of those at multiples of four elements are fast.
  Tensor a{};      // [B, T, heads]; gate_mode not none only, like A_log, dt_bias and g
  Tensor b{};      // [B, T, heads]; beta_mode not one only, like beta
  Tensor A_log{};  // [heads]; absent with GateMode::kLowerBound: zeros
  // [heads], with Decay::kChannel [heads, key_dim], also [heads * key_dim]; then absent: zeros
  Tensor dt_bias{};
  Tensor g{};     // [B, T, heads]; f32; written: the decay's logarithm
  Tensor beta{};  // [B, T, heads]; f32; written

  // [N + 1], varlen only: sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.  Tokens
  // before cu_seqlens[0] and from cu_seqlens[N] on are left alone.  Values that decrease, or leave
  // 0 to total, are an error only the device can see: every y, q, k and v is then NaN and no state
  // is touched.
  Tensor cu_seqlens{};
  // [N], bool: whether sequence n starts from its state; else from zeros, whatever its state holds.
  // Absent: all do.  With ConvStates::has_initial.
  Tensor has_initial_state{};
  // [N], from_accepted only: the accepted counts of the launch before, 1 to columns - width + 2, or
  // with stored_states kEvery to S; 0 is taken as 1.  Another count touches no state and fills the
  // request's outputs with NaN.
  Tensor accepted{};
  // [N], i32, circular_state only: the inputs that a sequence has had.  A negative count touches no
  // state and fills the sequence's outputs with NaN.
  Tensor cache_seqlens{};

  // state and state_out: [N or slots, channels, columns].  columns is width - 1, or width with
  // ConvStates::whole_window: the sequence's last inputs, the newest in the last column.
  //
  // stored_states kEvery: there is a state for each step, as VerifyArgs says:
  //   from_accepted  dense states.in is [N, S, channels, columns]; in a pool states.indices is
  //                  [N, S].  S is at least 1, and request n starts from step accepted[n] - 1.
  //   always         dense states.out is [N, steps, channels, columns]; in a pool
  //                  states.out_indices is [N, steps].  Step t, from 0, has the state after token
  //                  t; steps that a sequence does not have are left alone.  `steps` is at least T,
  //                  with varlen 1: a sequence of more tokens than steps, or than 16, touches no
  //                  state and its outputs are NaN.  In place, without states.out and
  //                  states.out_indices, needs from_accepted.
  // What gdn_verify.h says of slots and padding of steps is so here.
  //
  // from_accepted otherwise (vLLM's conv_state with num_accepted_tokens): one state holds the
  // inputs of several steps.
  //   columns            width - 1 or more
  //   tokens             up to columns - width + 2 of a request; one of more touches no state, its
  //                      outputs are NaN
  //   read               with accepted = n: columns n - 1 to n + width - 3
  //   written            columns 0 to width - 3 + tokens: all inputs from there on but the oldest,
  //   so
  //                      that column n - 1 is again the first to read when n tokens are accepted
  //   left alone         further columns, and the state of a request without tokens
  //
  // circular_state (causal-conv1d's conv_state with cache_seqlens): input i of a sequence, from its
  // first on, is in column i mod columns.
  //   columns            width - 1 or more
  //   read               with cache_seqlens = c: inputs c - width + 1 to c - 1, also where that is
  //                      below 0
  //   written            inputs c to c + tokens - 1, or the last `columns` of them
  //   left alone         the other columns, so that there are no state_out and state_out_indices
  //
  // All else as cubinery/gdn.h says: indices, slots, padding.  A sequence of no tokens has its
  // initial state as new one; with stored_states kEvery it has none.
  Tensor state{};
  Tensor state_out{};          // absent: in place
  Tensor state_indices{};      // [N]: the slots to read; StateLocation::kPool only
  Tensor state_out_indices{};  // [N]: the slots to write; absent: those that are read
  // StateLocation::kPool: the index that means that a sequence is padding; a negative one: every
  // negative index does.  Absent: none does.  "Padding" in cubinery/gdn.h says what becomes of it.
  std::optional<std::int64_t> pad_slot_id{};
  bool zero_padding = false;                   // its outputs are set to zero, not left alone
  std::optional<std::int64_t> scratch_slot{};  // it is computed, on this slot

  // [rows, channels, columns], in the states' dtype: the states kept with ConvProblem::checkpoints,
  // those of one sequence in order and without gaps, as PrefillArgs::checkpoints says: of L
  // tokens ceil(L / N) (kBefore, the first the initial state) or floor(L / N) (kAfter), N as
  // checkpoint_every below.  Dense: the sequences follow each other.  Padding sequences that
  // are skipped or zeroed keep none.
  Tensor checkpoints{};
  // [N + 1], varlen with checkpoints kBefore or kAfter: sequence n's rows are
  // checkpoint_cu_starts[n] to checkpoint_cu_starts[n + 1] - 1.  A sequence that has more, or whose
  // range leaves the tensor, touches no state and no checkpoint, and its outputs are filled with
  // NaN.
  Tensor checkpoint_cu_starts{};
  // Checkpoints::kAt, [N, K] each: as in PrefillArgs, but any offset up to the sequence's length
  // may be.
  Tensor checkpoint_offsets{};
  Tensor checkpoint_slots{};
  // Tokens from one checkpoint to the next: a multiple of the problem's.  Absent: the problem's.
  // Without meaning with Checkpoints::kAt.
  std::optional<std::int64_t> checkpoint_every{};

  float scale = 1;                     // split_qkv only: q is multiplied by it
  std::optional<float> lower_bound{};  // of g; finite, below 0; GateMode::kLowerBound only
  // varlen: tokens of the longest sequence, as far as the host knows; 0: it does not.  A hint that
  // changes no bit: sequences of up to 16 tokens are fastest each by itself, and so are those that
  // are no fewer than all tokens, which the host sees.
  std::int64_t max_seqlen = 0;
  // PDL: the launch may overlap the kernel before it on the stream (sm_90 and newer).
  bool enable_pdl = false;
};

// The size of one launch.
struct ConvSize {
  std::int64_t sequences = 0;  // B, or N
  std::int64_t tokens = 0;     // of all sequences: B T, or total
  std::int64_t channels = 0;   // with split_qkv the problem says
};

// A convolution; kernel() is that of tensors that lie in whole vectors.
class Conv : public OneKernelOperator<ConvProblem, ConvSize> {
 public:
  using OneKernelOperator::OneKernelOperator;

  // Enqueues one convolution on `stream`.  Checks every argument; does not allocate, lock or
  // synchronise, and may be captured in a CUDA graph, whose replays read bounds, flags, counts and
  // indices anew.  N = 0 does nothing.
  //
  // kInvalidArgument: names the tensor, what it is and what is accepted.  kUnsupported:
  // enable_pdl on a device before sm_90.  kDriver: CUDA refused the launch.
  Status launch(Stream stream, const ConvArgs& args) const;
};

}  // namespace cubinery::gdn

// The library has it.
extern template struct cubinery::internal::ProblemMethods<cubinery::gdn::ConvProblem>;
