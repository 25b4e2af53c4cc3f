// What a flag or a model cannot have is named, and the exit code says so.
#include <algorithm>
#include <fstream>
#include <set>

#include "runtime/registry/operators.h"
#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

const std::string kPlain = "--hf-config " + kModel + " ";

// A configuration with one field replaced.
std::string config_with(const Cli& cli, const std::string& field, const json& value) {
  json config = json::parse(read_file(kModel).value());
  config[field] = value;
  const std::string path = cli.dir() + "/" + field + ".json";
  std::ofstream(path) << config.dump();
  return "--hf-config " + path + " ";
}

std::ptrdiff_t lines_of(const std::string& text, const std::string& with) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = text.find(with); at != text.npos; at = text.find(with, at + 1)) ++count;
  return count;
}

TEST_CASE("problems that a model or a flag cannot have are named", "[cpu]") {
  const Cli cli;
  struct Case {
    std::string arguments;
    int planned;
    std::vector<std::string> lines;
  };
  const std::string dims = "key_dim = 24; accepted: multiples of 16 from 16 to 256";
  const std::string f8 = "state_dtype = f8e4m3; accepted: f32, bf16, f16";
  const std::vector<Case> cases = {
      {config_with(cli, "linear_key_head_dim", 24),
       3,
       {"left out: decode of ", "left out: decode_with_conv of ", "left out: prefill of ",
        "left out: verify of ", "left out: commit of ", "gdn_commit: " + dims}},
      {kPlain + "--key-dim 24", 3, {"left out: decode of ", "gdn_prefill: " + dims}},
      {config_with(cli, "linear_conv_kernel_dim", 5),
       4,
       {"left out: decode_with_conv of ", "left out: conv of ", "left out: conv_decode of ",
        "left out: conv_verify of ", "gdn_conv: width = 5; accepted: 2, 3, 4"}},
      {kPlain + "--state-dtype f8e4m3",
       5,
       {"left out: prefill of " + kModel + ", tp 1: gdn_prefill: " + f8, "left out: verify of ",
        "left out: commit of "}},
      {kPlain + "--dtype f32", 7, {"left out: commit of ", "dtype = f32; accepted: bf16, f16"}},
      {kPlain + "--has-initial-state false",
       5,
       {"left out: verify of ", "left out: commit of ", "left out: conv_verify of "}},
      {"--key-dim 24", 1, {"left out: gdn_decode of command line: gdn_decode: " + dims}},
      {"--value-dim 8", 1, {"left out: gdn_verify of command line: gdn_verify: value_dim = 8; "}},
  };
  for (const Case& one : cases) {
    const Output problems = cli.run("problems " + one.arguments);
    INFO(one.arguments << "\n" << problems.err);
    CHECK(problems.exit_code == kExitLeftOut);
    CHECK(json::parse(problems.out).size() == static_cast<std::size_t>(one.planned));
    for (const std::string& line : one.lines) CHECK(contains(problems.err, line));
    const auto left_out = lines_of(problems.err, "cubinery: left out: ");
    CHECK(left_out == (one.arguments.starts_with("--hf") ? 8 : 5) - one.planned);
    for (const std::string command :
         {"prewarm --dry-run --arch sm_90a ", "explain --arch sm_90a ",
          "tune --dry-run --arch sm_90a --batch 8 --tokens 64 --sequences 2 "}) {
      const Output other = cli.run(command + one.arguments);
      INFO(command << other.err);
      CHECK(other.exit_code == kExitLeftOut);
      CHECK(lines_of(other.err, "cubinery: left out: ") >= left_out);
      for (const std::string& line : one.lines) CHECK(contains(other.err, line));
    }
  }
}

TEST_CASE("what is left out stands in the summary, too", "[cpu]") {
  const Cli cli;
  const std::string f8 = kPlain + "--tp 1,2 --state-dtype f8e5m2 --arch sm_90a";
  const json summary = cli.prewarm("--dry-run " + f8, kExitLeftOut);
  CHECK(summary["problems"] == 10);
  REQUIRE(summary["left_out"].size() == 6);
  CHECK(summary["left_out"][0]["what"] == "prefill");
  CHECK(summary["left_out"][0]["origin"] == kModel + ", tp 1");
  CHECK(contains(summary["left_out"][0]["why"], "accepted: f32, bf16, f16"));
  const Output text = cli.run("prewarm --dry-run " + f8);
  CHECK(contains(text.out, ", 6 problems left out"));
  // Sizes that lack the same share a line.
  CHECK(lines_of(text.err, "left out: ") == 3);
  CHECK(contains(text.err, ", tp 1, and 1 more: "));
  const json plan =
      json::parse(cli.run("tune --dry-run --json - --batch 8 --tokens 64 --sequences 2 " + f8).out);
  CHECK(plan["left_out"].size() == 6);
  CHECK(cli.prewarm("--dry-run --arch sm_90a " + kPlain)["left_out"].empty());
}

// Two forms do what the third does in one launch: a model is whole without it.
TEST_CASE("a form that others stand in for is named and not missed", "[cpu]") {
  const Cli cli;
  const Output output = cli.run("prewarm --dry-run --arch sm_80,sm_90a " + kPlain);
  CHECK(output.exit_code == kExitOk);
  CHECK(lines_of(output.err, "left out: ") == 1);
  CHECK(contains(output.err, "left out: decode_with_conv of " + kModel + ", tp 1, for sm_80: "));
  CHECK(contains(output.err, "; decode and conv_decode do the same"));
  // Who names it misses it.
  CHECK(cli.run("prewarm --dry-run --form decode_with_conv --arch sm_80 " + kPlain).exit_code == 2);
}

