// A property of a model is one switch: it changes all forms that have it, alike, and no other.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "runtime/registry/operators.h"
#include "tests/catch.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

using nlohmann::json;
using Switches = std::map<std::string, std::string>;

const char* const kBareModel = R"({"model_type": "qwen3_next"})";

std::vector<json> forms_of(const Switches& switches, const std::string& model = kBareModel) {
  const auto problems = problems_for_model(model, 1, {.switches = switches});
  INFO((problems ? std::string() : std::string(problems.error().message())));
  REQUIRE(problems);
  std::vector<json> forms;
  for (const Problem& problem : *problems) forms.push_back(json::parse(to_json(problem)));
  return forms;
}

std::string switch_error(const Switches& switches, const std::string& model = kBareModel) {
  const auto problems = gdn::problems_for_model(model, 1, {.switches = switches});
  REQUIRE_FALSE(problems);
  return std::string(problems.error().message());
}

// "decode.state_dtype=bf16" for every field that the switches change.
std::set<std::string> changed_by(const Switches& switches, const std::string& model = kBareModel) {
  const std::vector<json> before = forms_of({}, model);
  const std::vector<json> after = forms_of(switches, model);
  std::set<std::string> changed;
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (const auto& [name, value] : after[i].items()) {
      if (value == before[i][name]) continue;
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      changed.insert(form_names()[i] + "." + name + "=" + text);
    }
  }
  return changed;
}

std::set<std::string> in_forms(const std::vector<std::string>& forms, const std::string& field) {
  std::set<std::string> all;
  for (const std::string& form : forms) all.insert(form + "." + field);
  return all;
}

const std::vector<std::string> kRecurrence = {"decode", "decode_with_conv", "prefill", "verify",
                                              "commit"};
const std::vector<std::string> kConvs = {"conv", "conv_decode", "conv_verify"};

TEST_CASE("StatesOfTheRecurrenceShareOnePool", "[cpu]") {
  CHECK(changed_by({{"state_dtype", "bf16"}}) == in_forms(kRecurrence, "state_dtype=bf16"));
  CHECK(changed_by({{"state_dtype", "f8e4m3"}}) == in_forms(kRecurrence, "state_dtype=f8e4m3"));
  CHECK(changed_by({{"state_dtype", "f32"}}).empty());
  CHECK(changed_by({{"state_layout", "kv"}}) == in_forms(kRecurrence, "state_layout=kv"));
  std::set<std::string> pool = in_forms(kRecurrence, "index_dtype=i64");
  pool.merge(in_forms(kConvs, "index_dtype=i64"));
  CHECK(changed_by({{"index_dtype", "i64"}}) == pool);
}

TEST_CASE("StatesOfTheConvolutionHaveSwitchesOfTheirOwn", "[cpu]") {
  const auto expected = [](const std::string& name, const std::string& value) {
    std::set<std::string> all = in_forms(kConvs, name + "=" + value);
    all.insert("decode_with_conv.conv_" + name + "=" + value);
    return all;
  };
  CHECK(changed_by({{"conv_state_dtype", "f32"}}) == expected("state_dtype", "f32"));
  CHECK(changed_by({{"conv_state_layout", "channels"}}) == expected("state_layout", "channels"));
  CHECK(changed_by({{"state_layout", "channels"}}) == expected("state_layout", "channels"));
  CHECK(changed_by({{"conv_width", "3"}}) == expected("width", "3"));
  CHECK(changed_by({{"width", "3"}}) == expected("width", "3"));
  CHECK(changed_by({{"conv_weight_dtype", "f32"}}) == expected("weight_dtype", "f32"));
  CHECK(changed_by({{"has_bias", "true"}}) == expected("has_bias", "true"));
  CHECK(changed_by({{"conv_whole_window", "true"}}) == expected("whole_window", "true"));
  CHECK(changed_by({{"conv_activation", "none"}}) == expected("activation", "none"));
}

