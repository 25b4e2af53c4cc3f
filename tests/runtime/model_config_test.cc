// What of a model's config.json decides which problems it has: every class of models, the fields
// that change what a layer computes, and what is refused because nobody knows what it computes.
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/gdn.h"
#include "tests/catch.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

using nlohmann::json;

json sizes() {
  return {{"linear_num_key_heads", 16},
          {"linear_num_value_heads", 32},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128}};
}

json with(json config, const json& more) {
  config.update(more);
  return config;
}

json qwen(const json& more = json::object()) {
  return with(sizes(), with({{"model_type", "qwen3_next"}}, more));
}

gdn::ModelProblems problems_of(const json& config, const gdn::ModelOptions& options = {}) {
  INFO(config.dump());
  return gdn::problems_for_model(config.dump(), 1, options).value();
}

std::string text_error(const std::string& config, const gdn::ModelOptions& options = {}) {
  INFO(config);
  const auto problems = gdn::problems_for_model(config, 1, options);
  REQUIRE_FALSE(problems);
  CHECK(problems.error().code() == Code::kInvalidArgument);
  return std::string(problems.error().message());
}
std::string config_error(const json& config, const gdn::ModelOptions& options = {}) {
  return text_error(config.dump(), options);
}

void check_beta(const gdn::ModelProblems& problems, gdn::BetaMode mode) {
  CHECK(problems.decode.inputs.beta_mode == mode);
  CHECK(problems.decode_with_conv.inputs.beta_mode == mode);
  CHECK(problems.prefill.inputs.beta_mode == mode);
  CHECK(problems.verify.inputs.beta_mode == mode);
  CHECK(problems.commit.inputs.beta_mode == mode);
  // The logit is left to the operator behind it.
  CHECK(problems.conv.inputs.beta_mode == gdn::BetaMode::kOne);
}

TEST_CASE("NegativeEigenvaluesDoubleBetaInEveryForm", "[cpu]") {
  constexpr auto kOnce = gdn::BetaMode::kLogit;
  constexpr auto kTwice = gdn::BetaMode::kDoubledLogit;
  check_beta(problems_of({{"model_type", "olmo_hybrid"}}), kTwice);
  check_beta(problems_of({{"architectures", {"OlmoHybridForCausalLM"}}}), kTwice);
  check_beta(problems_of({{"model_type", "olmo3_5_hybrid"}}), kTwice);
  check_beta(problems_of({{"model_type", "olmo_hybrid"}, {"linear_allow_neg_eigval", true}}),
             kTwice);
  check_beta(problems_of({{"model_type", "olmo_hybrid"}, {"linear_allow_neg_eigval", false}}),
             kOnce);
  check_beta(problems_of({{"text_config", {{"model_type", "olmo_hybrid"}}}}), kTwice);
  check_beta(problems_of(qwen()), kOnce);
  check_beta(problems_of(sizes()), kOnce);
  check_beta(problems_of(qwen({{"linear_allow_neg_eigval", true}})), kTwice);
  check_beta(problems_of(with(sizes(), {{"linear_allow_neg_eigval", true}})), kTwice);
  CHECK(config_error(qwen({{"linear_allow_neg_eigval", "yes"}})) ==
        "linear_allow_neg_eigval = \"yes\"; accepted: true, false");
}

