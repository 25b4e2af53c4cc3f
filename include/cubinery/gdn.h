// Gated DeltaNet operators.
//
// Per sequence n and head h, with the state S (key_dim x value_dim, fp32 arithmetic whatever it is
// stored as), for each token:
//
//   k^ = use_qk_l2norm ? k / sqrt(sum k^2 + 1e-6) : k      q^ likewise, then q^ = scale q^
//   S <- exp(g) S;   u = beta (v - S^T k^);   S <- S + k^ u^T;   o = S^T q^
//
// (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024, equation 10; o reads the updated state.)
// With GateMode::kComputed, g = -exp(A_log) softplus(a + dt_bias) with softplus(x) = x for x > 20.
//
// With DecodeProblem::output_norm a head's o is then normalised over value_dim, and gated by z,
// which is the layer's next step (RMSNormGated of Qwen3-Next and Qwen3.5):
//
//   o <- o / sqrt(mean(o^2) + norm_eps) * norm_weight * silu(z)      silu(z) = z / (1 + exp(-z))
//
// Heads.  There are heads = max(q_heads, k_heads, v_heads) states and outputs per sequence.  Head h
// uses q head h / (heads / q_heads), and k and v heads likewise: contiguous groups.  v_heads >
// q_heads = k_heads is grouped value attention (Qwen: 2 to 4 value heads per key head), q_heads >
// v_heads grouped query attention.
//
// Rounding.  This is the whole list of what is rounded, and where; everything else is fp32.
//   All      o to output_dtype and the state to state_dtype, when they are stored.
//   Decode   nothing else; states in fp8 saturate.  With output_norm o is rounded once, behind the
//            norm, whose input is the fp32 sum: layers of separate kernels round there, and some
//            before the weight again.
//   Verify   with round_each_token the state to state_dtype after each token.  On the path `wy`
//            fp32 operands of the matrix products are taken as two tf32 parts, 22 bits; S, where
//            no state is stored and o has 16 bits, as one: 11 bits.
//   Commit   nothing else; fp32 operands of the products as on the path `wy`.
//   Conv     its outputs to dtype and the state to state_dtype, when they are stored.
//   Prefill  the operands of the matrix products to dtype: the state S, the corrected values
//            v - e^G S^T k^, the new values u (once as they are, once with the decay to the end of
//            the chunk), and the two chunk matrices (I + L)^-1 and q^ k^T with their gates.  Where
//            a state is carried over a part of a split sequence (docs/design.md), what the part
//            changes of it, as a matrix, and the state in the product with it.  With dtype f32 all
//            operands, q and k too, are taken as two tf32 parts: 22 bits.  Decays below e^-128 are
//            taken as that.
// So a prefill of T tokens and T decode steps agree to three units in the last place of dtype (f32:
// of 18 bits), relative to the largest value of the row.
#pragma once

#include "cubinery/gdn_commit.h"
#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_models.h"
#include "cubinery/gdn_prefill.h"
#include "cubinery/gdn_verify.h"
