#include "cli/model_config.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/print.h"
#include "cli/problem_options.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

std::string config_of(const std::string& model) {
  return read_file(CUBINERY_TEST_DIR "/data/models/" + model + "/config.json").value();
}

std::string model_error(std::string_view text, const std::vector<int>& tp = {1}) {
  const auto requests = read_model_config("config.json", text, tp);
  REQUIRE(!requests);
  CHECK(requests.error().code() == Code::kInvalidArgument);
  return std::string(requests.error().message());
}

std::string manifest_error(std::string_view text) {
  const auto requests = read_manifest("list.json", text);
  REQUIRE(!requests);
  CHECK(requests.error().code() == Code::kInvalidArgument);
  return std::string(requests.error().message());
}

// A config.json with one field replaced, or removed by null.
std::string changed(const std::string& field, const nlohmann::json& value) {
  nlohmann::json config = {{"linear_num_key_heads", 16}, {"linear_num_value_heads", 32},
                           {"linear_key_head_dim", 128}, {"linear_value_head_dim", 128},
                           {"model_type", "qwen3_next"}, {"torch_dtype", "bfloat16"}};
  config[field] = value;
  if (value.is_null()) config.erase(field);
  return config.dump();
}

TEST_CASE("every shipped model config gives its problems for every size", "[cpu]") {
  const std::map<std::string, int> value_heads = {{"Qwen3-Next-80B-A3B-Instruct", 32},
                                                  {"Qwen3.5-0.8B", 16},
                                                  {"Qwen3.5-2B", 16},
                                                  {"Qwen3.5-4B", 32},
                                                  {"Qwen3.5-9B", 32},
                                                  {"Qwen3.5-27B", 48},
                                                  {"Qwen3.5-35B-A3B", 32},
                                                  {"Qwen3.5-122B-A10B", 64},
                                                  {"Qwen3.5-397B-A17B", 64}};
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CUBINERY_TEST_DIR "/data/models")) {
    if (!entry.is_directory()) continue;
    ++found;
    const std::string model = entry.path().filename();
    INFO(model);
    REQUIRE(value_heads.count(model) == 1);
    const auto requests = read_model_config(model, config_of(model), {1, 2, 4, 8, 16}).value();
    REQUIRE(requests.size() == 5);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const gdn::DecodeProblem& problem = requests[i].problem;
      const int tp = 1 << i;
      CHECK(requests[i].origin == model + ", tp " + std::to_string(tp));
      CHECK(requests[i].arch.empty());
      CHECK(problem.q_heads == 16 / tp);
      CHECK(problem.k_heads == 16 / tp);
      CHECK(problem.v_heads == value_heads.at(model) / tp);
      CHECK(problem.key_dim == 128);
      CHECK(problem.value_dim == 128);
      CHECK(problem.check().ok());
    }
  }
  CHECK(found == value_heads.size());
}

TEST_CASE("a model config gives what engines serve it with", "[cpu]") {
  const gdn::DecodeProblem problem =
      read_model_config("c", config_of("Qwen3-Next-80B-A3B-Instruct"), {1}).value()[0].problem;
  CHECK(problem.to_json() ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,)"
        R"("dtype":"bf16","output_dtype":"bf16","gate_dtype":"bf16","beta_dtype":"bf16",)"
        R"("a_log_dtype":"f32","dt_bias_dtype":"bf16","state_dtype":"f32","index_dtype":"i32",)"
        R"("state_layout":"vk","state_location":"pool","padding":"skip","pad_index":"negative",)"
        R"("gate_mode":"computed","beta_mode":"logit","use_qk_l2norm":true,)"
        R"("has_initial_state":true,"store_state":true})");
}

TEST_CASE("dtypes come from the model config", "[cpu]") {
  const auto problem_of = [](const std::string& text) {
    return read_model_config("c", text, {1}).value()[0].problem;
  };
  CHECK(problem_of(changed("torch_dtype", "float16")).dtype == DType::kF16);
  CHECK(problem_of(changed("torch_dtype", "float16")).output_dtype == DType::kF16);
  CHECK(problem_of(changed("torch_dtype", "float16")).dt_bias_dtype == DType::kF16);
  CHECK(problem_of(changed("torch_dtype", "float16")).a_log_dtype == DType::kF32);
  CHECK(problem_of(changed("dtype", "float32")).dtype == DType::kF32);
  CHECK(problem_of(changed("torch_dtype", nullptr)).dtype == DType::kBF16);
  CHECK(problem_of(changed("mamba_ssm_dtype", "bfloat16")).state_dtype == DType::kBF16);
  CHECK(problem_of(changed("mamba_ssm_dtype", nullptr)).state_dtype == DType::kF32);
  // The text model's field goes before one at the top.
  CHECK(problem_of(changed("text_config", {{"dtype", "float16"}})).dtype == DType::kF16);
}

