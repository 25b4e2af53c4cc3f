// The Gated DeltaNet prefill operator: many tokens of each sequence.  cubinery/gdn.h has the
// formulas, their sources, and when to launch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "cubinery/kernel.h"
#include "cubinery/operator.h"
#include "cubinery/status.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

class Prefill;

// Whether a prefill cuts long sequences into segments that run side by side (context parallelism on
// one GPU).  Not in gdn_types.h: no kernel knows it, and what kernels include decides which
// measured results are theirs.
enum class Segments : int {
  kAuto,    // where that is expected to be faster
  kNever,   // every sequence is whole
  kAlways,  // by kernels that cut; sequences too short for that stay whole
};

// A prefill: what is fixed when a model is loaded.  Never here: token counts, the number of
// sequences, strides, slots.
struct PrefillProblem {
  using Operator = Prefill;

  Heads heads{};
  int key_dim = 128;    // 16 to 256, a multiple of 16
  int value_dim = 128;  // likewise

  DType dtype = DType::kBF16;         // q, k, v: f32, bf16 or f16
  DType output_dtype = DType::kBF16;  // o: likewise

  Inputs inputs{};
  States states{};

  TokenLayout token_layout = TokenLayout::kBTHD;
  bool varlen = false;                   // packed sequences, their bounds in cu_seqlens
  DType cu_seqlens_dtype = DType::kI32;  // cu_seqlens, checkpoint_cu_starts: i32 or i64 (varlen)
  Checkpoints checkpoints = Checkpoints::kNone;
  // Tokens from one to the next, or what offsets are multiples of (kAt): a multiple of 16; a launch
  // may have any multiple of it.  Kernels whose chunks do not divide it cannot serve (used with
  // checkpoints).
  int checkpoint_every = 64;

  // With batch_invariant kAuto is kNever; kAlways cuts by a sequence's own length.
  Segments segments = Segments::kAuto;

  // Sequences may be spread over several GPUs ("Context parallelism" below).  Needs f32 states with
  // has_initial and store; not with Segments::kNever.
  bool context_parallel = false;
  int segment_tokens = 8192;  // tokens of a segment, a multiple of 64 (used with context_parallel)

  // The same bits for a sequence whatever the batch: one path, that of the architecture (Hopper's
  // on sm_90a, where it takes the problem), and one value of the fields that change bits for all
  // sizes. Off: the fastest for each size; results may differ in their last bits between sizes,
  // never from run to run.
  bool batch_invariant = false;

  // OK, or kInvalidArgument naming the field, its value and what is accepted.
  Status check() const;
  // What every problem has: cubinery/operator.h says what they do.
  Result<std::vector<KernelSpec>> kernels(std::string_view arch,
                                          const std::vector<std::string>& paths = {}) const {
    return internal::ProblemMethods<PrefillProblem>::kernels(*this, arch, paths);
  }
  std::string to_json() const { return internal::ProblemMethods<PrefillProblem>::to_json(*this); }
  static Result<PrefillProblem> from_json(std::string_view json) {
    return internal::ProblemMethods<PrefillProblem>::from_json(json);
  }
};

// The tensors of one prefill.  Device memory; absent where the problem does not use them.
//
// Dense: B sequences of T tokens, shapes as below.  Packed (varlen): N sequences, tensors of tokens
// have one dimension of `total` tokens in place of B and T, or B = 1 and T = total.  With
// TokenLayout::kBHTD the heads come before the tokens everywhere.  Strides are free where nothing
// else is said: tensors are read and written as they lie; rows whose addresses are all multiples of
// 16 bytes are read fastest.
//
// Limits, by what a grid holds.  With chunks of C tokens (16, 32 or 64) and b = (2^30 - 1) / heads,
// all rounded down:
//
//   sequences   b / (value_dim / 16); of kernels that cut sequences
//               b / (value_dim / 16) / (4 + key_dim / value_dim)
//   tokens      min(2^31 - 1, b C), of all sequences
//
// With context_parallel, half as many sequences as of kernels that cut, and so many segments.
struct PrefillArgs {
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

  // [N + 1], varlen only: sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.  Tokens
  // before cu_seqlens[0] and from cu_seqlens[N] on are left alone.  Values that decrease, or leave
  // 0 to total, are an error only the device can see: every o is then NaN and no state is touched.
  Tensor cu_seqlens{};

  // [N], bool: whether sequence n starts from its state; else from zero, whatever its slot or row
  // holds.  Absent: all do.  With States::has_initial.
  Tensor has_initial_state{};

  // A sequence of no tokens has its initial state as new state.
  Tensor state{};              // [N or slots, heads, rows, columns]; "States" in cubinery/gdn.h
  Tensor state_out{};          // likewise, where new states go; absent: in place
  Tensor state_indices{};      // [N]: the slots to read; StateLocation::kPool only
  Tensor state_out_indices{};  // [N]: the slots to write; absent: those that are read
  // StateLocation::kPool: the index that means that a sequence is padding; a negative one: every
  // negative index does.  Absent: none does.  "Padding" in cubinery/gdn.h says what becomes of it.
  std::optional<std::int64_t> pad_slot_id{};
  bool zero_padding = false;                   // its outputs are set to zero, not left alone
  std::optional<std::int64_t> scratch_slot{};  // it is computed, on this slot

