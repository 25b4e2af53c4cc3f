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
  ConvProblem conv{};         // before prefill
  ConvProblem conv_decode{};  // before decode
  ConvProblem conv_verify{};  // before verify
};

// What an engine serves a Qwen3-Next or Qwen3.5 model with on each of `tp` GPUs.  `config_json` is
// the text of the model's config.json; its fields may lie under "text_config".  Pure function.
//
// From the config:
//
//   head counts             divided by `tp`
//   head dims               as they are
//   dtype or torch_dtype    q, k, v, o, a, b and dt_bias, the convolution's weights and states;
//                           bf16 when neither is there
//   mamba_ssm_dtype         the state's dtype; f32 when it is not there
//   linear_conv_kernel_dim  the convolution's taps; 4 when it is not there
//
// The rest is what vLLM and SGLang do:
//
//   all            A_log in f32; the gate computed from A_log, a and dt_bias, beta from its logit;
//                  q and k normalised in the kernel.  VK states in a pool, i32 indices, a negative
//                  one skipped.
//   prefill        packed sequences, i32 cu_seqlens, no checkpoints
//   verify         packed requests of up to 4 tokens (three drafts and the one before them:
//                  `--draft-tokens` for others).  Keeps every token's state in slots of the pool,
//                  and starts from the state that i32 accepted counts choose.
//   commit         the same packed requests and counts, for engines that verify without keeping
//                  states
//   conv*          makes q, k and v without a bias and with silu; norms and gates are left to the
//                  operator after it.  States in a pool as the others', columns innermost (SGLang;
//                  `--state-layout channels` for vLLM).
//   conv           packed sequences
//   conv_decode    dense ones of one token
//   conv_verify    the packed requests of verify, from where the same counts say
//   decode_with_conv   decode and conv_decode in one launch, for small batches; the convolution's
//                  states have the slots of the decode's.  Where no path computes it, prepare() is
//                  kUnsupported.
//
// An engine that does otherwise changes the fields of the result, and pre-warms with the same
// changes (`cubinery prewarm --state-dtype bf16`).
//
// kInvalidArgument: not JSON (with line and column), a field that is missing or has another type,
// or a `tp` that does not divide the heads.  Whether the problems pass check() is for their users
// to see: prepare() says so.
Result<ModelProblems> problems_for_model(std::string_view config_json, int tp = 1);

}  // namespace cubinery::gdn
