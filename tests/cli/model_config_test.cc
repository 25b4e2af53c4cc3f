#include "cli/model_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "cli/manifest.h"
#include "cli/print.h"
#include "cli/problem_options.h"
#include "tests/catch.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

using test::config_of;

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

template <class P>
void check_heads_and_dims(const Problem& problem, int key_heads, int value_heads) {
  const P* const held = std::get_if<P>(&problem);
  REQUIRE(held != nullptr);
  CHECK(held->heads.q == key_heads);
  CHECK(held->heads.k == key_heads);
  CHECK(held->heads.v == value_heads);
  CHECK(held->key_dim == 128);
  CHECK(held->value_dim == 128);
  CHECK(held->check().ok());
}

TEST_CASE("every shipped model config gives its problems for every size", "[cpu]") {
  struct Counts {
    int key, value;
  };
  const std::map<std::string, Counts> heads = {{"GLM-5.3-Flash", {64, 64}},
                                               {"Kimi-K3", {96, 96}},
                                               {"Kimi-Linear-48B-A3B-Instruct", {32, 32}},
                                               {"Ling-3.0-Flash", {32, 32}},
                                               {"Qwen3-Next-80B-A3B-Instruct", {16, 32}},
                                               {"Qwen3.5-0.8B", {16, 16}},
                                               {"Qwen3.5-2B", {16, 16}},
                                               {"Qwen3.5-4B", {16, 32}},
                                               {"Qwen3.5-9B", {16, 32}},
                                               {"Qwen3.5-27B", {16, 48}},
                                               {"Qwen3.5-35B-A3B", {16, 32}},
                                               {"Qwen3.5-122B-A10B", {16, 64}},
                                               {"Qwen3.5-397B-A17B", {16, 64}}};
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CUBINERY_TEST_DIR "/data/models")) {
    if (!entry.is_directory()) continue;
    ++found;
    const std::string model = entry.path().filename();
    INFO(model);
    REQUIRE(heads.count(model) == 1);
    const auto requests = read_model_config(model, config_of(model), {1, 2, 4, 8, 16}).value();
    REQUIRE(requests.size() == 40);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const int tp = 1 << i / 8;
      CHECK(requests[i].asked.form == form_names()[i % 8]);
      CHECK(requests[i].origin == model + ", tp " + std::to_string(tp));
      CHECK(requests[i].arch.empty());
      const auto check_problem = i % 8 <= 1   ? check_heads_and_dims<gdn::DecodeProblem>
                                 : i % 8 == 2 ? check_heads_and_dims<gdn::PrefillProblem>
                                 : i % 8 == 3 ? check_heads_and_dims<gdn::VerifyProblem>
                                 : i % 8 == 4 ? check_heads_and_dims<gdn::CommitProblem>
                                              : check_heads_and_dims<gdn::ConvProblem>;
      check_problem(requests[i].asked.problem, heads.at(model).key / tp,
                    heads.at(model).value / tp);
    }
  }
  CHECK(found == heads.size());
}

