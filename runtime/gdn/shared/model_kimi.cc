#include "runtime/gdn/shared/model_kimi.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <span>
#include <string>

#include "codegen/read_json.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

constexpr const char* kNested = "linear_attn_config";

// Fields of a configuration, and of what is nested in it, that are read, and those that only say
// how weights are stored.
constexpr std::array<std::string_view, 4> kFieldsOfKimi{
    kNested, "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"};
constexpr std::array<std::string_view, 6> kFieldsOfGlm{kNested,
                                                       "linear_head_dim",
                                                       "linear_num_heads",
                                                       "linear_conv_kernel_dim",
                                                       "linear_lower_bound",
                                                       "gate_lower_bound"};
constexpr std::array<std::string_view, 5> kFieldsOfLing{"linear_head_dim", "linear_num_heads",
                                                        "linear_conv_kernel_dim", "kda_safe_gate",
                                                        "kda_lower_bound"};
constexpr std::array<std::string_view, 6> kFieldsOfAlice{
    "linear_num_key_heads",  "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "kda_allow_negative_eigenvalues"};
constexpr std::array<std::string_view, 8> kNestedFields{
    "num_heads",        "head_dim",           "short_conv_kernel_size", "kda_layers",
    "full_attn_layers", "use_full_rank_gate", "gate_lower_bound",       "safe_gate"};

std::span<const std::string_view> fields_of(Family family) {
  if (family == Family::kKimi) return kFieldsOfKimi;
  if (family == Family::kGlm) return kFieldsOfGlm;
  return family == Family::kLing ? std::span<const std::string_view>(kFieldsOfLing)
                                 : kFieldsOfAlice;
}

// linear_attn_config; null: there is none.
Status read_nested(const ModelConfig& config, const Json** nested) {
  CUBINERY_RETURN_IF_ERROR(config.read(kNested, nested));
  if (*nested == nullptr) return {};
  for (const auto& [name, value] : (*nested)->items()) {
    if (is_in(kNestedFields, name) || value.is_null() || value == false) continue;
    return invalid_config(fmt::format("{} has {} = {}; accepted: {}", kNested, excerpt(name),
                                      json_excerpt(value), fmt::join(kNestedFields, ", ")));
  }
  return {};
}

// As their classes have it: what is nested goes before what is beside it.
Status read_kimi(const ModelConfig& config, Family family, ModelLayers* model) {
  const bool is_glm = family == Family::kGlm;
  int heads = is_glm ? kGlmKimiHeads : kDefaultKimiHeads;
  int dim = kDefaultHeadDim;
  std::optional<double> lower_bound;
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_heads", &heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_head_dim", &dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_conv_kernel_dim", &model->conv_width));
  if (is_glm) {
    lower_bound = kGlmLowerBound;
    CUBINERY_RETURN_IF_ERROR(config.read("linear_lower_bound", &lower_bound));
    if (config.find("gate_lower_bound") != nullptr) {
      CUBINERY_RETURN_IF_ERROR(config.read("gate_lower_bound", &lower_bound));
    }
  }
  const Json* nested = nullptr;
  CUBINERY_RETURN_IF_ERROR(read_nested(config, &nested));
  if (nested != nullptr) {
    const ModelConfig inner(*nested);
    bool is_safe = is_glm;
    CUBINERY_RETURN_IF_ERROR(inner.read("num_heads", &heads));
    CUBINERY_RETURN_IF_ERROR(inner.read("head_dim", &dim));
    CUBINERY_RETURN_IF_ERROR(inner.read("short_conv_kernel_size", &model->conv_width));
    CUBINERY_RETURN_IF_ERROR(inner.read("gate_lower_bound", &lower_bound));
    CUBINERY_RETURN_IF_ERROR(inner.read("safe_gate", &is_safe));
    if (is_glm && is_safe && !lower_bound) lower_bound = kGlmLowerBound;
    if (is_safe && !lower_bound) {
      return invalid_config(
          fmt::format("{} has safe_gate = true without gate_lower_bound; accepted: both", kNested));
    }
  }
  model->key_heads = model->value_heads = heads;
  model->key_dim = model->value_dim = dim;
  if (lower_bound) model->gate_mode = GateMode::kLowerBound;
  return {};
}

// Its class takes heads and dims of the attention.  Older ones of the same name have lightning
// attention, and no convolution.
Status read_ling(const ModelConfig& config, ModelLayers* model) {
  if (config.find("short_conv_kernel_size") == nullptr) {
    return invalid_config(
        "no field short_conv_kernel_size: the linear layers are not Kimi Delta Attention "
        "(Ling 2.5's are lightning attention); accepted: models with it, such as Ling 3.0");
  }
  int heads = kDefaultKimiHeads;
  int dim = kDefaultHeadDim;
  bool is_safe = true;
  std::optional<double> lower_bound = kLingLowerBound;
  CUBINERY_RETURN_IF_ERROR(config.read("num_attention_heads", &heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_heads", &heads));
  CUBINERY_RETURN_IF_ERROR(config.read("head_dim", &dim));
  // The class replaces its head_dim by that of its rotary embedding.
  CUBINERY_RETURN_IF_ERROR(config.read("linear_head_dim", &dim));
  CUBINERY_RETURN_IF_ERROR(config.read("short_conv_kernel_size", &model->conv_width));
  CUBINERY_RETURN_IF_ERROR(config.read("kda_safe_gate", &is_safe));
  CUBINERY_RETURN_IF_ERROR(config.read("kda_lower_bound", &lower_bound));
  if (is_safe && !lower_bound) {
    return invalid_config(
        fmt::format("kda_safe_gate = true and kda_lower_bound = null; accepted: {}", kLowerBounds));
  }
  model->key_heads = model->value_heads = heads;
  model->key_dim = model->value_dim = dim;
  if (is_safe) model->gate_mode = GateMode::kLowerBound;
  return {};
}

Status read_alice(const ModelConfig& config, ModelLayers* model) {
  model->key_heads = kDefaultKimiHeads;
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &model->key_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_value_heads", &model->value_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model->key_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_value_head_dim", &model->value_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_conv_kernel_dim", &model->conv_width));
  if (model->key_heads != model->value_heads || model->key_dim != model->value_dim) {
    return invalid_config(fmt::format(
        "{} key heads of {} and {} value heads of {} in layers of Kimi Delta Attention; accepted: "
        "as many of one size",
        model->key_heads, model->key_dim, model->value_heads, model->value_dim));
  }
  bool has_negative = false;
  CUBINERY_RETURN_IF_ERROR(config.read("kda_allow_negative_eigenvalues", &has_negative));
  if (!has_negative) return {};
  return invalid_config(
      "kda_allow_negative_eigenvalues = true: what it does to beta is not known; accepted: false");
}

}  // namespace

bool is_kimi_field(std::string_view name) {
  return name.starts_with("kda_") || name == kNested || name == "gate_lower_bound";
}

bool is_read_of_kimi(Family family, std::string_view name) {
  return is_in(fields_of(family), name);
}

bool lists_kimi_layers(Family family) {
  return has_kimi_layers(family) && family != Family::kAlice;
}

Status check_kimi_layers(const ModelConfig& config, Family family) {
  if (family == Family::kLing) {
    int group = kLingGroupSize;
    CUBINERY_RETURN_IF_ERROR(config.read("layer_group_size", &group));
    return group > 1 ? Status() : no_linear_layer("layer_group_size = 1");
  }
  const Json* nested = nullptr;
  CUBINERY_RETURN_IF_ERROR(config.read(kNested, &nested));
  // Where nobody lists them the first layer is one.
  const Json* layers = nested == nullptr ? nullptr : ModelConfig::find_in(*nested, "kda_layers");
  if (layers == nullptr) return {};
  if (!layers->is_array()) {
    return invalid_config(
        fmt::format("kda_layers = {}; accepted: a list of layers", json_excerpt(*layers)));
  }
  return layers->empty() ? no_linear_layer("kda_layers is empty") : Status();
}

Status read_kimi_layers(const ModelConfig& config, Family family, ModelLayers* model) {
  model->decay = Decay::kChannel;
  if (family == Family::kLing) return read_ling(config, model);
  return family == Family::kAlice ? read_alice(config, model) : read_kimi(config, family, model);
}

}  // namespace cubinery::gdn
