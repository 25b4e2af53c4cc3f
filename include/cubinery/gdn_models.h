// From a model's config.json to the problems of its Gated DeltaNet layers.  The command line's
// --hf-config goes through the same function: what `cubinery prewarm` compiled for a model is what
// these problems need.
#pragma once

#include <string_view>

#include "cubinery/gdn_commit.h"
#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_prefill.h"
#include "cubinery/gdn_verify.h"
#include "cubinery/status.h"

namespace cubinery::gdn {

// The problems of a model: one for each operator, and for each *form* in which an engine needs it.
// The members' names are those of the forms in C, in Python and on the command line.
struct ModelProblems {
  DecodeProblem decode{};
  DecodeProblem decode_with_conv{};  // decode and conv_decode in one launch
  PrefillProblem prefill{};
  VerifyProblem verify{};
  CommitProblem commit{};
  ConvProblem conv{};         // in front of prefill
  ConvProblem conv_decode{};  // of decode
  ConvProblem conv_verify{};  // of verify
};

// What an engine serves a Qwen3-Next or Qwen3.5 model with on each of `tp` GPUs.  `config_json` is
// the text of the model's config.json; its fields may lie under "text_config".  Pure function.
//
// From the config: head counts (divided by `tp`), head dims, the model's dtype (dtype or
// torch_dtype, bf16 when neither is there) for q, k, v, o, a, b and dt_bias, the state's dtype
// (mamba_ssm_dtype, f32 when it is not there), and the convolution's taps (linear_conv_kernel_dim,
// 4 when it is not there).  The rest is what vLLM and SGLang do: A_log in f32, VK states in a pool
// with i32 indices where a negative one is skipped, the gate computed from A_log, a and dt_bias,
// beta from its logit, q and k normalised in the kernel.  A prefill takes packed sequences with i32
// cu_seqlens and keeps no checkpoints.  A verification takes packed requests of up to 4 tokens
// (three drafts: `--max-tokens` for others), keeps every token's state in slots of the pool, and
// starts from the state that i32 counts of accepted tokens choose; a commit takes the same packed
// requests and counts, for engines that verify without keeping states.  A convolution makes q, k
// and v without a bias and with silu, and leaves norms and gates to the operator behind it; weights
// and states have the model's dtype, and states lie in a pool as the others' do, columns innermost
// (SGLang; `--state-layout channels` for vLLM).  In front of a prefill it takes packed sequences,
// in front of decoding steps dense ones of one token, and in front of a verification the same
// packed requests, from where the same counts say.  decode_with_conv does in one launch what decode
// and conv_decode do in two, for small batches; the convolution's states then have the slots of the
// decode's, and where no path computes it, prepare() is kUnsupported.  An engine that does
// otherwise changes the fields of the result, and pre-warms with the same changes (`cubinery
// prewarm --state-dtype bf16`).
//
// kInvalidArgument: not JSON (with line and column), a field that is missing or has another type,
// or a `tp` that does not divide the heads.  Whether the problems pass check() is for their users
// to see: prepare() says so.
Result<ModelProblems> problems_for_model(std::string_view config_json, int tp = 1);

}  // namespace cubinery::gdn