TEST_CASE("a model config gives what engines serve it with", "[cpu]") {
  const auto requests =
      read_model_config("c", config_of("Qwen3-Next-80B-A3B-Instruct"), {1}).value();
  CHECK(to_json(requests[0].asked.problem) ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,)"
        R"("dtype":"bf16","output_dtype":"bf16","gate_dtype":"bf16","beta_dtype":"bf16",)"
        R"("a_log_dtype":"f32","dt_bias_dtype":"bf16","state_dtype":"f32","index_dtype":"i32",)"
        R"("state_layout":"vk","state_location":"pool",)"
        R"("decay":"head","gate_mode":"computed","beta_mode":"logit","use_qk_l2norm":true,)"
        R"("has_initial_state":true,"store_state":true,"output_norm":"none",)"
        R"("norm_weight_dtype":"f32","conv_width":0,"conv_activation":"silu",)"
        R"("conv_has_bias":false,"conv_weight_dtype":"bf16","conv_state_dtype":"bf16",)"
        R"("conv_state_layout":"columns","conv_whole_window":false,"batch_invariant":false})");
  CHECK(to_json(requests[2].asked.problem) ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,)"
        R"("dtype":"bf16","output_dtype":"bf16","gate_dtype":"bf16","beta_dtype":"bf16",)"
        R"("a_log_dtype":"f32","dt_bias_dtype":"bf16","state_dtype":"f32","index_dtype":"i32",)"
        R"("cu_seqlens_dtype":"i32","token_layout":"bthd","varlen":true,)"
        R"("state_layout":"vk","state_location":"pool",)"
        R"("decay":"head","gate_mode":"computed","beta_mode":"logit","use_qk_l2norm":true,)"
        R"("has_initial_state":true,"store_state":true,"checkpoints":"none",)"
        R"("checkpoint_every":64,"segments":"auto","context_parallel":false,"segment_tokens":8192,)"
        R"("batch_invariant":false})");
  CHECK(to_json(requests[3].asked.problem) ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,)"
        R"("dtype":"bf16","output_dtype":"bf16","gate_dtype":"bf16","beta_dtype":"bf16",)"
        R"("a_log_dtype":"f32","dt_bias_dtype":"bf16","state_dtype":"f32","index_dtype":"i32",)"
        R"("cu_seqlens_dtype":"i32","varlen":true,"draft_tokens":4,)"
        R"("state_layout":"vk","state_location":"pool",)"
        R"("decay":"head","gate_mode":"computed","beta_mode":"logit","use_qk_l2norm":true,)"
        R"("has_initial_state":true,"store_state":true,"stored_states":"every",)"
        R"("from_accepted":true,"accepted_dtype":"i32","tree":false,"parents_dtype":"i32",)"
        R"("round_each_token":false,"output_norm":"none","norm_weight_dtype":"f32",)"
        R"("batch_invariant":false})");
  CHECK(to_json(requests[4].asked.problem) ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,)"
        R"("dtype":"bf16","gate_dtype":"bf16","beta_dtype":"bf16",)"
        R"("a_log_dtype":"f32","dt_bias_dtype":"bf16","state_dtype":"f32","index_dtype":"i32",)"
        R"("cu_seqlens_dtype":"i32","varlen":true,"draft_tokens":4,)"
        R"("state_layout":"vk","state_location":"pool",)"
        R"("decay":"head","gate_mode":"computed","beta_mode":"logit","use_qk_l2norm":true,)"
        R"("has_initial_state":true,"store_state":true,"accepted_dtype":"i32",)"
        R"("batch_invariant":false})");
  CHECK(to_json(requests[5].asked.problem) ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,)"
        R"("dtype":"bf16","weight_dtype":"bf16","width":4,"activation":"silu",)"
        R"("has_bias":false,"split_qkv":true,"gate_dtype":"f32","beta_dtype":"f32",)"
        R"("a_log_dtype":"f32","dt_bias_dtype":"f32","state_dtype":"bf16","index_dtype":"i32",)"
        R"("cu_seqlens_dtype":"i32","varlen":true,"state_layout":"columns",)"
        R"("state_location":"pool",)"
        R"("decay":"head","gate_mode":"none","beta_mode":"one","use_qk_l2norm":false,)"
        R"("has_initial_state":true,"store_state":true,"whole_window":false,)"
        R"("stored_states":"last","from_accepted":false,"accepted_dtype":"i32",)"
        R"("circular_state":false,)"
        R"("checkpoints":"none","checkpoint_every":64,"batch_invariant":false})");
}

