// Models whose linear layers are Kimi Delta Attention: what their configurations say, where classes
// put it, and what is refused because nobody knows what it computes.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cubinery/gdn.h"
#include "tests/catch.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

using nlohmann::json;
using test::config_of;

constexpr auto kSoftplus = gdn::GateMode::kComputed;
constexpr auto kBounded = gdn::GateMode::kLowerBound;

gdn::ModelProblems kimi_problems(const json& config, const gdn::ModelOptions& options = {}) {
  INFO(config.dump());
  return gdn::problems_for_model(config.dump(), 1, options).value();
}

gdn::GateMode gate_of(const json& config) { return kimi_problems(config).decode.inputs.gate_mode; }

std::string kimi_error(const json& config, int tp = 1, const gdn::ModelOptions& options = {}) {
  INFO(config.dump());
  const auto problems = gdn::problems_for_model(config.dump(), tp, options);
  REQUIRE_FALSE(problems);
  CHECK(problems.error().code() == Code::kInvalidArgument);
  return std::string(problems.error().message());
}

json ling(const json& more = json::object()) {
  json config = {{"model_type", "bailing_hybrid"}, {"short_conv_kernel_size", 4}};
  config.update(more);
  return config;
}

json nested(const char* type, const json& fields) {
  return {{"model_type", type}, {"linear_attn_config", fields}};
}

template <class P>
void check_recurrence(const P& problem, int heads, gdn::GateMode gate) {
  CHECK(problem.inputs.decay == gdn::Decay::kChannel);
  CHECK(problem.inputs.gate_mode == gate);
  CHECK(problem.inputs.beta_mode == gdn::BetaMode::kLogit);
  CHECK(problem.inputs.use_qk_l2norm);
  CHECK(problem.inputs.gate_dtype == DType::kBF16);
  CHECK(problem.inputs.a_log_dtype == DType::kF32);
  CHECK(problem.inputs.dt_bias_dtype == DType::kF32);
  CHECK(problem.states.dtype == DType::kF32);
  CHECK((problem.heads.q == heads && problem.heads.k == heads && problem.heads.v == heads));
  CHECK((problem.key_dim == 128 && problem.value_dim == 128));
}

void check_conv(const gdn::ConvProblem& problem, int heads) {
  CHECK(problem.inputs.gate_mode == gdn::GateMode::kNone);
  CHECK(problem.weight_dtype == DType::kF32);
  CHECK(problem.states.dtype == DType::kBF16);
  CHECK(problem.states.layout == gdn::ConvStateLayout::kChannels);
  CHECK((problem.width == 4 && problem.heads.v == heads && problem.check().ok()));
}

TEST_CASE("ModelsWithKimiLayersHaveADecayForEachChannel", "[cpu]") {
  struct Model {
    const char* name;
    int heads;
    gdn::GateMode gate;
  };
  for (const auto& [name, heads, gate] :
       {Model{"Kimi-Linear-48B-A3B-Instruct", 32, kSoftplus}, Model{"Kimi-K3", 96, kBounded},
        Model{"GLM-5.3-Flash", 64, kBounded}, Model{"Ling-3.0-Flash", 32, kBounded}}) {
    for (const int tp : {1, 8}) {
      INFO(name);
      const auto problems = gdn::problems_for_model(config_of(name), tp).value();
      check_recurrence(problems.decode, heads / tp, gate);
      check_recurrence(problems.decode_with_conv, heads / tp, gate);
      check_recurrence(problems.prefill, heads / tp, gate);
      check_recurrence(problems.verify, heads / tp, gate);
      check_recurrence(problems.commit, heads / tp, gate);
      check_conv(problems.conv, heads / tp);
      check_conv(problems.conv_decode, heads / tp);
      check_conv(problems.conv_verify, heads / tp);
      CHECK(problems.decode_with_conv.conv.weight_dtype == DType::kF32);
      CHECK(problems.decode_with_conv.conv.state_layout == gdn::ConvStateLayout::kChannels);
      for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
        CHECK(problems.decode.kernels(arch));
        CHECK(problems.prefill.kernels(arch));
        CHECK(problems.verify.kernels(arch));
        CHECK(problems.commit.kernels(arch));
        CHECK(problems.conv_decode.kernels(arch));
      }
      CHECK(problems.decode_with_conv.kernels("sm_90a"));
    }
  }
}

TEST_CASE("NoFormOfKimiLayersIsLeftOut", "[cpu]") {
  const auto problems = gdn::problems_for_model(config_of("Kimi-K3"), 8).value();
  CHECK(gdn::left_out(problems).empty());
  // A convolution leaves gates to what comes behind it, but may make them.
  gdn::ConvProblem conv = problems.conv;
  conv.inputs.gate_mode = kSoftplus;
  CHECK(conv.inputs.decay == gdn::Decay::kChannel);
  CHECK(conv.kernels("sm_90a"));
}