TEST_CASE("a value that nothing can have is an error", "[cpu]") {
  const Cli cli;
  for (const std::string arguments :
       {"--state-dtype int8", "--key-dim 100", "--draft-tokens 99", "--accepted-dtype f32",
        "--conv-width 5", "--form prefill --state-dtype f8e4m3", "--gate-mode logarithm",
        "--op gdn_verify --state-dtype f8e4m3", "--state-layout rows", "--form decode --key-dim 24",
        "--form decode --state-layout channels", "--output-norm sigmoid_gated_rms"}) {
    const Output output = cli.run("problems " + kPlain + arguments);
    INFO(arguments << "\n" << output.err);
    CHECK(output.exit_code == kExitUsage);
    CHECK(output.out.empty());
    CHECK(contains(output.err, "; accepted: "));
  }
}

TEST_CASE("flags that all forms can have leave nothing out", "[cpu]") {
  const Cli cli;
  for (const std::string flags :
       {"--gate-mode log", "--state-layout kv", "--state-layout channels", "--checkpoints after",
        "--checkpoints before --checkpoint-every 128", "--dtype f16", "--state-dtype f32",
        "--state-dtype auto", "--conv-state-dtype f32", "--beta-mode given", "--varlen true",
        "--stored-states last", "--conv-state-layout channels", "--output-norm auto",
        "--index-dtype i64", "--batch-invariant true"}) {
    const Output output = cli.run("problems " + kPlain + flags);
    INFO(flags << "\n" << output.err);
    CHECK(output.exit_code == kExitOk);
    CHECK(output.err.empty());
    CHECK(json::parse(output.out).size() == 8);
  }
}

// The switches are those of problems_for_model(), and a form that is named alone has its own
// fields.
TEST_CASE("flags of a model are its switches", "[cpu]") {
  const Cli cli;
  const std::string text = read_file(kModel).value();
  for (const auto& [flags, switches] :
       std::vector<std::pair<std::string, std::map<std::string, std::string>>>{
           {"--state-dtype bf16", {{"state_dtype", "bf16"}}},
           {"--state-dtype auto --dtype f16", {{"state_dtype", "auto"}, {"dtype", "f16"}}},
           {"--dtype f16 --dt-bias-dtype f32 --output-norm auto",
            {{"dtype", "f16"}, {"dt_bias_dtype", "f32"}, {"output_norm", "auto"}}},
           {"--conv-width 3 --state-layout channels",
            {{"conv_width", "3"}, {"state_layout", "channels"}}}}) {
    INFO(flags);
    json expected = json::array();
    for (const Problem& problem :
         cubinery::problems_for_model(text, 1, {.switches = switches}).value()) {
      expected.push_back(json::parse(to_json(problem)));
      expected.back()["op"] = operator_of(problem);
    }
    CHECK(json::parse(cli.run("problems " + kPlain + flags).out) == expected);
  }
  const json conv = json::parse(
      cli.run("problems --form conv_decode --state-dtype f32 --state-layout channels " + kPlain)
          .out);
  CHECK(conv["state_dtype"] == "f32");
  CHECK(conv["state_layout"] == "channels");
  const json decode = json::parse(cli.run("problems --form decode --conv-width 4 " + kPlain).out);
  CHECK(decode["conv_width"] == 4);
}

TEST_CASE("a model's folder stands for its configuration", "[cpu]") {
  const Cli cli;
  const std::string folder = fs::path(kModel).parent_path();
  for (const std::string& path : {folder, folder + "/"}) {
    const Output of_folder = cli.run("problems --hf-config " + path);
    CHECK(of_folder.exit_code == kExitOk);
    CHECK(of_folder.out == cli.run("problems " + kPlain).out);
  }
  const Output none = cli.run("problems --hf-config " + cli.dir());
  CHECK(none.exit_code == kExitUsage);
  CHECK(contains(none.err, "cannot read " + cli.dir() + "/config.json"));
}

TEST_CASE("a model is read as the type that is named", "[cpu]") {
  const Cli cli;
  const std::string unknown = config_with(cli, "model_type", "mine") + "--form decode ";
  const Output refused = cli.run("problems " + unknown);
  CHECK(refused.exit_code == kExitUsage);
  CHECK(
      contains(refused.err, "model_type = \"mine\"; accepted: models with Gated DeltaNet layers"));
  CHECK(contains(refused.err, "--model-type"));
  const json olmo = json::parse(cli.run("problems --model-type olmo_hybrid " + unknown).out);
  CHECK(olmo["beta_mode"] == "doubled_logit");
  CHECK(json::parse(cli.run("problems --model-type qwen3_next " + unknown).out)["beta_mode"] ==
        "logit");
  CHECK(contains(cli.run("problems --model-type qwen3_nxt " + unknown).err,
                 "did you mean qwen3_next"));
  CHECK(contains(cli.run("problems --model-type qwen3_next --key-dim 64").err,
                 "--model-type is of --hf-config, which is missing"));
}

TEST_CASE("a configuration as Python writes it is read", "[cpu]") {
  const Cli cli;
  const std::string path = cli.dir() + "/config.json";
  std::ofstream(path) << R"({"model_type": "qwen3_next", "time_step_limit": [0.0, Infinity]})";
  CHECK(cli.run("problems --hf-config " + cli.dir()).out == cli.run("problems " + kPlain).out);
  std::ofstream(path) << R"({"model_type": "qwen3_next", "linear_key_head_dim": Infinity})";
  CHECK(contains(cli.run("problems --hf-config " + cli.dir()).err,
                 "linear_key_head_dim = Infinity; accepted: an integer from 1 to 65536"));
}

}  // namespace
}  // namespace cubinery