TEST_CASE("dtypes come from the model config", "[cpu]") {
  const auto problem_of = [](const std::string& text) {
    const auto requests = read_model_config("c", text, {1}).value();
    const auto& decode = std::get<gdn::DecodeProblem>(requests[0].asked.problem);
    const auto& prefill = std::get<gdn::PrefillProblem>(requests[2].asked.problem);
    const auto& verify = std::get<gdn::VerifyProblem>(requests[3].asked.problem);
    const auto& commit = std::get<gdn::CommitProblem>(requests[4].asked.problem);
    const auto& conv = std::get<gdn::ConvProblem>(requests[5].asked.problem);
    CHECK(conv.dtype == decode.dtype);
    CHECK(conv.weight_dtype == decode.dtype);
    CHECK(conv.states.dtype == decode.dtype);
    const auto check_same = [&](const auto& other) {
      CHECK(other.dtype == decode.dtype);
      CHECK(other.inputs.dt_bias_dtype == decode.inputs.dt_bias_dtype);
      CHECK(other.inputs.a_log_dtype == decode.inputs.a_log_dtype);
      CHECK(other.states.dtype == decode.states.dtype);
    };
    check_same(prefill);
    check_same(verify);
    check_same(commit);
    CHECK(prefill.output_dtype == decode.output_dtype);
    CHECK(verify.output_dtype == decode.output_dtype);
    return decode;
  };
  CHECK(problem_of(changed("torch_dtype", "float16")).dtype == DType::kF16);
  CHECK(problem_of(changed("torch_dtype", "float16")).output_dtype == DType::kF16);
  CHECK(problem_of(changed("torch_dtype", "float16")).inputs.dt_bias_dtype == DType::kF16);
  CHECK(problem_of(changed("torch_dtype", "float16")).inputs.a_log_dtype == DType::kF32);
  CHECK(problem_of(changed("dtype", "float32")).dtype == DType::kF32);
  CHECK(problem_of(changed("torch_dtype", nullptr)).dtype == DType::kBF16);
  CHECK(problem_of(changed("mamba_ssm_dtype", "bfloat16")).states.dtype == DType::kBF16);
  CHECK(problem_of(changed("mamba_ssm_dtype", nullptr)).states.dtype == DType::kF32);
  // The text model's field goes before one at the top.
  CHECK(problem_of(changed("text_config", {{"dtype", "float16"}})).dtype == DType::kF16);
}

TEST_CASE("a model config that cannot be used says why", "[cpu]") {
  CHECK(model_error(R"({"linear_num_value_heads": 32})")
            .starts_with("config.json: no field linear_num_key_heads, neither at the top nor under "
                         "text_config (model_type not given); accepted: models with Gated DeltaNet "
                         "layers (qwen3_next, qwen3_5, "));
  CHECK(model_error(changed("linear_key_head_dim", "128")) ==
        "config.json: linear_key_head_dim = \"128\"; accepted: an integer from 1 to 65536");
  CHECK(model_error(changed("linear_key_head_dim", 0)) ==
        "config.json: linear_key_head_dim = 0; accepted: an integer from 1 to 65536");
  CHECK(model_error(changed("linear_key_head_dim", 1e30))
            .find("accepted: an integer from 1 to 65536") != std::string::npos);
  CHECK(model_error(changed("torch_dtype", "int8")) ==
        "config.json: torch_dtype = \"int8\"; accepted: bfloat16, float16, float32");
  CHECK(model_error("[]") == "config.json: accepted: a JSON object");
}

TEST_CASE("a size that does not divide the heads names those that do", "[cpu]") {
  CHECK(model_error(config_of("Qwen3.5-27B"), {1, 3}) ==
        "config.json: linear_num_key_heads = 16 and linear_num_value_heads = 48 are not both "
        "divisible by tp = 3; accepted: 1, 2, 4, 8, 16");
  CHECK(model_error(config_of("Qwen3.5-27B"), {32}).find("tp = 32;") != std::string::npos);
}

// Products of more heads than these overflow, and their divisors take for ever to list.
TEST_CASE("head counts have a limit", "[cpu]") {
  CHECK(model_error(changed("linear_num_key_heads", 2147483647), {2}) ==
        "config.json: linear_num_key_heads = 2147483647; accepted: an integer from 1 to 65536");
  CHECK(model_error(changed("linear_num_value_heads", 65537)).find("= 65537; ") !=
        std::string::npos);
  CHECK(
      model_error(changed("linear_num_value_heads", 65536), {3}).find("accepted: 1, 2, 4, 8, 16") !=
      std::string::npos);
}

