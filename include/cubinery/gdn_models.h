// From a model's config.json to the problems of its layers of Gated DeltaNet or Kimi Delta
// Attention.  The command line's --hf-config goes through the same function: what `cubinery
// prewarm` compiled for a model is what these problems need.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cubinery/context.h"
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

// What a caller says of a model besides its config.json.
struct ModelOptions {
  // One of model_types(): the configuration is read as that type's, whatever it says of its type,
  // and fields of linear layers that are not known are passed over.
  std::string model_type{};
  // Properties of the model, each by the name of the fields that it sets and with a value as in
  // from_json(): {"state_dtype", "bf16"}, {"draft_tokens", "8"}.  One switch sets them in all forms
  // that have the property, and nothing else:
  //
  //   dtype               what engines keep in the model's dtype: q, k, v, o, a, b and dt_bias, the
  //                       convolution's weights and states; of Kimi Delta Attention not dt_bias and
  //                       the weights
  //   state_dtype         states of the recurrence, which share one pool.  "auto": mamba_ssm_dtype
  //                       or, where the configuration has none, the model's dtype (vLLM; of Kimi
  //                       Delta Attention f32)
  //   state_layout        of the recurrence kv or vk, of the convolution columns or channels
  //   conv_*              the convolution's, alone and within decode_with_conv: conv_state_dtype,
  //                       conv_state_layout, conv_weight_dtype, conv_width, conv_has_bias, ...
  //   gate_mode, beta_mode, use_qk_l2norm, a_log_dtype, ...  the recurrence's; the convolutions
  //                       leave norms and gates to it
  //   checkpoints         prefill's, and of the convolution before it
  //   stored_states       verify's
  //   output_norm         decode's and verify's.  "auto": the norm that the model has; another than
  //   that, or
  //                       none, is refused
  //
  // All others set the field of their name wherever there is one.  A switch that is more particular
  // goes before `dtype`.
  std::map<std::string, std::string> switches{};
  // Of problems_for_engine(): the forms of single functions, too.
  bool functions = false;
  // Of problems_for_engine(): an architecture, "sm_90a"; empty: any.
  std::string arch{};
};

// The values of model_type that are known.
const std::vector<std::string>& model_types();

// What an engine serves a model with Gated DeltaNet layers (Qwen3-Next, Qwen3.5, OLMo-Hybrid) or
// Kimi Delta Attention (Kimi-Linear, Kimi-K3, GLM-5.3-Flash, Ling-3.0, AliceAI) with on each of
// `tp` GPUs.  `config_json` is the text of the model's config.json, as Python's json
// module writes it (NaN and Infinity are numbers); its fields may lie under "text_config".  Pure
// function.
//
// From the config:
//
//   model_type, architectures  which class reads the rest; fields that are not there have the
//                              class's defaults.  Where neither is there, the four sizes are
//                              needed, and the rest is as in Qwen3-Next.
//   layer_types, or num_hidden_layers and full_attention_interval: some layer is a linear one
//   head counts                divided by `tp`
//   head dims                  as they are
//   linear_allow_neg_eigval    beta is twice the sigmoid of its logit; OLMo-Hybrid's default is
//   true dtype or torch_dtype       q, k, v, o, a, b and dt_bias, the convolution's weights and
//   states;
//                              bf16 when neither is there
//   mamba_ssm_dtype            the state's dtype; f32 when it is not there, as in SGLang and
//                              Transformers.  vLLM takes the model's dtype then, and for Qwen3-Next
//                              whatever the field says, unless --mamba-ssm-cache-dtype is given:
//                              ModelOptions::switches, state_dtype "auto" or "bf16".
//   linear_conv_kernel_dim     the convolution's taps; 4 when it is not there
//   hidden_act                 the convolution's activation: silu
//   output_gate_type, linear_use_gate  what the norm behind the recurrence is: output_norm "auto"
//
// Of Kimi Delta Attention, whose decays are one for each channel of k, and whose norm has a
// sigmoid:
//
//   linear_attn_config         num_heads, head_dim, short_conv_kernel_size, kda_layers,
//                              gate_lower_bound and safe_gate of Kimi and GLM; linear_num_heads,
//                              linear_head_dim, linear_conv_kernel_dim and linear_lower_bound where
//                              it has them not
//   num_attention_heads, head_dim, short_conv_kernel_size, layer_group_size, kda_safe_gate,
//   kda_lower_bound            of Ling
//   the fields above           of AliceAI, with as many heads of k as of v
//
// Where a class has a lower bound the gate is GateMode::kLowerBound, and the bound an argument of
// launches; else it is a softplus, GateMode::kComputed.
//
// The rest is what vLLM and SGLang do:
//
//   all            A_log in f32; the gate computed from A_log, a and dt_bias, beta from its logit;
//                  q and k normalised in the kernel.  VK states in a pool, i32 indices, a negative
//                  one skipped.  Value head h has key head h / (value heads / key heads); llama.cpp
//                  pairs it with h mod (key heads), so heads of its tensors are permuted first.
//   prefill        packed sequences, i32 cu_seqlens, no checkpoints
//   verify         packed requests of up to 4 tokens (three drafts and the one before them:
//                  `--draft-tokens` for others).  Keeps every token's state in slots of the pool,
//                  and starts from the state that i32 accepted counts choose.
//   commit         the same packed requests and counts, for engines that verify without keeping
//                  states
//   conv*          makes q, k and v without a bias and with silu; norms and gates are left to the
//                  operator after it.  States in a pool as the others', columns innermost (SGLang;
//                  `--conv-state-layout channels` for vLLM).
//   conv           packed sequences
//   conv_decode    dense ones of one token
//   conv_verify    the packed requests of verify, from where the same counts say
//   decode_with_conv   decode and conv_decode in one launch, for small batches; the convolution's
//                  states have the slots of the decode's.  Where no path computes it, prepare() is
//                  kUnsupported.
//
// Of Kimi Delta Attention dt_bias and the convolution's weights are f32, and its states have
// channels innermost.  There is no prefill yet: left_out() says so.
//
// An engine that does otherwise names switches here and on the command line (`cubinery prewarm
// --state-dtype bf16`), or changes the fields of the result.
//
// kInvalidArgument: not JSON (with line and column), a field that is missing or has another type, a
// model that is not known or whose linear layers are another kind, no linear layer, a switch that
// no form has, or a `tp` that does not divide the heads.  Whether all problems
// pass check() is for their users to see: left_out(), and prepare() says so.
Result<ModelProblems> problems_for_model(std::string_view config_json, int tp = 1);
Result<ModelProblems> problems_for_model(std::string_view config_json, int tp,
                                         const ModelOptions& options);