TEST_CASE("a model config that cannot be used says why", "[cpu]") {
  CHECK(model_error(changed("linear_num_key_heads", nullptr)) ==
        "config.json: no field linear_num_key_heads, neither at the top nor under text_config "
        "(model_type \"qwen3_next\"); accepted: models with Gated DeltaNet layers, such as "
        "Qwen3-Next and Qwen3.5");
  CHECK(model_error(changed("linear_key_head_dim", "128")) ==
        "config.json: linear_key_head_dim = \"128\"; accepted: a positive integer");
  CHECK(model_error(changed("linear_key_head_dim", 0)) ==
        "config.json: linear_key_head_dim = 0; accepted: a positive integer");
  CHECK(model_error(changed("linear_key_head_dim", 1e30)).find("accepted: a positive integer") !=
        std::string::npos);
  CHECK(model_error(changed("torch_dtype", "int8")) ==
        "config.json: torch_dtype = \"int8\"; accepted: bfloat16, float16, float32");
  CHECK(model_error(changed("linear_key_head_dim", 100)) ==
        "config.json: gdn_decode: key_dim = 100; accepted: multiples of 16 from 16 to 256");
  CHECK(model_error("[]") == "config.json: accepted: a JSON object");
}

TEST_CASE("a size that does not divide the heads names those that do", "[cpu]") {
  CHECK(model_error(config_of("Qwen3.5-27B"), {1, 3}) ==
        "config.json: linear_num_key_heads = 16 and linear_num_value_heads = 48 are not both "
        "divisible by --tp 3; accepted: 1, 2, 4, 8, 16");
  CHECK(model_error(config_of("Qwen3.5-27B"), {32}).find("--tp 32") != std::string::npos);
}

TEST_CASE("malformed JSON is reported with its position", "[cpu]") {
  CHECK(model_error("{\n  \"a\": 1,\n  \"b\": x\n}") ==
        "config.json: not JSON at line 3, column 8");
  CHECK(model_error("") == "config.json: not JSON at line 1, column 1");
  CHECK(manifest_error("[{]") == "list.json: not JSON at line 1, column 3");
}

TEST_CASE("a manifest gives the problems that it lists", "[cpu]") {
  gdn::DecodeProblem problem;
  problem.v_heads = 48;
  problem.state_dtype = DType::kBF16;
  nlohmann::json full = nlohmann::json::parse(problem.to_json());
  full["op"] = "gdn_decode";
  full["arch"] = "sm_80";
  const nlohmann::json manifest = {full, {{"op", "gdn_decode"}, {"key_dim", 64}}};
  const auto requests = read_manifest("list.json", manifest.dump()).value();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].problem.to_json() == problem.to_json());
  CHECK(requests[0].arch == "sm_80");
  CHECK(requests[1].problem.key_dim == 64);
  CHECK(requests[1].problem.value_dim == gdn::DecodeProblem{}.value_dim);
  CHECK(requests[1].arch.empty());
  CHECK(requests[1].origin == "list.json, entry 2");
  CHECK(read_manifest("list.json", "[]").value().empty());
}

TEST_CASE("a manifest that cannot be used names the entry", "[cpu]") {
  CHECK(manifest_error("{}") == "list.json: accepted: a JSON array of objects");
  CHECK(manifest_error("[1]") == "list.json, entry 1: 1; accepted: an object");
  CHECK(manifest_error(R"([{"op":"gdn_decode"},{"op":"rms_norm"}])") ==
        "list.json, entry 2: op = \"rms_norm\"; accepted: \"gdn_decode\"");
  CHECK(manifest_error(R"([{"key_dim":128}])") ==
        "list.json, entry 1: op = null; accepted: \"gdn_decode\"");
  CHECK(manifest_error(R"([{"op":"gdn_decode","arch":90}])").find("arch = 90; accepted: sm_80") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","head_dim":128}])").find("head_dim") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","dtype":"fp16"}])").find("bf16") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","key_dim":[1]}])").find("entry 1") !=
        std::string::npos);
}

TEST_CASE("every field of the problem is an option, in the same order", "[cpu]") {
  const auto object = nlohmann::ordered_json::parse(gdn::DecodeProblem{}.to_json());
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  std::vector<std::string> options;
  for (const ProblemField& field : problem_fields()) options.emplace_back(field.name);
  CHECK(options == names);
}

TEST_CASE("field options replace fields", "[cpu]") {
  const auto problem =
      with_fields({}, {{"state_dtype", "bf16"}, {"use_qk_l2norm", "true"}, {"v_heads", "64"}});
  REQUIRE(problem);
  CHECK(problem->state_dtype == DType::kBF16);
  CHECK(problem->use_qk_l2norm);
  CHECK(problem->v_heads == 64);
  CHECK(problem->key_dim == gdn::DecodeProblem{}.key_dim);
  for (const auto& [name, text] : std::map<std::string, std::string>{{"state_dtype", "int8"},
                                                                     {"v_heads", "4x"},
                                                                     {"use_qk_l2norm", "yes"},
                                                                     {"key_dim", "8"}}) {
    const auto bad = with_fields({}, {{name, text}});
    REQUIRE(!bad);
    CHECK(bad.error().message().find(name + " = " + text) != std::string::npos);
    CHECK(bad.error().message().find("accepted: ") != std::string::npos);
  }
}

}  // namespace
}  // namespace cubinery