TEST_CASE("TheModelsDtypeMovesAllThatHasIt", "[cpu]") {
  const std::vector<json> forms = forms_of({{"dtype", "f16"}});
  const std::vector<json> named =
      forms_of({}, R"({"model_type": "qwen3_next", "dtype": "float16"})");
  CHECK(forms == named);
  for (const json& form : forms) {
    CHECK(form["dtype"] == "f16");
    if (form.contains("output_dtype")) CHECK(form["output_dtype"] == "f16");
    if (form["gate_mode"] != "computed") continue;
    CHECK(form["gate_dtype"] == "f16");
    CHECK(form["beta_dtype"] == "f16");
    CHECK(form["dt_bias_dtype"] == "f16");
    CHECK(form["a_log_dtype"] == "f32");
    CHECK(form["state_dtype"] == "f32");
  }
  CHECK(forms[1]["conv_weight_dtype"] == "f16");
  CHECK(forms[1]["conv_state_dtype"] == "f16");
  for (const std::size_t conv : {5, 6, 7}) {
    CHECK(forms[conv]["weight_dtype"] == "f16");
    CHECK(forms[conv]["state_dtype"] == "f16");
  }
  // What is said of a part goes before it.
  const std::vector<json> parts =
      forms_of({{"dtype", "f16"}, {"dt_bias_dtype", "f32"}, {"conv_state_dtype", "bf16"}});
  CHECK(parts[0]["dt_bias_dtype"] == "f32");
  CHECK(parts[0]["gate_dtype"] == "f16");
  CHECK(parts[1]["conv_state_dtype"] == "bf16");
  CHECK(parts[5]["state_dtype"] == "bf16");
  CHECK(parts[5]["weight_dtype"] == "f16");
}

TEST_CASE("WithoutAFieldForTheStatesDtypeTheCallerChoosesTheRule", "[cpu]") {
  const auto state = [](const Switches& switches, const std::string& more) {
    const std::string model = R"({"model_type": "qwen3_5")" + more + "}";
    std::set<std::string> found;
    const std::vector<json> forms = forms_of(switches, model);
    for (std::size_t i = 0; i < kRecurrence.size(); ++i) found.insert(forms[i]["state_dtype"]);
    REQUIRE(found.size() == 1);
    return *found.begin();
  };
  const std::string f16 = R"(, "dtype": "float16")";
  const std::string ssm = R"(, "mamba_ssm_dtype": "float32")";
  CHECK(state({}, f16) == "f32");
  CHECK(state({{"state_dtype", "auto"}}, f16) == "f16");
  CHECK(state({{"state_dtype", "auto"}}, "") == "bf16");
  CHECK(state({{"state_dtype", "auto"}}, f16 + ssm) == "f32");
  CHECK(state({{"state_dtype", "auto"}, {"dtype", "f16"}}, "") == "f16");
  CHECK(state({{"state_dtype", "bf16"}}, ssm) == "bf16");
}

TEST_CASE("GatesAndNormsAreTheRecurrences", "[cpu]") {
  CHECK(changed_by({{"gate_mode", "log"}}) == in_forms(kRecurrence, "gate_mode=log"));
  CHECK(changed_by({{"beta_mode", "given"}}) == in_forms(kRecurrence, "beta_mode=given"));
  CHECK(changed_by({{"use_qk_l2norm", "false"}}) == in_forms(kRecurrence, "use_qk_l2norm=false"));
  CHECK(changed_by({{"a_log_dtype", "bf16"}}) == in_forms(kRecurrence, "a_log_dtype=bf16"));
}

