// --engine: what one engine launches for a model.
#include <algorithm>
#include <set>
#include <sstream>

#include "cubinery/gdn.h"
#include "runtime/gdn/shared/engine_forms.h"
#include "runtime/registry/describe.h"
#include "runtime/registry/operators.h"
#include "tests/cli/run_cli.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

std::vector<gdn::EngineProblem> listed(const std::string& engine,
                                       const gdn::ModelOptions& options = {}) {
  return gdn::problems_for_engine(read_file(kModel).value(), 2, engine, options).value();
}

json manifest_of(const std::vector<gdn::EngineProblem>& problems) {
  json manifest = json::array();
  for (const gdn::EngineProblem& one : problems) {
    manifest.push_back(json::parse(to_json(one.problem)));
    manifest.back()["op"] = operator_of(one.problem);
  }
  return manifest;
}

TEST_CASE("Fields of engines' forms are fields of problems", "[cpu]") {
  std::set<std::string_view> fields;
  for (const OperatorDescription& op : operator_descriptions()) {
    for (const FieldDescription& field : op.fields) fields.insert(field.name);
  }
  const std::vector<std::string>& engines = gdn::engine_names();
  std::set<std::string> names;
  for (const gdn::EngineForm& form : gdn::engine_forms()) {
    CHECK(std::count(engines.begin(), engines.end(), form.engine) == 1);
    CHECK(std::count(form_names().begin(), form_names().end(), form.of) == 1);
    CHECK(names.insert(std::string(form.engine) + " " + std::string(form.name)).second);
    std::istringstream texts(std::string(form.fields) + " " + std::string(form.more));
    for (std::string text; texts >> text;) {
      INFO(form.engine << " " << form.name << " " << text);
      REQUIRE(text.find('=') != std::string::npos);
      CHECK(fields.contains(text.substr(0, text.find('='))));
    }
  }
}

TEST_CASE("problems prints what an engine launches", "[cpu]") {
  const Cli cli;
  const std::string model = "problems --tp 2 --hf-config " + kModel + " --engine ";
  for (const std::string& engine : gdn::engine_names()) {
    INFO(engine);
    CHECK(json::parse(cli.run(model + engine).out) == manifest_of(listed(engine)));
  }
  std::vector<gdn::EngineProblem> functions = listed("sglang", {.functions = true});
  std::erase_if(functions,
                [](const auto& one) { return !one.form.starts_with(gdn::kOfFunctions); });
  CHECK(json::parse(cli.run(model + "sglang --form functions").out) == manifest_of(functions));
  const Output one = cli.run(model + "vllm --form prefill");
  CHECK(one.out == to_json(listed("vllm").at(1).problem) + "\n");

  const gdn::ModelOptions options{.switches = {{"dtype", "f16"},
                                               {"state_dtype", "bf16"},
                                               {"conv_state_layout", "columns"},
                                               {"draft_tokens", "1"}}};
  CHECK(json::parse(cli.run(model + "vllm --dtype f16 --state-dtype bf16 --draft-tokens 1 "
                                    "--conv-state-layout columns")
                        .out) == manifest_of(listed("vllm", options)));
}

TEST_CASE("prewarm compiles one of two forms that do the same", "[cpu]") {
  const Cli cli;
  const std::string options = "--dry-run --hf-config " + kModel + " --engine vllm --arch ";
  for (const std::string arch : {"sm_90a", "sm_80"}) {
    INFO(arch);
    std::set<std::string> expected, planned;
    const gdn::ModelOptions there{.arch = arch};
    for (const gdn::EngineProblem& one :
         gdn::problems_for_engine(read_file(kModel).value(), 1, "vllm", there).value()) {
      const auto specs = std::visit([&](const auto& p) { return p.kernels(arch); }, one.problem);
      for (const KernelSpec& spec : specs.value()) expected.insert(spec.canonical);
    }
    const json summary = cli.prewarm(options + arch);
    for (const json& entry : summary["entries"]) planned.insert(entry.at("canonical"));
    CHECK(planned == expected);
  }
  const Output left_out = cli.run("prewarm " + options + "sm_80");
  CHECK(contains(left_out.err, "left out: decode_with_conv of "));
  CHECK(contains(left_out.err, "; decode and conv_decode do the same"));
}

TEST_CASE("Engines and their forms have names", "[cpu]") {
  const Cli cli;
  const auto refused = [&](const std::string& options) {
    const Output output = cli.run("problems " + options);
    CHECK(output.exit_code == 2);
    return output.err;
  };
  const std::string model = "--hf-config " + kModel;
  CHECK(
      contains(refused(model + " --engine vlm"),
               "--engine vlm; accepted: vllm, sglang, transformers, fla, flashinfer, tensorrt_llm, "
               "tokenspeed; did you mean vllm?"));
  CHECK(contains(refused("--engine vllm --key-dim 64"), "--engine is of --hf-config"));
  CHECK(contains(refused(model + " --engine fla --form functions"),
                 "--form functions; accepted: conv, conv_packed, prefill, "));
  CHECK(contains(refused(model + " --form functions.decode"), "--form functions.decode; accepted"));
  CHECK(contains(cli.run("problems --help").out, "--engine"));
}

}  // namespace
}  // namespace cubinery
