#include "runtime/gdn/shared/model_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "codegen/nearest.h"
#include "runtime/gdn/shared/model_config.h"
#include "runtime/gdn/shared/model_kimi.h"
#include "runtime/gdn/shared/model_switches.h"
#include "runtime/gdn/shared/model_types.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

// What layers of the known models are besides (ALLOWED_LAYER_TYPES of Transformers).
constexpr std::array<std::string_view, 8> kOtherLayers{
    "full_attention",    "sliding_attention",         "chunked_attention",     "attention",
    "indexed_attention", "deepseek_sparse_attention", "qwen_sparse_attention", "hybrid_indexed"};

// The fields named linear_* that are read, and those that only say how weights begin.
constexpr std::array<std::string_view, 13> kLinearFields{
    "linear_num_key_heads",  "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "linear_allow_neg_eigval",
    "linear_use_gate",       "linear_a_log_min",       "linear_a_log_max",
    "linear_dt_min",         "linear_dt_max",          "linear_dt_init_floor",
    "linear_norm_eps"};

std::string known_types(bool with_kimi_layers) {
  std::vector<std::string_view> names;
  for (const ModelType& type : known_model_types()) {
    if (has_kimi_layers(type.family) == with_kimi_layers) names.push_back(type.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string known_models() {
  return fmt::format(
      "models with Gated DeltaNet layers ({}) or Kimi Delta Attention ({}); for one that computes "
      "as one of these does, name that one (--model-type of the command line, model_type of "
      "problems_for_model())",
      known_types(false), known_types(true));
}

Status unknown_kimi(std::string_view name, const Json& value) {
  return invalid_config(
      fmt::format("{} = {}: linear layers of Kimi Delta Attention, which have a decay for each "
                  "channel of k, in a model that is not known to have them; accepted: {}",
                  name, json_excerpt(value), known_models()));
}

Status unknown_model(std::string_view name, const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  return invalid_config(fmt::format("{} = {}; accepted: {}{}", name, json_excerpt(value),
                                    known_models(), did_you_mean(text, model_types())));
}

// Names of models that are none of ours, wherever they are.
Status check_no_unknown_kimi(const ModelConfig& config) {
  for (const Json* object : config.objects()) {
    const Json* type = ModelConfig::find_in(*object, "model_type");
    if (type != nullptr && type->is_string() && is_unknown_kimi(type->get<std::string>())) {
      return unknown_kimi("model_type", *type);
    }
    const Json* architectures = ModelConfig::find_in(*object, "architectures");
    for (const Json& one : architectures != nullptr ? *architectures : Json::array()) {
      if (one.is_string() && is_unknown_kimi(one.get<std::string>())) {
        return unknown_kimi("architectures", *architectures);
      }
    }
  }
  return {};
}

// Fields that may change what a layer computes, and that nobody reads here.  `type`: null where the
// configuration names none that is known.
Status check_linear_fields(const ModelConfig& config, const ModelType* type) {
  const bool has_kimi = type != nullptr && has_kimi_layers(type->family);
  for (const Json* object : config.objects()) {
    for (const auto& [name, value] : object->items()) {
      const bool is_kimi = is_kimi_field(name);
      if (!is_kimi && !name.starts_with("linear_")) continue;
      if (value.is_null() || value == false) continue;
      if (has_kimi ? is_read_of_kimi(type->family, name) : is_in(kLinearFields, name)) continue;
      if (is_kimi && !has_kimi) return unknown_kimi(excerpt(name), value);
      return invalid_config(fmt::format(
          "{} = {}: not known of a {} layer; accepted: {}", excerpt(name), json_excerpt(value),
          has_kimi ? "Kimi Delta Attention" : "Gated DeltaNet", known_models()));
    }
  }
  return {};
}

// Of the innermost model_type, or of architectures beside it or, without a model_type, anywhere.
// Null: the configuration names no model.
Result<const ModelType*> named_type(const ModelConfig& config) {
  const ModelType* type = nullptr;
  for (const Json* object : config.objects()) {
    const Json* name = ModelConfig::find_in(*object, "model_type");
    if (name != nullptr && type == nullptr) {
      type = name->is_string() ? find_model_type(name->get<std::string>()) : nullptr;
      if (type == nullptr) return unknown_model("model_type", *name);
    }
    if (const Json* list = ModelConfig::find_in(*object, "architectures")) {
      std::vector<std::string> architectures;
      CUBINERY_RETURN_IF_ERROR(ModelConfig::read_list("architectures", *list, &architectures));
      for (const std::string& architecture : architectures) {
        const ModelType* its = type_of_architecture(architecture);
        if (its == nullptr || (type != nullptr && type->family != its->family)) {
          return unknown_model("architectures", *list);
        }
        if (type == nullptr) type = its;
      }
    }
    if (type != nullptr) break;  // what is around it names what the model is a part of
  }
  return type;
}

Result<const ModelType*> type_of(const ModelConfig& config, const ModelOptions& options) {
  if (!options.model_type.empty()) {
    const ModelType* type = find_model_type(options.model_type);
    if (type == nullptr) return unknown_model("model_type", Json(options.model_type));
    return type;
  }
  CUBINERY_RETURN_IF_ERROR(check_no_unknown_kimi(config));
  Result<const ModelType*> type = named_type(config);
  CUBINERY_RETURN_IF_ERROR(check_linear_fields(config, type ? *type : nullptr));
  return type;
}

// Layers of a configuration that lists them.
Status check_listed_layers(const std::vector<std::string>& kinds, bool is_trusted) {
  for (const std::string& kind : kinds) {
    if (is_trusted || kind == kLinearLayer || is_in(kOtherLayers, kind)) continue;
    return invalid_config(
        fmt::format("layer_types has {}; accepted: {} (Gated DeltaNet, Kimi Delta Attention), {}",
                    json_excerpt(kind), kLinearLayer, fmt::join(kOtherLayers, ", ")));
  }
  if (is_in(kinds, kLinearLayer)) return {};
  std::vector<std::string> distinct = kinds;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return no_linear_layer(excerpt(
      fmt::format("layer_types has {} only",
                  kinds.empty() ? "nothing" : fmt::format("{}", fmt::join(distinct, ", ")))));
}

Status check_layers(const ModelConfig& config, const ModelType* type, bool is_trusted) {
  if (config.find("layer_types") != nullptr) {
    std::vector<std::string> kinds;
    CUBINERY_RETURN_IF_ERROR(config.read("layer_types", &kinds));
    return check_listed_layers(kinds, is_trusted);
  }
  if (type == nullptr) return {};
  if (lists_kimi_layers(type->family)) return check_kimi_layers(config, type->family);
  // The class makes the list: every fourth layer, or as the interval says, is full attention.
  int layers = type->hidden_layers;
  int interval = kDefaultAttentionInterval;
  CUBINERY_RETURN_IF_ERROR(config.read("num_hidden_layers", &layers));
  if (type->family == Family::kOlmo) {
    // Of fewer than four the last.
    return layers > 1 ? Status() : no_linear_layer(fmt::format("num_hidden_layers = {}", layers));
  }
  CUBINERY_RETURN_IF_ERROR(config.read("full_attention_interval", &interval));
  return interval > 1 ? Status() : no_linear_layer("full_attention_interval = 1");
}

Status check_sizes_are_there(const ModelConfig& config) {
  for (const char* name : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                           "linear_value_head_dim"}) {
    if (config.find(name) != nullptr) continue;
    return invalid_config(
        fmt::format("no field {}, neither at the top nor under text_config (model_type not given); "
                    "accepted: {}",
                    name, known_models()));
  }
  return {};
}

Status set_olmo_defaults(const ModelConfig& config, ModelLayers* model) {
  int attention_heads = kOlmoAttentionHeads;
  int hidden_size = kOlmoHiddenSize;
  CUBINERY_RETURN_IF_ERROR(config.read("num_attention_heads", &attention_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("hidden_size", &hidden_size));
  model->key_heads = model->value_heads = attention_heads;
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &model->key_heads));
  model->key_dim = 3 * hidden_size / (4 * model->key_heads);
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model->key_dim));
  model->value_dim = 2 * model->key_dim;
  model->doubles_beta = true;
  return {};
}