TEST_CASE("WhatOneStepHasIsItsOperatorsAndItsConvolutions", "[cpu]") {
  CHECK(changed_by({{"checkpoints", "after"}}) ==
        in_forms({"prefill", "conv"}, "checkpoints=after"));
  CHECK(changed_by({{"draft_tokens", "8"}}) == in_forms({"verify", "commit"}, "draft_tokens=8"));
  CHECK(changed_by({{"stored_states", "last"}}) == in_forms({"verify"}, "stored_states=last"));
  CHECK(changed_by({{"from_accepted", "false"}}) ==
        in_forms({"verify", "conv_verify"}, "from_accepted=false"));
  CHECK(changed_by({{"varlen", "false"}}) ==
        in_forms({"prefill", "verify", "commit", "conv", "conv_verify"}, "varlen=false"));
  CHECK(changed_by({{"varlen", "true"}}).empty());
  for (const gdn::LeftOut& form : gdn::left_out(
           gdn::problems_for_model(kBareModel, 1, {.switches = {{"checkpoints", "after"}}})
               .value())) {
    FAIL(form.form << ": " << form.why);
  }
}

TEST_CASE("TheNormBehindIsTheModels", "[cpu]") {
  const std::string sigmoid = R"({"model_type": "qwen4_exp", "output_gate_type": "sigmoid"})";
  const std::string swish = R"({"model_type": "qwen3_5", "output_gate_type": "swish"})";
  CHECK(changed_by({{"output_norm", "auto"}}, swish) ==
        in_forms({"decode", "decode_with_conv", "verify"}, "output_norm=gated_rms"));
  CHECK(changed_by({{"output_norm", "gated_rms"}}, swish).size() == 3);
  CHECK(changed_by({{"output_norm", "auto"}}, sigmoid) ==
        in_forms({"decode", "decode_with_conv", "verify"}, "output_norm=sigmoid_gated_rms"));
  CHECK(switch_error({{"output_norm", "gated_rms"}}, sigmoid) ==
        "output_norm = gated_rms, and the model's is sigmoid_gated_rms; accepted: auto, none, "
        "sigmoid_gated_rms");
  CHECK(changed_by({{"output_norm", "none"}}, sigmoid).empty());
  const std::string ungated = R"({"model_type": "olmo3_5_hybrid", "linear_use_gate": false})";
  CHECK(changed_by({{"output_norm", "auto"}}, ungated).empty());
  CHECK(switch_error({{"output_norm", "gated_rms"}}, ungated)
            .starts_with("output_norm = gated_rms, "));
}

TEST_CASE("ASwitchThatNoFormHasIsRefused", "[cpu]") {
  CHECK(switch_error({{"state_dtpye", "bf16"}}).ends_with("did you mean state_dtype?"));
  CHECK(switch_error({{"state_dtype", "int8"}}).find("state_dtype = int8; accepted: f32, bf16") !=
        std::string::npos);
  CHECK(switch_error({{"draft_tokens", "many"}}).find("draft_tokens = many; ") !=
        std::string::npos);
  CHECK(switch_error({{"dtype", "float16"}}).find("dtype = float16; accepted: ") !=
        std::string::npos);
}

TEST_CASE("FormsThatAModelCannotHaveAreListed", "[cpu]") {
  const auto lost = [](const std::string& fields, const Switches& switches = {}) {
    const auto problems = gdn::problems_for_model(R"({"model_type": "qwen3_next")" + fields + "}",
                                                  1, {.switches = switches});
    std::vector<std::string> forms;
    for (const gdn::LeftOut& one : gdn::left_out(problems.value())) {
      CHECK(one.why.find("; accepted: ") != std::string::npos);
      forms.push_back(one.form);
    }
    return forms;
  };
  using Forms = std::vector<std::string>;
  CHECK(lost("") == Forms{});
  CHECK(lost(R"(, "linear_key_head_dim": 24)") == kRecurrence);
  CHECK(lost(R"(, "linear_value_head_dim": 8)") == kRecurrence);
  CHECK(lost(R"(, "linear_conv_kernel_dim": 5)") ==
        Forms{"decode_with_conv", "conv", "conv_decode", "conv_verify"});
  CHECK(lost("", {{"state_dtype", "f8e4m3"}}) == Forms{"prefill", "verify", "commit"});
  CHECK(lost("", {{"dtype", "f32"}}) == Forms{"commit"});
}

}  // namespace
}  // namespace cubinery
