#include "cli/model_config.h"

#include <fmt/format.h>

#include <climits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "cli/print.h"

namespace cubinery {
namespace {

using nlohmann::json;

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

// "line 3, column 7" of the byte that a parser stopped at, counted from 1.
std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

Result<json> parse(std::string_view file, std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    return invalid(fmt::format("{}: not JSON at {}", file, position(text, error.byte)));
  }
}

// A model's config.json; fields are looked up under "text_config" first, then at the top.
class Config {
 public:
  Config(std::string_view file, const json& root) : file_(file), root_(root) {
    const auto nested = root.find("text_config");
    if (nested != root.end() && nested->is_object()) text_ = &*nested;
  }

  const json* find(const char* name) const {
    for (const json* object : {text_, &root_}) {
      if (object == nullptr) continue;
      const auto found = object->find(name);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

  Status read(const char* name, int* value) const {
    const json* found = find(name);
    if (found == nullptr) {
      const json* type = find("model_type");
      return invalid(
          fmt::format("{}: no field {}, neither at the top nor under text_config (model_type {}); "
                      "accepted: models "
                      "with Gated DeltaNet layers, such as Qwen3-Next and Qwen3.5",
                      file_, name, type != nullptr ? type->dump() : "not given"));
    }
    const bool fits = found->is_number_integer() && *found >= 1 && *found <= INT_MAX;
    if (!fits) {
      return invalid(
          fmt::format("{}: {} = {}; accepted: a positive integer", file_, name, found->dump()));
    }
    *value = found->get<int>();
    return {};
  }

  // Leaves *value as it is when none of the fields is there.
  Status read(std::initializer_list<const char*> names, DType* value) const {
    for (const char* name : names) {
      const json* found = find(name);
      if (found == nullptr) continue;
      if (*found == "bfloat16") return *value = DType::kBF16, Status();
      if (*found == "float16") return *value = DType::kF16, Status();
      if (*found == "float32") return *value = DType::kF32, Status();
      return invalid(fmt::format("{}: {} = {}; accepted: bfloat16, float16, float32", file_, name,
                                 found->dump()));
    }
    return {};
  }

 private:
  std::string_view file_;
  const json& root_;
  const json* text_ = nullptr;
};

gdn::DecodeProblem served_defaults() {
  return {.a_log_dtype = DType::kF32,
          .state_dtype = DType::kF32,
          .index_dtype = DType::kI32,
          .state_layout = gdn::StateLayout::kVK,
          .state_location = gdn::StateLocation::kPool,
          .padding = gdn::Padding::kSkip,
          .pad_index = gdn::PadIndex::kNegative,
          .gate_mode = gdn::GateMode::kComputed,
          .beta_mode = gdn::BetaMode::kLogit,
          .use_qk_l2norm = true,
          .has_initial_state = true,
          .store_state = true};
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

Status add_file(std::string_view where, const Status& error) {
  return invalid(fmt::format("{}: {}", where, error.message()));
}

}  // namespace

Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp) {
  const Result<json> root = parse(file, text);
  if (!root) return root.error().clone();
  if (!root->is_object()) return invalid(fmt::format("{}: accepted: a JSON object", file));
  const Config config(file, *root);

  gdn::DecodeProblem model = served_defaults();
  int key_heads = 0;
  int value_heads = 0;
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_key_heads", &key_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_num_value_heads", &value_heads));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_key_head_dim", &model.key_dim));
  CUBINERY_RETURN_IF_ERROR(config.read("linear_value_head_dim", &model.value_dim));
  CUBINERY_RETURN_IF_ERROR(config.read({"dtype", "torch_dtype"}, &model.dtype));
  CUBINERY_RETURN_IF_ERROR(config.read({"mamba_ssm_dtype"}, &model.state_dtype));
  model.output_dtype = model.gate_dtype = model.beta_dtype = model.dt_bias_dtype = model.dtype;

  std::vector<Request> requests;
  for (const int size : tp) {
    if (size < 1 || key_heads % size != 0 || value_heads % size != 0) {
      return invalid(
          fmt::format("{}: linear_num_key_heads = {} and linear_num_value_heads = {} are not both "
                      "divisible by --tp "
                      "{}; accepted: {}",
                      file, key_heads, value_heads, size, divisors(key_heads, value_heads)));
    }
    Request request{.problem = model, .origin = fmt::format("{}, tp {}", file, size), .arch = {}};
    request.problem.q_heads = request.problem.k_heads = key_heads / size;
    request.problem.v_heads = value_heads / size;
    if (const Status status = request.problem.check(); !status.ok()) return add_file(file, status);
    requests.push_back(std::move(request));
  }
  return requests;
}

Result<std::vector<Request>> read_manifest(std::string_view file, std::string_view text) {
  const Result<json> root = parse(file, text);
  if (!root) return root.error().clone();
  if (!root->is_array()) return invalid(fmt::format("{}: accepted: a JSON array of objects", file));
  std::vector<Request> requests;
  for (json entry : *root) {
    const std::string where = fmt::format("{}, entry {}", file, requests.size() + 1);
    if (!entry.is_object()) {
      return invalid(fmt::format("{}: {}; accepted: an object", where, entry.dump()));
    }
    const json op = entry.value("op", json());
    if (op != "gdn_decode") {
      return invalid(fmt::format("{}: op = {}; accepted: \"gdn_decode\"", where, op.dump()));
    }
    const json arch = entry.value("arch", json(""));
    if (!arch.is_string()) {
      return invalid(fmt::format("{}: arch = {}; accepted: {}", where, arch.dump(),
                                 join(known_architectures())));
    }
    entry.erase("op");
    entry.erase("arch");
    const Result<gdn::DecodeProblem> problem = gdn::DecodeProblem::from_json(entry.dump());
    if (!problem) return add_file(where, problem.error());
    if (const Status status = problem->check(); !status.ok()) return add_file(where, status);
    requests.push_back({.problem = *problem, .origin = where, .arch = arch.get<std::string>()});
  }
  return requests;
}

}  // namespace cubinery
