#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "codegen/nearest.h"
#include "codegen/read_json.h"
#include "cubinery/gdn_models.h"
#include "runtime/gdn/operators.h"
#include "runtime/gdn/shared/model_config.h"
#include "runtime/gdn/shared/model_forms.h"
#include "runtime/gdn/shared/model_layers.h"
#include "runtime/gdn/shared/model_switches.h"
#include "runtime/gdn/shared/model_types.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

// The sizes that divide both head counts: "1, 2, 4".
std::string divisors(int key_heads, int value_heads) {
  const int common = std::gcd(key_heads, value_heads);
  std::vector<int> sizes;
  for (int size = 1; size <= common; ++size) {
    if (common % size == 0) sizes.push_back(size);
  }
  return fmt::format("{}", fmt::join(sizes, ", "));
}

Status check_tp(const ModelLayers& model, int tp) {
  if (tp >= 1 && model.key_heads % tp == 0 && model.value_heads % tp == 0) return {};
  if (model.decay == Decay::kChannel) {
    return invalid_config(
        fmt::format("{} heads of Kimi Delta Attention are not divisible by tp = {}; accepted: {}",
                    model.key_heads, tp, divisors(model.key_heads, model.value_heads)));
  }
  return invalid_config(fmt::format(
      "linear_num_key_heads = {} and linear_num_value_heads = {} are not both "
      "divisible by tp = {}; accepted: {}",
      model.key_heads, model.value_heads, tp, divisors(model.key_heads, model.value_heads)));
}

// What engines keep in the model's dtype, and of Kimi Delta Attention in f32.
DType small_dtype(const ModelLayers& model) {
  return model.decay == Decay::kChannel ? DType::kF32 : model.dtype;
}

// What the operators have in common.
template <class P>
P served(const ModelLayers& model, int tp) {
  P problem{
      .heads = {.q = model.key_heads / tp, .k = model.key_heads / tp, .v = model.value_heads / tp},
      .key_dim = model.key_dim,
      .value_dim = model.value_dim,
      .dtype = model.dtype,
      .inputs = {.gate_dtype = model.dtype,
                 .beta_dtype = model.dtype,
                 .a_log_dtype = DType::kF32,
                 .dt_bias_dtype = small_dtype(model),
                 .decay = model.decay,
                 .gate_mode = model.gate_mode,
                 .beta_mode = model.doubles_beta ? BetaMode::kDoubledLogit : BetaMode::kLogit,
                 .use_qk_l2norm = true},
      .states = {.dtype = model.state_dtype,
                 .index_dtype = DType::kI32,
                 .layout = StateLayout::kVK,
                 .location = StateLocation::kPool,
                 .has_initial = true,
                 .store = true}};
  if constexpr (requires { problem.output_dtype; }) problem.output_dtype = model.dtype;
  return problem;
}

// In front of decoding steps.
ConvProblem served_conv(const ModelLayers& model, int tp) {
  const DecodeProblem behind = served<DecodeProblem>(model, tp);
  ConvProblem problem{.heads = behind.heads,
                      .key_dim = behind.key_dim,
                      .value_dim = behind.value_dim,
                      .dtype = model.dtype,
                      .weight_dtype = small_dtype(model),
                      .width = model.conv_width,
                      .activation = Activation::kSilu,
                      .has_bias = false,
                      .split_qkv = true};
  problem.states.dtype = model.dtype;
  problem.states.index_dtype = behind.states.index_dtype;
  problem.states.layout =
      model.decay == Decay::kChannel ? ConvStateLayout::kChannels : ConvStateLayout::kColumns;
  problem.inputs.decay = model.decay;  // of gates that a switch has it make
  problem.states.location = behind.states.location;
  return problem;
}

// All forms, as engines have them.
ModelProblems served_forms(const ModelLayers& model, int tp) {
  ModelProblems problems{.decode = served<DecodeProblem>(model, tp),
                         .decode_with_conv = served<DecodeProblem>(model, tp),
                         .prefill = served<PrefillProblem>(model, tp),
                         .verify = served<VerifyProblem>(model, tp),
                         .commit = served<CommitProblem>(model, tp),
                         .conv = served_conv(model, tp),
                         .conv_decode = served_conv(model, tp),
                         .conv_verify = served_conv(model, tp)};
  const ConvProblem& conv = problems.conv_decode;
  problems.decode_with_conv.conv = {.width = conv.width,
                                    .activation = conv.activation,
                                    .has_bias = conv.has_bias,
                                    .weight_dtype = conv.weight_dtype,
                                    .state_dtype = conv.states.dtype,
                                    .state_layout = conv.states.layout,
                                    .whole_window = conv.states.whole_window};
  problems.prefill.cu_seqlens_dtype = DType::kI32;
  problems.prefill.varlen = true;
  problems.prefill.checkpoints = Checkpoints::kNone;
  problems.verify.draft_tokens = 4;
  problems.verify.varlen = true;
  problems.verify.stored_states = StoredStates::kEvery;
  problems.verify.from_accepted = true;
  problems.commit.draft_tokens = problems.verify.draft_tokens;
  problems.commit.varlen = problems.verify.varlen;
  problems.conv.cu_seqlens_dtype = problems.prefill.cu_seqlens_dtype;
  problems.conv.varlen = problems.prefill.varlen;
  problems.conv_verify.cu_seqlens_dtype = problems.verify.cu_seqlens_dtype;
  problems.conv_verify.varlen = problems.verify.varlen;
  problems.conv_verify.from_accepted = problems.verify.from_accepted;
  problems.conv_verify.accepted_dtype = problems.verify.accepted_dtype;
  return problems;
}