Status read_sizes(const ModelConfig& config, const ModelType* type, ModelLayers* model) {
  *model = {.key_heads = kDefaultKeyHeads,
            .value_heads = kDefaultValueHeads,
            .key_dim = kDefaultHeadDim,
            .value_dim = kDefaultHeadDim,
            .conv_width = kDefaultConvWidth};
  if (type == nullptr) CUBINERY_RETURN_IF_ERROR(check_sizes_are_there(config));
  if (type != nullptr && type->family == Family::kOlmo) {
    CUBINERY_RETURN_IF_ERROR(set_olmo_defaults(config, model));
  }
  if (type != nullptr && has_kimi_layers(type->family)) {
    return read_kimi_layers(config, type->family, model);
  }
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &model->key_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_value_heads", &model->value_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model->key_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_value_head_dim", &model->value_dim));
  return config.read("linear_conv_kernel_dim", &model->conv_width);
}

// What the layers compute besides their sizes.
Status read_mathematics(const ModelConfig& config, ModelLayers* model) {
  CUBINERY_RETURN_IF_ERROR(config.read("linear_allow_neg_eigval", &model->doubles_beta));
  const bool has_kimi = model->decay == Decay::kChannel;
  std::string activation = "silu";
  CUBINERY_RETURN_IF_ERROR(config.read("hidden_act", &activation));
  // Kimi-K3's feed-forward layers have another; engines' convolutions have SiLU whatever this says.
  const bool is_situ = has_kimi && activation == "situ";
  if (activation != "silu" && activation != "swish" && !is_situ) {
    return invalid_config(fmt::format("hidden_act = {}; accepted: silu (of the convolution)",
                                      json_excerpt(activation)));
  }
  std::string gate = has_kimi ? "sigmoid" : activation;
  bool has_gate = true;
  CUBINERY_RETURN_IF_ERROR(config.read("output_gate_type", &gate));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_use_gate", &has_gate));
  if (gate == "sigmoid") {
    model->output_norm = OutputNorm::kSigmoidGatedRms;
  } else if (gate != "silu" && gate != "swish") {
    return invalid_config(
        fmt::format("output_gate_type = {}; accepted: silu, swish, sigmoid", json_excerpt(gate)));
  }
  if (!has_gate) model->output_norm = OutputNorm::kNone;
  return {};
}