  // [rows, heads, ...] as `state`, in its dtype: the states kept with
  // PrefillProblem::checkpoints, those of one sequence in order and without gaps.  A sequence
  // of L tokens has ceil(L / N) of them (kBefore) or floor(L / N) (kAfter), N as checkpoint_every
  // below.  Dense: the sequences follow each other.  Padding sequences that are skipped or
  // zeroed keep none.
  Tensor checkpoints{};
  // [N + 1], varlen with checkpoints kBefore or kAfter: sequence n's rows are
  // checkpoint_cu_starts[n] to checkpoint_cu_starts[n + 1] - 1.  A sequence that has more, or whose
  // range leaves the tensor, touches no state and no checkpoint, and its output is filled with NaN.
  Tensor checkpoint_cu_starts{};

  // Checkpoints::kAt: each sequence has up to K checkpoints, and K is the launch's, 1 or more. Each
  // goes to the row of `checkpoints` that the launch names: [slots, heads, ...], any array of
  // states, `state` or `state_out` too.  Rows may not be slots that the launch reads or writes
  // besides, nor named twice; nobody checks that.  Without all three the launch keeps none.
  //   checkpoint_offsets  [N, K], i32: tokens of the sequence that the state has taken in, from its
  //                       first of this launch on: a multiple of checkpoint_every, at most the
  //                       sequence's length.  0 or less: there is none.  Those of a sequence
  //                       ascend.
  //   checkpoint_slots    [N, K], of states.index_dtype: the row.  Negative, or pad_slot_id: there
  //                       is none.
  // A sequence with another offset, or a row behind the last, touches no state and no checkpoint,
  // and its output is filled with NaN.
  Tensor checkpoint_offsets{};
  Tensor checkpoint_slots{};

  // Tokens from one checkpoint to the next: a multiple of the problem's.  Absent: the problem's.
  std::optional<std::int64_t> checkpoint_every{};

  std::optional<float> scale{};        // default key_dim^-1/2
  std::optional<float> lower_bound{};  // of g, -5 to below 0; GateMode::kLowerBound only
  // varlen: tokens of the longest sequence, as far as the host knows; 0: it does not.  A hint that
  // the choice of kernels and the length of segments depend on; with batch_invariant results do
  // not.
  std::int64_t max_seqlen = 0;
  // PDL: the first kernel may overlap the kernel before it on the stream (sm_90 and newer).
  bool enable_pdl = false;

  // PrefillProblem::context_parallel only.
  // 0: all steps, one behind the other; 1, 2, 3: start, carry, finish.
  std::int64_t step = 0;
  // The first sequence goes on from the GPU in front: its initial state is read by step 2, and not
  // by step 1.
  bool continues = false;
};

// Context parallelism.  A rank (one GPU of several) has neighbouring tokens of the packed batch,
// and launches what it has of each sequence: its first sequence may go on from the rank in front,
// its last one may go on on the rank behind.  A launch has three steps, with the same arguments and
// workspace:
//
//   1 start    most of the work; needs no state of another rank
//   2 carry    reads the initial state of the first sequence, where that goes on from the rank in
//              front: what that rank's step 2 has written as its last sequence's new state.  Writes
//              the new states
//   3 finish   the outputs that depend on states of other ranks
//
// So in front of step 2 the caller receives a state into the first sequence's row or slot, and
// behind it sends on that of the last sequence.  The result is exact, whatever the gates.  Its bits
// do not depend on the number of ranks, as long as ranks begin at multiples of segment_tokens of
// each sequence.  Checkpoints count from a sequence's first token on the rank.
// docs/context_parallel.md says what it costs.

// The size of one launch.
struct PrefillSize {
  std::int64_t tokens = 0;     // of all sequences: B T, or total
  std::int64_t sequences = 0;  // B, or N
  // Of the longest sequence; 0: not known, taken as tokens / sequences.
  std::int64_t max_seqlen = 0;
};

// Device memory for one launch, 256-byte aligned.  Nothing is kept in it between launches; launches
// that may run at the same time need one each.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// A prefill operator.
class Prefill : public Operator<PrefillProblem, PrefillSize> {
 public:
  using Operator::Operator;

  // Bytes of workspace that every launch of at most this size needs, whatever its max_seqlen.  At
  // sizes that launches refuse because no grid holds them this may be the largest number.
  std::size_t workspace_bytes(const PrefillSize& size) const;

  // Enqueues one prefill on `stream`: one kernel on the path `hopper_fused`, two on others.  Checks
  // every argument; does not allocate, lock or synchronise, and may be captured in a CUDA graph.
  // N = 0 does nothing.
  //
  // kInvalidArgument: names the tensor, what it is and what is accepted.  kUnsupported:
  // enable_pdl on a device before sm_90.  kDriver: CUDA refused the launch.
  Status launch(Stream stream, const PrefillArgs& args, const Workspace& workspace) const;
};

}  // namespace cubinery::gdn

// The library has it.
extern template struct cubinery::internal::ProblemMethods<cubinery::gdn::PrefillProblem>;