TEST_CASE("TheNormBehindKimiLayersHasASigmoid", "[cpu]") {
  for (const char* model : {"Kimi-Linear-48B-A3B-Instruct", "Ling-3.0-Flash"}) {
    const json config = json::parse(config_of(model));
    const auto problems = kimi_problems(config, {.switches = {{"output_norm", "auto"}}});
    CHECK(problems.decode.output_norm == gdn::OutputNorm::kSigmoidGatedRms);
    CHECK(problems.decode_with_conv.output_norm == gdn::OutputNorm::kSigmoidGatedRms);
    CHECK(problems.verify.output_norm == gdn::OutputNorm::kSigmoidGatedRms);
    CHECK(problems.verify.kernels("sm_90a"));
    CHECK(problems.decode_with_conv.kernels("sm_90a"));
    CHECK(kimi_error(config, 1, {.switches = {{"output_norm", "gated_rms"}}})
              .ends_with("accepted: auto, none, sigmoid_gated_rms"));
  }
}

// What engines keep in f32 stays so.
TEST_CASE("TheDtypeOfAModelWithKimiLayersIsNotThatOfAll", "[cpu]") {
  const auto halves = kimi_problems({{"model_type", "kimi_linear"}},
                                    {.switches = {{"dtype", "f16"}, {"state_dtype", "auto"}}});
  CHECK(halves.decode.dtype == DType::kF16);
  CHECK(halves.decode.inputs.gate_dtype == DType::kF16);
  CHECK(halves.decode.inputs.dt_bias_dtype == DType::kF32);
  CHECK(halves.decode.states.dtype == DType::kF32);
  CHECK(halves.decode_with_conv.conv.weight_dtype == DType::kF32);
  CHECK(halves.decode_with_conv.conv.state_dtype == DType::kF16);
  CHECK(halves.conv.weight_dtype == DType::kF32);
  CHECK(halves.conv.states.dtype == DType::kF16);
  const auto own = kimi_problems(
      {{"model_type", "kimi_linear"}},
      {.switches = {
           {"dt_bias_dtype", "bf16"}, {"conv_weight_dtype", "bf16"}, {"state_dtype", "bf16"}}});
  CHECK(own.verify.inputs.dt_bias_dtype == DType::kBF16);
  CHECK(own.conv.weight_dtype == DType::kBF16);
  CHECK(own.commit.states.dtype == DType::kBF16);
}

TEST_CASE("FieldsOfKimiLayersHaveTheirClassesDefaults", "[cpu]") {
  const auto heads = [](const json& config) { return kimi_problems(config).decode.heads.v; };
  CHECK(heads({{"model_type", "kimi_linear"}}) == 32);
  CHECK(heads({{"architectures", {"KimiLinearForCausalLM"}}}) == 32);
  CHECK(heads({{"model_type", "glm5_next"}}) == 64);
  CHECK(heads({{"model_type", "glm5_next"}, {"text_config", {{"model_type", "glm5_next_text"}}}}) ==
        64);
  CHECK(heads(ling()) == 32);
  CHECK(heads(ling({{"num_attention_heads", 16}})) == 16);
  CHECK(heads({{"model_type", "alice_ai"}}) == 32);
  CHECK(gate_of({{"model_type", "kimi_linear"}}) == kSoftplus);
  CHECK(gate_of({{"model_type", "glm5_next"}}) == kBounded);
  CHECK(gate_of(ling()) == kBounded);
  CHECK(gate_of({{"model_type", "alice_ai"}}) == kSoftplus);

  // What is nested goes before what is beside it, which Transformers writes.
  const json both = {{"model_type", "kimi_linear"},
                     {"linear_num_heads", 16},
                     {"linear_head_dim", 64},
                     {"linear_conv_kernel_dim", 3},
                     {"linear_attn_config", {{"num_heads", 8}}}};
  CHECK(heads(both) == 8);
  CHECK(kimi_problems(both).decode.key_dim == 64);
  CHECK(kimi_problems(both).conv.width == 3);
  // Transformers replaces head_dim by the rotary one.
  const auto saved = kimi_problems(ling({{"head_dim", 64}, {"linear_head_dim", 128}}));
  CHECK(saved.decode.key_dim == 128);
  CHECK(saved.decode.value_dim == 128);
  CHECK(kimi_problems(nested("kimi_k3", {{"short_conv_kernel_size", 3}})).conv_decode.width == 3);
}

