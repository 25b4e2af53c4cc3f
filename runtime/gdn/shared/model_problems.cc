#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "codegen/read_json.h"
#include "cubinery/gdn_models.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

Status invalid_config(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}

Result<Json> parse_config(std::string_view text) {
  Result<Json> root = read_json("", text);
  if (root && !root->is_object()) return invalid_config("accepted: a JSON object");
  return root;
}

// A model's config.json; fields are looked up under "text_config" first, then at the top.
class ModelConfig {
 public:
  explicit ModelConfig(const Json& root) : root_(root) {
    const auto nested = root.find("text_config");
    if (nested != root.end() && nested->is_object()) text_ = &*nested;
  }

  Status read(const char* name, int* value) const {
    const Json* found = find(name);
    if (found == nullptr) {
      const Json* type = find("model_type");
      return invalid_config(
          fmt::format("no field {}, neither at the top nor under text_config (model_type {}); "
                      "accepted: models with Gated DeltaNet layers, such as Qwen3-Next and Qwen3.5",
                      name, type != nullptr ? json_excerpt(*type) : "not given"));
    }
    // No more than a problem may have: sizes are multiplied and divided before it is checked.
    const bool fits = found->is_number_integer() && *found >= 1 && *found <= kMaxHeads;
    if (!fits) {
      return invalid_config(fmt::format("{} = {}; accepted: an integer from 1 to {}", name,
                                        json_excerpt(*found), kMaxHeads));
    }
    *value = found->get<int>();
    return {};
  }

  // Leaves *value as it is when the field is not there; below, when none of them is.
  Status read_if_there(const char* name, int* value) const {
    return find(name) == nullptr ? Status() : read(name, value);
  }

  Status read(std::initializer_list<const char*> names, DType* value) const {
    for (const char* name : names) {
      const Json* found = find(name);
      if (found == nullptr) continue;
      const std::string text = found->is_string() ? found->get<std::string>() : "";
      if (text == "bfloat16") return *value = DType::kBF16, Status();
      if (text == "float16") return *value = DType::kF16, Status();
      if (text == "float32") return *value = DType::kF32, Status();
      return invalid_config(
          fmt::format("{} = {}; accepted: bfloat16, float16, float32", name, json_excerpt(*found)));
    }
    return {};
  }

 private:
  const Json* find(const char* name) const {
    for (const Json* object : {text_, &root_}) {
      if (object == nullptr) continue;
      const auto found = object->find(name);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

  const Json& root_;
  const Json* text_ = nullptr;
};

// What a model's config.Json says of its Gated DeltaNet layers.
struct ModelLayers {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int conv_width = 4;
  DType dtype = DType::kBF16;
  DType state_dtype = DType::kF32;
};

Status read_model(const ModelConfig& config, ModelLayers* model) {
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &model->key_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_value_heads", &model->value_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model->key_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_value_head_dim", &model->value_dim));
  CUBINERY_RETURN_IF_ERROR(config.read_if_there("linear_conv_kernel_dim", &model->conv_width));
  CUBINERY_RETURN_IF_ERROR(config.read({"dtype", "torch_dtype"}, &model->dtype));
  return config.read({"mamba_ssm_dtype"}, &model->state_dtype);
}

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
  return invalid_config(fmt::format(
      "linear_num_key_heads = {} and linear_num_value_heads = {} are not both "
      "divisible by tp = {}; accepted: {}",
      model.key_heads, model.value_heads, tp, divisors(model.key_heads, model.value_heads)));
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
                 .dt_bias_dtype = model.dtype,
                 .gate_mode = GateMode::kComputed,
                 .beta_mode = BetaMode::kLogit,
                 .use_qk_l2norm = true},
      .states = {.dtype = model.state_dtype,
                 .index_dtype = DType::kI32,
                 .layout = StateLayout::kVK,
                 .location = StateLocation::kPool,
                 .padding = Padding::kSkip,
                 .pad_index = PadIndex::kNegative,
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
                      .weight_dtype = model.dtype,
                      .width = model.conv_width,
                      .activation = Activation::kSilu,
                      .has_bias = false,
                      .split_qkv = true};
  problem.states.dtype = model.dtype;
  problem.states.index_dtype = behind.states.index_dtype;
  problem.states.layout = ConvStateLayout::kColumns;
  problem.states.location = behind.states.location;
  problem.states.padding = behind.states.padding;
  problem.states.pad_index = behind.states.pad_index;
  return problem;
}

}  // namespace

Result<ModelProblems> problems_for_model(std::string_view config_json, int tp) {
  const Result<Json> root = parse_config(config_json);
  if (!root) return root.error().clone();
  ModelLayers model;
  CUBINERY_RETURN_IF_ERROR(read_model(ModelConfig(*root), &model));
  CUBINERY_RETURN_IF_ERROR(check_tp(model, tp));

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

}  // namespace cubinery::gdn