// Configurations hold what differs from the class's defaults only.
TEST_CASE("FieldsThatAreAbsentHaveTheirClassesDefaults", "[cpu]") {
  for (const char* type : {"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
                           "qwen3_5_moe_text", "qwen4_exp", "qwen4_exp_text"}) {
    const gdn::ModelProblems bare = problems_of({{"model_type", type}});
    CHECK(bare.decode.to_json() == problems_of(qwen()).decode.to_json());
    CHECK(bare.conv.to_json() == problems_of(qwen()).conv.to_json());
    CHECK(gdn::left_out(bare).empty());
  }
  CHECK(problems_of({{"model_type", "qwen3_5"}, {"linear_num_value_heads", 48}}).prefill.heads.v ==
        48);

  const gdn::ModelProblems olmo = problems_of({{"model_type", "olmo_hybrid"}});
  CHECK(olmo.decode.heads.k == 30);
  CHECK(olmo.decode.heads.v == 30);
  CHECK(olmo.decode.key_dim == 96);
  CHECK(olmo.decode.value_dim == 192);
  CHECK(olmo.conv.width == 4);
  CHECK(gdn::left_out(olmo).empty());
  const gdn::ModelProblems small = problems_of({{"model_type", "olmo_hybrid"},
                                                {"hidden_size", 2048},
                                                {"num_attention_heads", 16},
                                                {"linear_num_value_heads", 32}});
  CHECK(small.decode.heads.k == 16);
  CHECK(small.decode.heads.v == 32);
  CHECK(small.decode.key_dim == 96);  // int(0.75 * 2048 / 16)
  CHECK(small.decode.value_dim == 192);
  CHECK(
      problems_of({{"model_type", "olmo_hybrid"}, {"linear_key_head_dim", 64}}).decode.value_dim ==
      128);
}

TEST_CASE("AModelThatIsNotKnownIsRefusedByName", "[cpu]") {
  const auto refused = [](const json& more) { return config_error(with(sizes(), more)); };
  const std::string known = "models with Gated DeltaNet layers (qwen3_next, qwen3_5, ";
  for (const auto& [more, begin] : std::vector<std::pair<json, std::string>>{
           {{{"model_type", "llama"}}, "model_type = \"llama\"; accepted: " + known},
           {{{"model_type", 7}}, "model_type = 7; accepted: " + known},
           {{{"architectures", {"LlamaForCausalLM"}}}, "architectures = [\"LlamaForCausalLM\"]; "},
           {{{"architectures", "Qwen3NextForCausalLM"}},
            "architectures = \"Qwen3NextForCausalLM\";"},
           {{{"text_config", {{"model_type", "mamba2"}}}, {"model_type", "qwen3_5"}},
            "model_type = \"mamba2\"; "},
           {{{"model_type", "qwen3_next"}, {"architectures", {"OlmoHybridForCausalLM"}}},
            "architectures = [\"OlmoHybridForCausalLM\"]; "},
           {{{"text_config", "qwen3_5"}}, "text_config = \"qwen3_5\"; accepted: an object"}}) {
    INFO(more.dump());
    CHECK(refused(more).starts_with(begin));
  }
  CHECK(refused({{"model_type", "qwen3_nxt"}}).ends_with("did you mean qwen3_next?"));
  // Other heads on a known model, a wrapper of one, and a name that is missing are not.
  for (const json& more : {json{{"architectures", {"Qwen3NextForSequenceClassification"}}},
                           json{{"architectures", {"Qwen3_5MoeForConditionalGeneration"}}},
                           json{{"architectures", nullptr}, {"model_type", nullptr}},
                           json{{"model_type", "wrapper"},
                                {"architectures", {"WrapperForConditionalGeneration"}},
                                {"text_config", {{"model_type", "qwen3_next"}}}}}) {
    CHECK(problems_of(with(sizes(), more)).decode.heads.v == 32);
  }
}

// Some name the sizes of their layers as Gated DeltaNet's.
TEST_CASE("KimiDeltaAttentionOfUnknownModelsIsRefusedByName", "[cpu]") {
  const json linear_attn = {{"kda_layers", {1, 2, 3}}, {"num_heads", 32}, {"head_dim", 128}};
  for (const json& more :
       {json{{"architectures", {"Olmo3MoeForCausalLM"}}}, json{{"model_type", "olmo3moe"}},
        json{{"model_type", "qwen3_next"}, {"architectures", {"Olmo3MoeForCausalLM"}}},
        json{{"text_config", {{"architectures", {"Olmo3MoeForCausalLM"}}}}},
        json{{"linear_attn_config", linear_attn}}, json{{"text_config", {{"kda_layers", {0, 2}}}}},
        json{{"model_type", "qwen3_next"}, {"gate_lower_bound", -5.0}}}) {
    INFO(more.dump());
    const std::string why = config_error(with(sizes(), more));
    CHECK(why.find("Kimi Delta Attention, which have a decay for each channel of k") != why.npos);
    CHECK(why.find(" = ") < why.find("Kimi"));
  }
}