TEST_CASE("JSON that is out of bounds names its file", "[cpu]") {
  const std::string deep(1'000'000, '[');
  CHECK(model_error("{\"a\":" + deep) ==
        "config.json: arrays and objects more than 64 deep at column 69");
  CHECK(manifest_error(deep) == "list.json: arrays and objects more than 64 deep at column 65");
  CHECK(model_error("{\"a\":1e999}") == "config.json: a number that no double holds at column 10");
  CHECK(manifest_error("[{\"op\":\"" + std::string(1000, 'x') + "\"}]").size() < 400);
}

TEST_CASE("malformed JSON is reported with its position", "[cpu]") {
  CHECK(model_error("{\n  \"a\": 1,\n  \"b\": x\n}") ==
        "config.json: not JSON at line 3, column 8");
  CHECK(model_error("") == "config.json: not JSON at column 1");
  CHECK(manifest_error("[{]") == "list.json: not JSON at column 3");
}

TEST_CASE("a manifest gives the problems that it lists", "[cpu]") {
  const Problem decode = gdn::DecodeProblem{.heads = {.v = 48}, .states = {.dtype = DType::kBF16}};
  const Problem prefill =
      gdn::PrefillProblem{.varlen = true, .checkpoints = gdn::Checkpoints::kAfter};
  nlohmann::json manifest = nlohmann::json::array();
  const Problem verify = gdn::VerifyProblem{.draft_tokens = 8, .from_accepted = true};
  const Problem commit = gdn::CommitProblem{.draft_tokens = 8, .varlen = true};
  const Problem conv = gdn::ConvProblem{.width = 3, .varlen = true};
  for (const Problem& problem : {decode, prefill, verify, commit, conv}) {
    manifest.push_back(nlohmann::json::parse(to_json(problem)));
    manifest.back()["op"] = operator_of(problem);
    manifest.back()["arch"] = "sm_80";
  }
  manifest.push_back({{"op", "gdn_decode"}, {"key_dim", 64}});
  const auto requests = read_manifest("list.json", manifest.dump()).value();
  REQUIRE(requests.size() == 6);
  CHECK(operator_of(requests[0].asked.problem) == "gdn_decode");
  CHECK(to_json(requests[0].asked.problem) == to_json(decode));
  CHECK(requests[0].arch == "sm_80");
  CHECK(operator_of(requests[1].asked.problem) == "gdn_prefill");
  CHECK(to_json(requests[1].asked.problem) == to_json(prefill));
  CHECK(operator_of(requests[2].asked.problem) == "gdn_verify");
  CHECK(to_json(requests[2].asked.problem) == to_json(verify));
  CHECK(operator_of(requests[3].asked.problem) == "gdn_commit");
  CHECK(to_json(requests[3].asked.problem) == to_json(commit));
  CHECK(operator_of(requests[4].asked.problem) == "gdn_conv");
  CHECK(to_json(requests[4].asked.problem) == to_json(conv));
  const auto& partial = std::get<gdn::DecodeProblem>(requests[5].asked.problem);
  CHECK(partial.key_dim == 64);
  CHECK(partial.value_dim == gdn::DecodeProblem{}.value_dim);
  CHECK(requests[5].arch.empty());
  CHECK(requests[5].origin == "list.json, entry 6");
  CHECK(read_manifest("list.json", "[]").value().empty());
}

TEST_CASE("a manifest that cannot be used names the entry", "[cpu]") {
  CHECK(manifest_error("7") ==
        "list.json: accepted: a JSON array of objects, or an object on each line");
  CHECK(manifest_error("{\n}") == manifest_error("7"));
  CHECK(manifest_error("{}") ==
        "list.json, line 1: op = null; accepted: gdn_decode, gdn_prefill, gdn_verify, gdn_commit, "
        "gdn_conv");
  CHECK(manifest_error("[1]") == "list.json, entry 1: 1; accepted: an object");
  CHECK(manifest_error(R"([{"op":"gdn_decode"},{"op":"rms_norm"}])") ==
        "list.json, entry 2: op = \"rms_norm\"; accepted: gdn_decode, gdn_prefill, gdn_verify, "
        "gdn_commit, gdn_conv");
  CHECK(manifest_error(R"([{"key_dim":128}])") ==
        "list.json, entry 1: op = null; accepted: gdn_decode, gdn_prefill, gdn_verify, "
        "gdn_commit, gdn_conv");
  CHECK(manifest_error(R"([{"op":7}])") ==
        "list.json, entry 1: op = 7; accepted: gdn_decode, gdn_prefill, gdn_verify, "
        "gdn_commit, gdn_conv");
  // A field of another operator.
  CHECK(manifest_error(R"([{"op":"gdn_decode","varlen":true}])").find("varlen") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","arch":90}])").find("arch = 90; accepted: sm_80") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","head_dim":128}])").find("head_dim") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","dtype":"fp16"}])").find("bf16") !=
        std::string::npos);
  CHECK(manifest_error(R"([{"op":"gdn_decode","key_dim":[1]}])").find("entry 1") !=
        std::string::npos);
}