// What `function` does with each form, until one fails.
template <class Function>
Status for_each_form(Function&& function) {
  Status first;
  std::apply([&](const auto&... form) { (void)((first = function(form), first.ok()) && ...); },
             kModelForms);
  return first;
}

// The norm behind the recurrence is the model's, where the switch asks for one.
Status set_output_norm(const ModelLayers& model, const Switches& switches,
                       ModelProblems* problems) {
  const auto asked = switches.find("output_norm");
  if (asked == switches.end()) return {};
  DecodeProblem wanted;
  if (asked->second == kAutoSwitch) {
    wanted.output_norm = model.output_norm;
  } else {
    CUBINERY_RETURN_IF_ERROR(set_field("output_norm", asked->second, &wanted));
  }
  if (wanted.output_norm != OutputNorm::kNone && wanted.output_norm != model.output_norm) {
    return invalid_config(
        fmt::format("output_norm = {}, and the model's is {}; accepted: auto, none, {}",
                    value_text(wanted.output_norm), value_text(model.output_norm),
                    value_text(model.output_norm)));
  }
  problems->decode.output_norm = problems->decode_with_conv.output_norm = wanted.output_norm;
  problems->verify.output_norm = wanted.output_norm;
  return {};
}

// Fields of any form that a switch of the same name sets.
const std::vector<std::string>& switch_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    (void)for_each_form([&](const auto& form) {
      using Problem = std::decay_t<decltype(ModelProblems{}.*form.problem)>;
      for (const auto& field : internal::table_of<Problem>().fields) {
        const std::string name(field.name);
        const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
        if (!is_known && fields_of_form(form.name, {{name, ""}}, Decay::kHead).contains(name)) {
          names.push_back(name);
        }
      }
      return Status();
    });
    return names;
  }();
  return kNames;
}

Status set_switches(const Switches& switches, ModelProblems* problems) {
  const std::vector<std::string>& known = switch_names();
  for (const auto& [name, text] : switches) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return invalid_config(fmt::format("{} = {}: no switch of a model; accepted: {}{}",
                                      excerpt(name), excerpt(text), fmt::join(known, ", "),
                                      did_you_mean(name, known)));
  }
  return for_each_form([&](const auto& form) -> Status {
    auto& problem = problems->*form.problem;
    return set_fields(fields_of_form(form.name, switches, problem.inputs.decay), &problem);
  });
}

}  // namespace

const std::vector<std::string>& model_types() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const ModelType& type : known_model_types()) names.emplace_back(type.name);
    return names;
  }();
  return kNames;
}

Result<ModelProblems> problems_for_model(std::string_view config_json, int tp) {
  return problems_for_model(config_json, tp, {});
}

Result<ModelProblems> problems_for_model(std::string_view config_json, int tp,
                                         const ModelOptions& options) {
  const Result<Json> root = read_config(config_json);
  if (!root) return root.error().clone();
  const Result<ModelLayers> model = read_model_layers(*root, options);
  if (!model) return model.error().clone();
  CUBINERY_RETURN_IF_ERROR(check_tp(*model, tp));
  ModelProblems problems = served_forms(*model, tp);
  CUBINERY_RETURN_IF_ERROR(set_output_norm(*model, options.switches, &problems));
  CUBINERY_RETURN_IF_ERROR(set_switches(options.switches, &problems));
  return problems;
}

std::vector<LeftOut> left_out(const ModelProblems& problems) {
  std::vector<LeftOut> forms;
  (void)for_each_form([&](const auto& form) {
    const Status checked = (problems.*form.problem).check();
    if (!checked.ok()) forms.push_back({std::string(form.name), std::string(checked.message())});
    return Status();
  });
  return forms;
}

}  // namespace cubinery::gdn