TEST_CASE("AModelWithoutALinearLayerIsRefused", "[cpu]") {
  const auto types = [](const json& kinds) { return config_error(qwen({{"layer_types", kinds}})); };
  CHECK(types({"full_attention", "sliding_attention", "full_attention"}) ==
        "layer_types has full_attention, sliding_attention only: the model has no linear layer; "
        "accepted: at least one linear_attention layer");
  CHECK(types(json::array()).starts_with("layer_types has nothing only"));
  CHECK(
      types({"linear_attention", "mamba"})
          .starts_with("layer_types has \"mamba\"; accepted: linear_attention (Gated DeltaNet, "));
  CHECK(types({"kda", "full_attention"}).starts_with("layer_types has \"kda\"; "));
  CHECK(types("linear_attention").ends_with("accepted: a list of strings"));
  CHECK(types({1, 2}).ends_with("accepted: a list of strings"));
  CHECK(
      config_error(with(sizes(), {{"layer_types", {"full_attention"}}})).find("no linear layer") !=
      std::string::npos);
  CHECK(config_error(
            {{"model_type", "qwen3_5"}, {"text_config", {{"layer_types", {"full_attention"}}}}})
            .find("no linear layer") != std::string::npos);
  // The class makes the list where the configuration has none.
  CHECK(config_error(qwen({{"full_attention_interval", 1}}))
            .starts_with("full_attention_interval = 1: the model has no linear layer"));
  CHECK(config_error({{"model_type", "olmo_hybrid"}, {"num_hidden_layers", 1}})
            .starts_with("num_hidden_layers = 1: the model has no linear layer"));
  CHECK(config_error(qwen({{"full_attention_interval", 0}})).find("from 1 to ") !=
        std::string::npos);
  CHECK(problems_of(qwen({{"layer_types", {"linear_attention", "full_attention"}}})).conv.width ==
        4);
  CHECK(problems_of(qwen({{"layer_types", nullptr}, {"full_attention_interval", 4}})).conv.width ==
        4);
  CHECK(problems_of({{"model_type", "qwen4_exp_text"},
                     {"layer_types", {"linear_attention", "hybrid_indexed"}}})
            .conv.width == 4);
}

TEST_CASE("WhatMayChangeALayerAndIsNotKnownIsRefused", "[cpu]") {
  CHECK(config_error(qwen({{"linear_gate_kind", "exp"}}))
            .starts_with("linear_gate_kind = \"exp\": not known of a Gated DeltaNet layer; "));
  CHECK(config_error({{"model_type", "qwen3_5"}, {"text_config", {{"linear_conv_bias", true}}}})
            .starts_with("linear_conv_bias = true: not known"));
  CHECK(config_error(qwen({{"hidden_act", "gelu"}})) ==
        "hidden_act = \"gelu\"; accepted: silu (of the convolution)");
  CHECK(config_error(qwen({{"output_gate_type", "tanh"}})) ==
        "output_gate_type = \"tanh\"; accepted: silu, swish, sigmoid");
  CHECK(problems_of(qwen({{"linear_gate_kind", nullptr}, {"linear_conv_bias", false}}))
            .decode.heads.v == 32);
  CHECK(problems_of({{"model_type", "olmo_hybrid"},
                     {"linear_a_log_min", 0.0},
                     {"linear_dt_max", 0.1},
                     {"linear_use_gate", true}})
            .decode.heads.v == 30);
}

