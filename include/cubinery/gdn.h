// Gated DeltaNet operators: what each computes, and which one an engine launches when.
//
// A layer's launches in one step of an engine, first to last:
//
//   requests in the step          launches
//   prompts, whole or a part      Conv (packed), Prefill
//   one token each                Conv, Decode; or Decode alone, with DecodeProblem::conv
//   1 to 16 draft tokens each     Conv, Verify; then, if it kept no states, Commit for all layers
//
//   operator  reads of each request               writes              errors the device finds
//   Conv      inputs x, the last width - 1 before  q, k, v; g, beta    bounds, counts, slots
//   Prefill   any number of tokens, the state      o, the last state,  bounds, slots
//             before them                          checkpoints
//   Decode    one token, the state before it       o, the state after  slots
//   Verify    1 to 16 tokens, a chain or a tree,   o; no state, the    bounds, counts, slots, trees
//             the state before them                last, or each
//   Commit    k, v and gates that a Verify had,    the state after     bounds, counts, slots
//             the accepted count                   accepted tokens
//
// All share one pool of states; Conv has its own, whose slots may have the same numbers.  When to
// take which of two:
//
//   Verify keeps every state, or Commit   every: no second launch, T states written for each one
//                                         used.  Commit: one state written, k, v and gates kept.
//   Decode with conv, or Conv first       the former for small batches, where launches are what a
//                                         layer waits for
//   norms and gates in Conv, or later     the same formulas; Conv rounds q and k after the norm
//
// problems_for_model() (gdn_models.h) makes all problems of a model from its config.json:
//
//   gdn::ModelProblems model = gdn::problems_for_model(config_json, /*tp=*/2).value();
//   gdn::Decode decode = context.prepare(model.decode).value();  // when the model is loaded
//   decode.launch(stream, decode_args).value();                  // in each step
//
// Formulas.  Per sequence n and head h, with the state S (key_dim x value_dim, fp32 arithmetic
// whatever it is stored as), for each token:
//
//   k^ = use_qk_l2norm ? k / sqrt(sum k^2 + 1e-6) : k      q^ likewise, then q^ = scale q^
//   S <- exp(g) S;   u = beta (v - S^T k^);   S <- S + k^ u^T;   o = S^T q^
//
// (Equation 10 of [1]; o reads the updated state.)  The 1e-6 is fixed.  With Decay::kChannel g is a
// row, and so are a and dt_bias: S[d, :] <- exp(g[d]) S[d, :] for each channel d of k (Kimi Delta
// Attention [6]).  Of a and dt_bias, with sigmoid(x) = 1 / (1 + exp(-x)):
//
//   GateMode::kComputed     g = -exp(A_log) softplus(a + dt_bias), softplus(x) = x for x > 20
//   GateMode::kLowerBound   g = lower_bound sigmoid(exp(A_log) (a + dt_bias))
//
// The first is that of [1] and [6], the second that of FLA's fused_kda_gate() with a lower bound
// [7], which Kimi-K3, GLM-5.3-Flash and Ling-3.0 have.  A_log may be absent with it, and dt_bias
// with Decay::kChannel: zeros stand for them.  Prefill takes neither Decay::kChannel nor
// GateMode::kLowerBound yet.
//
// With output_norm, of decode and verify, a head's o is then normalised over value_dim, and gated
// by z, which is the layer's next step (RMSNormGated of Qwen3-Next and Qwen3.5, and with a sigmoid
// that of Kimi Delta Attention):
//
//   o <- o / sqrt(mean(o^2) + norm_eps) * norm_weight * silu(z)      silu(z) = z / (1 + exp(-z))
//
// and with OutputNorm::kSigmoidGatedRms by 1 / (1 + exp(-z)) in place of silu(z).
//
// Prefill, and the path `wy` of Verify and Commit, solve this for many tokens at once.  With T the
// inverse of I + a strictly lower matrix of k^_i.k^_j and beta, the new values are U = T (...):
// the WY form of a product of Householder-like factors [2], as in [1] and [3].  docs/design.md has
// the formulas, and how T is inverted: by blocks [4].  Trees of draft tokens [5] are the same form,
// in which a token follows its ancestors only.
//
//   [1] Yang, Kautz, Hatamizadeh: Gated Delta Networks: Improving Mamba2 with Delta Rule, 2024,
//       arXiv:2412.06464
//   [2] Bischof, Van Loan: The WY Representation for Products of Householder Matrices, SIAM J. Sci.
//       Stat. Comput. 8, 1987
//   [3] Yang, Wang, Zhang, Shen, Kim: Parallelizing Linear Transformers with the Delta Rule over
//       Sequence Length, 2024, arXiv:2406.06484
//   [4] Higham: Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, chapter 14
//   [5] Miao et al.: SpecInfer: Accelerating Large Language Model Serving with Tree-based
//       Speculative Inference and Verification, 2023, arXiv:2305.09781
//   [6] Kimi Team: Kimi Linear: An Expressive, Efficient Attention Architecture, 2025,
//       arXiv:2510.26692
//   [7] flash-linear-attention (github.com/fla-org/flash-linear-attention), fla/ops/kda/gate.py
//
// Heads.  There are heads = max(q_heads, k_heads, v_heads) states and outputs per sequence.  Head h
// uses q head h / (heads / q_heads), and k and v heads likewise: contiguous groups.  v_heads >
// q_heads = k_heads is grouped value attention (Qwen: 2 to 4 value heads per key head), q_heads >
// v_heads grouped query attention.  gdn_parts.h has the limits.
//
// llama.cpp pairs value head h with key head h mod k_heads.  Its value head i k_heads + j is head
// j (v_heads / k_heads) + i here, in v, o, the states, gates, beta, A_log and dt_bias: permute
// them, or with as many value heads as key heads nothing.
//
// States.  Of every operator, with N sequences (requests of a decode step: B):
//   state              [N or slots, heads, rows, columns], rows x columns = key_dim x value_dim
//                      (kKV) or value_dim x key_dim (kVK).  Each matrix lies without gaps; heads
//                      and slots may have gaps of whole 16-byte units; 16-byte aligned.  Absent
//                      only without both has_initial and store.
//   state_out          where new states go.  Absent: in place.  May be `state` itself but must not
//                      overlap it otherwise.
//   state_indices      [N], StateLocation::kPool: the slots that sequences read.  No two sequences
//                      may write one slot.  An index that is neither padding nor a slot touches no
//                      state and fills that sequence's output with NaN.
//   state_out_indices  [N]: the slots that sequences write.  Absent: those they read.  A padding
//                      index here, beside a slot to read, only drops the new state, or sends it to
//                      scratch_slot.
//
// Padding.  In a pool pad_slot_id says which indices mean that a row of the batch is padding: that
// one, or, below 0, every negative one.  By the index that a row reads, its output and its state
// are left alone; with zero_padding the output is set to zero; with scratch_slot the row is
// computed, on that slot.  These are arguments: one kernel serves them all.
//
// Rounding.  This is the whole list of what is rounded, and where; everything else is fp32.
//   All      o to output_dtype and the state to state_dtype, when they are stored.
//   Decode   nothing else; states in fp8 saturate.  With output_norm o is rounded once, after the
//            norm, whose input is the fp32 sum: layers of separate kernels round there, and some
//            before the weight again.
//   Verify   as of decode with output_norm; with round_each_token the state to state_dtype after
//            each token.  On the path `wy` fp32 operands of the matrix products are taken as two
//            tf32 parts, 22 bits; S, where no state is stored and o has 16 bits, as one: 11 bits.
//   Commit   nothing else; fp32 operands of the products as on the path `wy`.
//   Conv     its outputs to dtype and the state to state_dtype, when they are stored.
//   Prefill  the operands of the matrix products to dtype: the state S, the corrected values
//            v - e^G S^T k^, the new values u (once as they are, once with the decay to the end of
//            the chunk), and the two chunk matrices, the inverse T and q^ k^T with their gates.
//            Where states are passed on between segments of a sequence (docs/design.md), D of a
//            segment's transition decay I + D, and the state in the product with it.  With dtype
//            f32 all operands, q and k too, are taken as two tf32 parts: 22 bits.  Decays below
//            e^-128 are taken as that.
// So a prefill of T tokens and T decode steps agree to three units in the last place of dtype (f32:
// of 18 bits), relative to the largest value of the row.
#pragma once

#include "cubinery/gdn_commit.h"
#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_models.h"
#include "cubinery/gdn_prefill.h"
#include "cubinery/gdn_verify.h"