TEST_CASE("TheGateOfKimiLayersIsBoundedWhereTheirClassSaysSo", "[cpu]") {
  CHECK(gate_of(nested("kimi_linear", {{"gate_lower_bound", -5.0}})) == kBounded);
  CHECK(gate_of(nested("kimi_linear", {{"gate_lower_bound", nullptr}})) == kSoftplus);
  CHECK(gate_of(nested("kimi_linear", {{"num_heads", 8}})) == kSoftplus);
  CHECK(gate_of(nested("glm5_next", {{"num_heads", 8}})) == kBounded);
  CHECK(gate_of(nested("glm5_next", {{"gate_lower_bound", nullptr}})) == kBounded);
  CHECK(gate_of(nested("glm5_next", {{"gate_lower_bound", nullptr}, {"safe_gate", false}})) ==
        kSoftplus);
  CHECK(gate_of({{"model_type", "glm5_next"}, {"linear_lower_bound", nullptr}}) == kSoftplus);
  CHECK(gate_of({{"model_type", "glm5_next"},
                 {"linear_lower_bound", nullptr},
                 {"gate_lower_bound", -1}}) == kBounded);
  CHECK(gate_of(ling({{"kda_safe_gate", false}})) == kSoftplus);
  CHECK(gate_of(ling({{"kda_safe_gate", true}, {"kda_lower_bound", -2.5}})) == kBounded);
}

TEST_CASE("AGateOfKimiLayersThatIsNotKnownIsRefused", "[cpu]") {
  CHECK(kimi_error(nested("kimi_linear", {{"gate_lower_bound", 1}})) ==
        "gate_lower_bound = 1; accepted: -5 to below 0");
  CHECK(kimi_error(nested("glm5_next", {{"gate_lower_bound", "-5"}})) ==
        "gate_lower_bound = \"-5\"; accepted: -5 to below 0");
  CHECK(kimi_error(ling({{"kda_lower_bound", 0}})).starts_with("kda_lower_bound = 0; accepted: "));
  CHECK(kimi_error(ling({{"kda_lower_bound", nullptr}}))
            .starts_with("kda_safe_gate = true and kda_lower_bound = null; accepted: "));
  CHECK(kimi_error(nested("kimi_linear", {{"safe_gate", true}}))
            .starts_with("linear_attn_config has safe_gate = true without gate_lower_bound"));
  CHECK(kimi_error(nested("kimi_k3", {{"gate", "exp"}}))
            .starts_with("linear_attn_config has gate = \"exp\"; accepted: num_heads, head_dim, "));
  CHECK(kimi_error({{"model_type", "kimi_linear"}, {"linear_attn_config", 3}}) ==
        "linear_attn_config = 3; accepted: an object");
  for (const auto& [type, field] :
       std::vector<std::pair<const char*, const char*>>{{"kimi_linear", "gate_lower_bound"},
                                                        {"kimi_linear", "linear_num_key_heads"},
                                                        {"glm5_next", "kda_lower_bound"},
                                                        {"alice_ai", "linear_attn_config"}}) {
    const std::string why = kimi_error({{"model_type", type}, {field, -5}});
    CHECK(why.starts_with(std::string(field) + " = -5: not known of a Kimi Delta Attention layer"));
  }
  CHECK(kimi_error({{"model_type", "alice_ai"}, {"kda_allow_negative_eigenvalues", true}})
            .starts_with("kda_allow_negative_eigenvalues = true: "));
  CHECK(kimi_error({{"model_type", "alice_ai"}, {"linear_num_value_heads", 64}})
            .starts_with("32 key heads of 128 and 64 value heads of 128"));
  CHECK(kimi_error({{"model_type", "kimi_linear"}, {"hidden_act", "gelu"}})
            .starts_with("hidden_act = \"gelu\"; accepted: silu"));
  // Ling 2.5 has the type's name.
  CHECK(kimi_error({{"model_type", "bailing_hybrid"}})
            .starts_with("no field short_conv_kernel_size: the linear layers are not Kimi Delta"));
  CHECK(kimi_error(ling({{"architectures", {"BailingMoeV2_5ForCausalLM"}}}))
            .starts_with("architectures = [\"BailingMoeV2_5ForCausalLM\"]; accepted: "));
}

TEST_CASE("AModelWithoutAKimiLayerIsRefused", "[cpu]") {
  CHECK(kimi_error(nested("kimi_linear", {{"kda_layers", json::array()}}))
            .starts_with("kda_layers is empty: the model has no linear layer"));
  CHECK(kimi_error(nested("glm5_next", {{"kda_layers", "all"}})) ==
        "kda_layers = \"all\"; accepted: a list of layers");
  CHECK(kimi_error(ling({{"layer_group_size", 1}}))
            .starts_with("layer_group_size = 1: the model has no linear layer"));
  CHECK(kimi_error({{"model_type", "alice_ai"}, {"full_attention_interval", 1}})
            .starts_with("full_attention_interval = 1: the model has no linear layer"));
  CHECK(kimi_error({{"model_type", "kimi_linear"}, {"layer_types", {"full_attention"}}})
            .find("no linear layer") != std::string::npos);
  CHECK(kimi_problems({{"model_type", "glm5_next_text"},
                       {"layer_types", {"linear_attention", "deepseek_sparse_attention"}}})
            .conv.width == 4);
}