TEST_CASE("ACallerNamesTheTypeThatAModelComputesLike", "[cpu]") {
  const json unknown = with(sizes(), {{"model_type", "mine"},
                                      {"architectures", {"MineForCausalLM"}},
                                      {"linear_gate_kind", "usual"},
                                      {"layer_types", {"linear_attention", "mine"}}});
  CHECK(config_error(unknown).starts_with("linear_gate_kind"));
  check_beta(problems_of(unknown, {.model_type = "qwen3_next"}), gdn::BetaMode::kLogit);
  check_beta(problems_of(unknown, {.model_type = "olmo_hybrid"}), gdn::BetaMode::kDoubledLogit);
  CHECK(config_error(unknown, {.model_type = "mine"})
            .starts_with("model_type = \"mine\"; accepted: "));
  CHECK(problems_of(json::object(), {.model_type = "qwen3_next"}).decode.to_json() ==
        problems_of(qwen()).decode.to_json());
  // What is not there cannot be named into being.
  CHECK(config_error(qwen({{"layer_types", {"full_attention"}}}), {.model_type = "qwen3_next"})
            .find("no linear layer") != std::string::npos);
  CHECK(gdn::model_types().front() == "qwen3_next");
}

TEST_CASE("TheInnerDtypeGoesBeforeTheOuterWhateverItIsCalled", "[cpu]") {
  const json nested = {{"model_type", "qwen3_5"},
                       {"dtype", "bfloat16"},
                       {"text_config", {{"torch_dtype", "float16"}}}};
  CHECK(problems_of(nested).decode.dtype == DType::kF16);
  CHECK(problems_of(nested).conv.states.dtype == DType::kF16);
  CHECK(config_error(qwen({{"dtype", 16}})) == "dtype = 16; accepted: bfloat16, float16, float32");
}

// json.dumps() of Python writes them.
TEST_CASE("NumbersThatOnlyPythonWritesAreReadOver", "[cpu]") {
  const std::string usual = problems_of(qwen()).decode.to_json();
  for (const char* text :
       {R"({"model_type": "qwen3_next", "time_step_limit": [0.0, Infinity]})",
        R"({"time_step_limit":[-Infinity,Infinity],"model_type":"qwen3_next"})",
        R"({"a":NaN,"model_type":"qwen3_next","b":{"c":[[NaN]]}})",
        "{\"model_type\": \"qwen3_next\", \"a\":\n-Infinity\n}",
        R"({"note": "\"NaN, -Infinity\\", "model_type": "qwen3_next", "eps": NaN})"}) {
    INFO(text);
    CHECK(gdn::problems_for_model(text)->decode.to_json() == usual);
  }
  // Where one is read, it is named.
  const auto field = [](const char* name, const char* value) {
    return text_error(std::string(R"({"model_type": "qwen3_next", ")") + name + "\": " + value +
                      "}");
  };
  CHECK(field("linear_key_head_dim", "Infinity") ==
        "linear_key_head_dim = Infinity; accepted: an integer from 1 to 65536");
  CHECK(field("linear_num_key_heads", "NaN").starts_with("linear_num_key_heads = NaN; accepted: "));
  CHECK(field("linear_conv_kernel_dim", "-Infinity").starts_with("linear_conv_kernel_dim = -Inf"));
  CHECK(field("torch_dtype", "NaN").starts_with("torch_dtype = NaN; accepted: bfloat16"));
  CHECK(
      field("model_type\": \"qwen3_5\", \"layer_types", "Infinity").starts_with("\"model_type\""));
  CHECK(field("layer_types", "Infinity").starts_with("layer_types = Infinity; accepted: a list"));
  CHECK(field("text_config", "NaN") == "text_config = NaN; accepted: an object");
  CHECK(field("linear_allow_neg_eigval", "NaN").starts_with("linear_allow_neg_eigval = NaN; "));
  // Anything like them is not JSON, at its place.
  CHECK(text_error(R"({"a": Infinity, "b": nan})") == "not JSON at column 23");
  CHECK(text_error(R"({"a": Infinityx})").starts_with("not JSON at column "));
  CHECK(text_error(R"({"a": +Infinity})").starts_with("not JSON at column 7"));
  CHECK(text_error(R"({"a": 1Infinity})").starts_with("not JSON at column "));
  CHECK(text_error(R"({NaN: 1})").starts_with("not JSON"));
}

}  // namespace
}  // namespace cubinery