TEST_CASE("every field of every operator is an option, once and in the same order", "[cpu]") {
  std::set<std::string> of_any;
  for (const std::string& op : operator_names()) {
    const auto object = nlohmann::ordered_json::parse(to_json(default_problem(op)));
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) names.push_back(name);
    std::vector<std::string> options;
    for (const ProblemField& field : problem_fields()) {
      if (object.contains(field.name)) options.emplace_back(field.name);
    }
    CHECK(options == names);
    of_any.insert(names.begin(), names.end());
  }
  CHECK(problem_fields().size() == of_any.size());
}

TEST_CASE("field options replace fields", "[cpu]") {
  const std::map<std::string, std::string> fields = {
      {"state_dtype", "bf16"},   {"use_qk_l2norm", "true"},   {"v_heads", "64"},
      {"checkpoints", "before"}, {"checkpoint_every", "128"}, {"segments", "never"},
      {"draft_tokens", "8"},     {"stored_states", "every"}};
  const Problem decode = with_fields(gdn::DecodeProblem{}, fields).value();
  CHECK(to_json(decode) == gdn::DecodeProblem{.heads = {.v = 64},
                                              .inputs = {.use_qk_l2norm = true},
                                              .states = {.dtype = DType::kBF16}}
                               .to_json());
  const Problem prefill = with_fields(gdn::PrefillProblem{}, fields).value();
  CHECK(to_json(prefill) == gdn::PrefillProblem{.heads = {.v = 64},
                                                .inputs = {.use_qk_l2norm = true},
                                                .states = {.dtype = DType::kBF16},
                                                .checkpoints = gdn::Checkpoints::kBefore,
                                                .checkpoint_every = 128,
                                                .segments = gdn::Segments::kNever}
                                .to_json());
  const Problem verify = with_fields(gdn::VerifyProblem{}, fields).value();
  CHECK(to_json(verify) == gdn::VerifyProblem{.heads = {.v = 64},
                                              .inputs = {.use_qk_l2norm = true},
                                              .states = {.dtype = DType::kBF16},
                                              .draft_tokens = 8,
                                              .stored_states = gdn::StoredStates::kEvery}
                               .to_json());
  const Problem commit = with_fields(gdn::CommitProblem{}, fields).value();
  CHECK(to_json(commit) == gdn::CommitProblem{.heads = {.v = 64},
                                              .inputs = {.use_qk_l2norm = true},
                                              .states = {.dtype = DType::kBF16},
                                              .draft_tokens = 8}
                               .to_json());
}

TEST_CASE("a field option that cannot be used says why", "[cpu]") {
  for (const auto& [name, text] : std::map<std::string, std::string>{{"state_dtype", "int8"},
                                                                     {"v_heads", "4x"},
                                                                     {"use_qk_l2norm", "yes"},
                                                                     {"key_dim", "8"},
                                                                     {"varlen", "maybe"}}) {
    const auto bad = with_fields(gdn::PrefillProblem{}, {{name, text}});
    REQUIRE(!bad);
    CHECK(bad.error().message().find(fmt::format("{} = {}", name, text)) != std::string::npos);
    CHECK(bad.error().message().find("accepted: ") != std::string::npos);
  }
}

}  // namespace
}  // namespace cubinery