TEST_CASE("HeadsOfKimiLayersAreDividedAmongGpus", "[cpu]") {
  CHECK(kimi_error({{"model_type", "kimi_linear"}}, 3) ==
        "32 heads of Kimi Delta Attention are not divisible by tp = 3; accepted: 1, 2, 4, 8, 16, "
        "32");
  CHECK(gdn::problems_for_model(config_of("Kimi-K3"), 32)->decode.heads.k == 3);
}

TEST_CASE("EnginesAreRefusedModelsWhoseKimiLayersNothingTakes", "[cpu]") {
  const auto refused = [](const char* model, const std::string& engine) {
    const auto problems = gdn::problems_for_engine(config_of(model), 8, engine);
    REQUIRE_FALSE(problems);
    CHECK(problems.error().code() == Code::kInvalidArgument);
    return std::string(problems.error().message());
  };
  CHECK(refused("Kimi-K3", "fla") ==
        "engine = fla: no plugin takes the model's layers of Kimi Delta Attention there; accepted "
        "with it: vllm, sglang, no engine");
  CHECK(refused("Ling-3.0-Flash", "vllm").ends_with("accepted with it: sglang, no engine"));
}

TEST_CASE("ThePluginLaunchesTheFormsOfKimiLayers", "[cpu]") {
  for (const char* model : {"Kimi-Linear-48B-A3B-Instruct", "Kimi-K3", "GLM-5.3-Flash"}) {
    INFO(model);
    const gdn::ModelProblems expected =
        gdn::problems_for_model(config_of(model), 4, {.switches = {{"output_norm", "auto"}}})
            .value();
    const auto problems = gdn::problems_for_engine(config_of(model), 4, "vllm").value();
    std::vector<std::string> forms;
    for (const gdn::EngineProblem& one : problems) {
      forms.push_back(one.form);
      if (const auto* prefill = std::get_if<gdn::PrefillProblem>(&one.problem)) {
        gdn::PrefillProblem plain = *prefill;
        plain.checkpoints = gdn::Checkpoints::kNone;
        CHECK(plain.to_json() == expected.prefill.to_json());
      }
      if (one.form == "conv") {
        CHECK(std::get<gdn::ConvProblem>(one.problem).to_json() == expected.conv.to_json());
      }
      if (one.form == "decode") {
        const auto& decode = std::get<gdn::DecodeProblem>(one.problem);
        CHECK(decode.output_norm == gdn::OutputNorm::kSigmoidGatedRms);
        CHECK(decode.norm_weight_dtype == DType::kBF16);
      }
    }
    std::vector<std::string> listed{
        "conv", "prefill", "decode_with_conv", "conv_decode", "decode", "conv_verify", "verify"};
    if (expected.prefill.inputs.gate_mode == kBounded) {
      listed.insert(listed.begin() + 2, {"conv_kept", "prefill_kept"});
    }
    CHECK(forms == listed);
    CHECK(gdn::left_out(problems).empty());
  }
}

TEST_CASE("EnginesGiveKimiRecurrencesWhatProjectionsGive", "[cpu]") {
  const auto problems =
      gdn::problems_for_engine(config_of("GLM-5.3-Flash"), 2, "sglang", {.functions = true});
  std::vector<std::string> prefills;
  for (const gdn::EngineProblem& one : problems.value()) {
    INFO(one.form);
    if (const auto* conv = std::get_if<gdn::ConvProblem>(&one.problem)) {
      check_conv(*conv, 32);
    } else if (const auto* prefill = std::get_if<gdn::PrefillProblem>(&one.problem)) {
      check_recurrence(*prefill, 32, kBounded);
      prefills.push_back(one.form);
    } else if (const auto* verify = std::get_if<gdn::VerifyProblem>(&one.problem)) {
      check_recurrence(*verify, 32, kBounded);
      CHECK_FALSE(verify->from_accepted);
    } else {
      check_recurrence(std::get<gdn::DecodeProblem>(one.problem), 32, kBounded);
    }
  }
  CHECK(prefills == std::vector<std::string>{"prefill", "prefill_kept", "functions.prefill",
                                             "functions.prefill_kept"});
}

}  // namespace
}  // namespace cubinery
