#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "cubinery/gdn_models.h"

namespace cubinery::gdn {
namespace {

using nlohmann::json;

Status invalid_config(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}

// Where a parser stops: how many bytes it has read.
struct StopPlace final : nlohmann::json_sax<json> {
  std::size_t byte = 0;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t at, const std::string&, const json::exception&) override {
    byte = at;
    return false;
  }
};

// "line 3, column 7" of the byte that a parser stopped at, counted from 1.
std::string stop_position(std::string_view text) {
  StopPlace stop;
  json::sax_parse(text, &stop);
  const std::string_view before = text.substr(0, stop.byte > 0 ? stop.byte - 1 : 0);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

Result<json> parse_config(std::string_view text) {
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    return invalid_config(fmt::format("not JSON at {}", stop_position(text)));
  }
  if (!root.is_object()) return invalid_config("accepted: a JSON object");
  return root;
}

// A model's config.json; fields are looked up under "text_config" first, then at the top.
class ModelConfig {
 public:
  explicit ModelConfig(const json& root) : root_(root) {
    const auto nested = root.find("text_config");
    if (nested != root.end() && nested->is_object()) text_ = &*nested;
  }

  Status read(const char* name, int* value) const {
    const json* found = find(name);
    if (found == nullptr) {
      const json* type = find("model_type");
      return invalid_config(
          fmt::format("no field {}, neither at the top nor under text_config (model_type {}); "
                      "accepted: models with Gated DeltaNet layers, such as Qwen3-Next and Qwen3.5",
                      name, type != nullptr ? text_of(*type) : "not given"));
    }
    const bool fits = found->is_number_integer() && *found >= 1 && *found <= INT_MAX;
    if (!fits) {
      return invalid_config(
          fmt::format("{} = {}; accepted: a positive integer", name, text_of(*found)));
    }
    *value = found->get<int>();
    return {};
  }

  // Leaves *value as it is when none of the fields is there.
  Status read(std::initializer_list<const char*> names, DType* value) const {
    for (const char* name : names) {
      const json* found = find(name);
      if (found == nullptr) continue;
      const std::string text = found->is_string() ? found->get<std::string>() : "";
      if (text == "bfloat16") return *value = DType::kBF16, Status();
      if (text == "float16") return *value = DType::kF16, Status();
      if (text == "float32") return *value = DType::kF32, Status();
      return invalid_config(
          fmt::format("{} = {}; accepted: bfloat16, float16, float32", name, text_of(*found)));
    }
    return {};
  }

 private:
  static std::string text_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  const json* find(const char* name) const {
    for (const json* object : {text_, &root_}) {
      if (object == nullptr) continue;
      const auto found = object->find(name);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

  const json& root_;
  const json* text_ = nullptr;
};

// What a model's config.json says of its Gated DeltaNet layers.
struct ModelLayers {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  DType dtype = DType::kBF16;
  DType state_dtype = DType::kF32;
};

Status read_model(const ModelConfig& config, ModelLayers* model) {
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &model->key_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_value_heads", &model->value_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model->key_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_value_head_dim", &model->value_dim));
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
  return {
      .heads = {.q = model.key_heads / tp, .k = model.key_heads / tp, .v = model.value_heads / tp},
      .key_dim = model.key_dim,
      .value_dim = model.value_dim,
      .dtype = model.dtype,
      .output_dtype = model.dtype,
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
}

}  // namespace

Result<ModelProblems> problems_for_model(std::string_view config_json, int tp) {
  const Result<json> root = parse_config(config_json);
  if (!root) return root.error().clone();
  ModelLayers model;
  CUBINERY_RETURN_IF_ERROR(read_model(ModelConfig(*root), &model));
  CUBINERY_RETURN_IF_ERROR(check_tp(model, tp));

  ModelProblems problems{.decode = served<DecodeProblem>(model, tp),
                         .prefill = served<PrefillProblem>(model, tp)};
  problems.prefill.cu_seqlens_dtype = DType::kI32;
  problems.prefill.varlen = true;
  problems.prefill.checkpoints = Checkpoints::kNone;
  return problems;
}

}  // namespace cubinery::gdn
