#include "cli/model_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/gdn/operators.h"

namespace cubinery {
namespace {

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

}  // namespace

const char* const kModelAssumptions =
    R"(--hf-config asks for what vLLM and SGLang serve such a model with.
  from the file: which model it is (model_type, architectures), whose defaults hold for fields that are missing;
                 that some layer is a linear one (layer_types); head counts (divided by --tp), head dims,
                 linear_conv_kernel_dim; linear_allow_neg_eigval (beta is twice the sigmoid of its logit; true when
                 missing in OLMo-Hybrid); dtype or torch_dtype (for q, k, v, o, a, b and dt_bias and the convolution;
                 bf16 when missing); mamba_ssm_dtype (for the state; f32 when missing, as in SGLang and
                 Transformers: --state-dtype auto takes the model's dtype then, as vLLM does);
                 of Kimi Delta Attention linear_attn_config, linear_lower_bound and others of their classes:
                 heads, taps, and whether the gate has a lower bound
  assumed:       A_log in f32; vk states in a pool, i32 indices, negative ones skipped; the gate computed
                 from A_log, a and dt_bias; beta from its logit; q and k normalised in the kernel;
                 for prefill packed sequences, i32 cu_seqlens, no checkpoints; for verify packed requests
                 of up to 4 tokens (--draft-tokens), the state after each, i32 counts of accepted ones;
                 for commit the same requests and counts, no states kept in between; for conv q, k and v
                 without bias, behind silu, weights and states in the model's dtype, states in a pool with
                 columns innermost (vLLM: --conv-state-layout channels); of Kimi Delta Attention dt_bias
                 and the convolution's weights in f32, and channels innermost
conv has a form for each operator that it stands in front of: conv packed sequences, conv_decode dense steps of
one token, conv_verify the requests and counts of verify.
A model that is not known, or that has layers of another kind, is refused; --model-type reads it as one that is.
Each flag is a property of the model, and changes all forms that have it: --dtype what engines keep in the model's
dtype, --state-dtype and --gate-mode the recurrence in all its forms, --conv-state-dtype (and other --conv-...) the
convolution alone and within decode_with_conv, --state-layout either by its values; --output-norm auto takes the
norm that the model has. --engine asks for what one engine launches instead: its forms, and what it decides itself,
such as the dtype of states where no flag says it; --draft-tokens 1 leaves out the forms of drafts, and --form
functions asks for the adapter's functions, not the plugin's forms (docs/problems.md). With only convolutions in --op
or --form the flags are the fields of theirs. What a form cannot have is said in a line on stderr, and the exit code
is 3.)";

bool stands_in(const Request& other, const Request& request) {
  return request.may_be_left_out && other.origin == request.origin &&
         (!request.engine.empty() || other.asked.problem.index() == request.asked.problem.index());
}

Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp,
                                               const gdn::ModelOptions& options) {
  std::vector<Request> requests;
  for (const int size : tp) {
    const Result<std::vector<Problem>> problems = cubinery::problems_for_model(text, size, options);
    if (!problems) return invalid(fmt::format("{}: {}", file, problems.error().message()));
    for (std::size_t i = 0; i < problems->size(); ++i) {
      const std::string form(model_forms()[i].name);
      requests.push_back({.asked = {.form = form, .problem = problems->at(i), .of = form},
                          .origin = fmt::format("{}, tp {}", file, size),
                          .arch = {}});
    }
  }
  return requests;
}

Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp, std::string_view engine,
                                               const gdn::ModelOptions& options) {
  std::vector<Request> requests;
  for (const int size : tp) {
    Result<std::vector<gdn::EngineProblem>> problems =
        gdn::problems_for_engine(text, size, engine, options);
    if (!problems) return invalid(fmt::format("{}: {}", file, problems.error().message()));
    for (gdn::EngineProblem& one : *problems) {
      requests.push_back({.asked = std::move(one),
                          .origin = fmt::format("{}, {}, tp {}", file, engine, size),
                          .arch = {},
                          .engine = std::string(engine)});
    }
  }
  return requests;
}

}  // namespace cubinery