// A form that a model cannot have.
struct LeftOut {
  std::string form;  // "conv_decode"
  std::string why;   // "gdn_conv: width = 5; accepted: 2, 3, 4"
};
// The forms whose problems do not pass check(), in the order of ModelProblems: a model whose list
// is not empty is not served whole.
std::vector<LeftOut> left_out(const ModelProblems& problems);

// A problem of any operator.
using AnyProblem =
    std::variant<DecodeProblem, PrefillProblem, VerifyProblem, CommitProblem, ConvProblem>;

// context.compile() of all of them, in one call: a kernel that several want is compiled once, and
// all are compiled side by side.  Each kernel once, in the order in which the problems name it
// first.  Errors as there; one of a problem names its place.
Result<std::vector<CompiledKernel>> compile(const Context& context,
                                            std::span<const AnyProblem> problems);

// One form in which an engine needs an operator.
struct EngineProblem {
  std::string form;  // "conv_decode"
  AnyProblem problem;
  std::string of;  // the form of ModelProblems that it is made from
  // A form that does the same and has no kernels on some GPUs: this one is launched there alone.
  std::string instead_of{};
};

// The engines that are known: "vllm", "sglang", and what the other modules of cubinery.compat are
// named after.
const std::vector<std::string>& engine_names();

// What one engine launches for a model: problems_for_model() in the forms of docs/problems.md,
// "Engines", and with the engine's own rules.  Of an engine that has a plugin the forms are the
// plugin's and, with ModelOptions::functions, those of the single functions of cubinery.compat,
// whose names begin with "functions.".  Where some are in the place of another, ModelOptions::arch
// says which are there; without it all are.
//
//   state_dtype   where no switch says it, as the engine decides: vLLM the configuration's or the
//                 model's, of Qwen3-Next always the model's; SGLang and FlashInfer as
//                 problems_for_model(); TensorRT-LLM the model's; Transformers, FLA and tokenspeed
//                 f32
//   output_norm   vLLM: the model's, where its layers hand it on (bf16, not of Qwen3-Next unless it
//                 runs without compiled graphs: a switch says so then)
//   draft_tokens  of forms that know how many there are; 0 or 1: there are no drafts, and no forms
//                 of theirs
//   dtype         the model's; what an engine has in f32 stays f32
//
// All other switches change the fields of their forms, whatever the engine has there.  Errors as
// above, and kInvalidArgument: an engine that is not known, or that has no place for the model's
// layers (of Kimi Delta Attention vLLM and SGLang have).
Result<std::vector<EngineProblem>> problems_for_engine(std::string_view config_json, int tp,
                                                       std::string_view engine,
                                                       const ModelOptions& options = {});
// As above.
std::vector<LeftOut> left_out(const std::vector<EngineProblem>& problems);

}  // namespace cubinery::gdn