Status read_dtypes(const ModelConfig& config, const ModelOptions& options, ModelLayers* model) {
  CUBINERY_RETURN_IF_ERROR(config.read({"dtype", "torch_dtype"}, &model->dtype));
  if (const auto given = options.switches.find("dtype"); given != options.switches.end()) {
    DecodeProblem problem;
    CUBINERY_RETURN_IF_ERROR(set_field("dtype", given->second, &problem));
    model->dtype = problem.dtype;
  }
  const auto state_dtype = options.switches.find("state_dtype");
  // vLLM keeps states of Kimi Delta Attention in f32 whatever the model's dtype.
  if (state_dtype != options.switches.end() && state_dtype->second == kAutoSwitch &&
      model->decay == Decay::kHead) {
    model->state_dtype = model->dtype;
  }
  return config.read({"mamba_ssm_dtype"}, &model->state_dtype);
}

}  // namespace

Result<ModelLayers> read_model_layers(const Json& root, const ModelOptions& options) {
  const ModelConfig config(root);
  CUBINERY_RETURN_IF_ERROR(config.check_text_config());
  const Result<const ModelType*> type = type_of(config, options);
  if (!type) return type.error().clone();
  CUBINERY_RETURN_IF_ERROR(check_layers(config, *type, !options.model_type.empty()));
  ModelLayers model;
  CUBINERY_RETURN_IF_ERROR(read_sizes(config, *type, &model));
  if (*type != nullptr) model.type = (*type)->name;
  CUBINERY_RETURN_IF_ERROR(read_mathematics(config, &model));
  CUBINERY_RETURN_IF_ERROR(read_dtypes(config, options, &model));
  return model;
}

}  // namespace cubinery::gdn
