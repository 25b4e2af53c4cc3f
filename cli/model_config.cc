#include "cli/model_config.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "cli/print.h"
#include "codegen/read_json.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery {
namespace {

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

// A model's config.json; fields are looked up under "text_config" first, then at the top.
class Config {
 public:
  Config(std::string_view file, const Json& root) : file_(file), root_(root) {
    const auto nested = root.find("text_config");
    if (nested != root.end() && nested->is_object()) text_ = &*nested;
  }

  const Json* find(const char* name) const {
    for (const Json* object : {text_, &root_}) {
      if (object == nullptr) continue;
      const auto found = object->find(name);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

  Status read(const char* name, int* value) const {
    const Json* found = find(name);
    if (found == nullptr) {
      const Json* type = find("model_type");
      return invalid(
          fmt::format("{}: no field {}, neither at the top nor under text_config (model_type {}); "
                      "accepted: models "
                      "with Gated DeltaNet layers, such as Qwen3-Next and Qwen3.5",
                      file_, name, type != nullptr ? json_excerpt(*type) : "not given"));
    }
    // No more than a problem may have: sizes are multiplied and divided before it is checked.
    const bool fits = found->is_number_integer() && *found >= 1 && *found <= gdn::kMaxHeads;
    if (!fits) {
      return invalid(fmt::format("{}: {} = {}; accepted: an integer from 1 to {}", file_, name,
                                 json_excerpt(*found), gdn::kMaxHeads));
    }
    *value = found->get<int>();
    return {};
  }

  // Leaves *value as it is when none of the fields is there.
  Status read(std::initializer_list<const char*> names, DType* value) const {
    for (const char* name : names) {
      const Json* found = find(name);
      if (found == nullptr) continue;
      if (*found == "bfloat16") return *value = DType::kBF16, Status();
      if (*found == "float16") return *value = DType::kF16, Status();
      if (*found == "float32") return *value = DType::kF32, Status();
      return invalid(fmt::format("{}: {} = {}; accepted: bfloat16, float16, float32", file_, name,
                                 json_excerpt(*found)));
    }
    return {};
  }

 private:
  std::string_view file_;
  const Json& root_;
  const Json* text_ = nullptr;
};

// What a model's config.json says of its Gated DeltaNet layers.
struct Model {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  DType dtype = DType::kBF16;
  DType state_dtype = DType::kF32;
};

Status read_model(const Config& config, Model* model) {
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &model->key_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_value_heads", &model->value_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model->key_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_value_head_dim", &model->value_dim));
  CUBINERY_RETURN_IF_ERROR(config.read({"dtype", "torch_dtype"}, &model->dtype));
  return config.read({"mamba_ssm_dtype"}, &model->state_dtype);
}

// What the operators have in common.
template <class P>
P served(const Model& model, int tp) {
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
                 .gate_mode = gdn::GateMode::kComputed,
                 .beta_mode = gdn::BetaMode::kLogit,
                 .use_qk_l2norm = true},
      .states = {.dtype = model.state_dtype,
                 .index_dtype = DType::kI32,
                 .layout = gdn::StateLayout::kVK,
                 .location = gdn::StateLocation::kPool,
                 .padding = gdn::Padding::kSkip,
                 .pad_index = gdn::PadIndex::kNegative,
                 .has_initial = true,
                 .store = true}};
}

// In the order of operator_names().
std::vector<Problem> served_problems(const Model& model, int tp) {
  auto prefill = served<gdn::PrefillProblem>(model, tp);
  prefill.cu_seqlens_dtype = DType::kI32;
  prefill.varlen = true;
  prefill.checkpoints = gdn::Checkpoints::kNone;
  return {served<gdn::DecodeProblem>(model, tp), prefill};
}

// The sizes that divide both head counts: "1, 2, 4".
std::string divisors(int key_heads, int value_heads) {
  const int common = std::gcd(key_heads, value_heads);
  std::vector<std::string> sizes;
  for (int size = 1; size <= common; ++size) {
    if (common % size == 0) sizes.push_back(std::to_string(size));
  }
  return join(sizes);
}

}  // namespace

const char* const kModelAssumptions =
    R"(--hf-config asks for what vLLM and SGLang serve such a model with.
  from the file: head counts (divided by --tp), head dims, dtype or torch_dtype (for q, k, v, o, a, b and
                 dt_bias; bf16 when missing), mamba_ssm_dtype (for the state; f32 when missing)
  assumed:       A_log in f32; vk states in a pool, i32 indices, negative ones skipped; the gate computed
                 from A_log, a and dt_bias; beta from its logit; q and k normalised in the kernel;
                 for prefill packed sequences, i32 cu_seqlens, no checkpoints
Each field can be replaced, for example with --state-dtype bf16 or --state-location dense --padding none.)";

Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp) {
  const Result<Json> root = read_json(file, text);
  if (!root) return root.error().clone();
  if (!root->is_object()) return invalid(fmt::format("{}: accepted: a JSON object", file));
  const Config config(file, *root);

  Model model;
  CUBINERY_RETURN_IF_ERROR(read_model(config, &model));

  std::vector<Request> requests;
  for (const int size : tp) {
    if (size < 1 || model.key_heads % size != 0 || model.value_heads % size != 0) {
      return invalid(
          fmt::format("{}: linear_num_key_heads = {} and linear_num_value_heads = {} are not both "
                      "divisible by --tp "
                      "{}; accepted: {}",
                      file, model.key_heads, model.value_heads, size,
                      divisors(model.key_heads, model.value_heads)));
    }
    for (const Problem& problem : served_problems(model, size)) {
      requests.push_back({problem, fmt::format("{}, tp {}", file, size), /*arch=*/{}});
    }
  }
  return requests;
}

Result<std::vector<Request>> read_manifest(std::string_view file, std::string_view text) {
  const Result<Json> root = read_json(file, text);
  if (!root) return root.error().clone();
  if (!root->is_array()) return invalid(fmt::format("{}: accepted: a JSON array of objects", file));
  const std::vector<std::string>& operators = operator_names();
  std::vector<Request> requests;
  for (Json entry : *root) {
    const std::string where = fmt::format("{}, entry {}", file, requests.size() + 1);
    if (!entry.is_object()) {
      return invalid(fmt::format("{}: {}; accepted: an object", where, json_excerpt(entry)));
    }
    const Json op = entry.value("op", Json());
    if (std::find(operators.begin(), operators.end(), op) == operators.end()) {
      return invalid(
          fmt::format("{}: op = {}; accepted: {}", where, json_excerpt(op), join(operators)));
    }
    const Json arch = entry.value("arch", Json(""));
    if (!arch.is_string()) {
      return invalid(fmt::format("{}: arch = {}; accepted: {}", where, json_excerpt(arch),
                                 join(known_architectures())));
    }
    entry.erase("op");
    entry.erase("arch");
    const Result<Problem> problem = parse_problem(op.get<std::string>(), entry.dump());
    if (!problem) return invalid(fmt::format("{}: {}", where, problem.error().message()));
    requests.push_back({.problem = *problem, .origin = where, .arch = arch.get<std::string>()});
  }
  return requests;
}

}  // namespace cubinery
