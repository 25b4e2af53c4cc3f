#include <fstream>
#include <set>

#include "cubinery/gdn.h"
#include "runtime/registry/operators.h"
#include "tests/cli/run_cli.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

const std::string kModelOptions = "--hf-config " + kModel + " --tp 2";

gdn::ModelProblems model_problems() {
  return gdn::problems_for_model(read_file(kModel).value(), 2).value();
}

TEST_CASE("problems prints what programs get", "[cpu]") {
  const Cli cli;
  const Output all = cli.run("problems " + kModelOptions);
  CHECK(all.exit_code == 0);
  json expected = json::array();
  for (const Problem& problem : problems_for_model(read_file(kModel).value(), 2).value()) {
    expected.push_back(json::parse(to_json(problem)));
    expected.back()["op"] = operator_of(problem);
  }
  CHECK(json::parse(all.out) == expected);

  const Output one = cli.run("problems --form decode " + kModelOptions);
  CHECK(gdn::DecodeProblem::from_json(one.out)->to_json() == model_problems().decode.to_json());
  CHECK(cli.run("problems --op gdn_prefill " + kModelOptions).out ==
        model_problems().prefill.to_json() + "\n");
  for (const std::string many : {"--form decode --tp 1,2", "--op gdn_conv"}) {
    const Output refused = cli.run("problems " + many + " --hf-config " + kModel);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "prints one problem, and here are "));
    CHECK(contains(refused.err, "accepted: one form in --form and one size in --tp, or neither"));
  }
}

TEST_CASE("problems prints a manifest", "[cpu]") {
  const Cli cli;
  const std::string file = cli.dir() + "/problems.json";
  const std::string with_dtype = kModelOptions + " --state-dtype bf16";
  CHECK(cli.run("problems " + with_dtype + " -o " + file).exit_code == 0);
  const json direct = cli.prewarm("--dry-run --arch sm_90a " + with_dtype);
  const json listed = cli.prewarm("--dry-run --arch sm_90a --manifest " + file);
  CHECK(listed["entries"] == direct["entries"]);
  // And again from the manifest, architectures kept.
  std::ofstream(file) << R"([{"op": "gdn_decode", "arch": "sm_80", "key_dim": 64}])";
  const json kept = json::parse(cli.run("problems --manifest " + file).out);
  CHECK(kept.at(0).at("arch") == "sm_80");
  CHECK(kept.at(0).at("key_dim") == 64);
}

TEST_CASE("prewarm compiles what a model's problems need", "[cpu]") {
  const Cli cli;
  const json summary = cli.prewarm("--dry-run --arch sm_90a,sm_80 " + kModelOptions);
  std::set<std::string> prewarmed;
  for (const json& entry : summary["entries"]) {
    prewarmed.insert(entry["arch"].get<std::string>() + entry["canonical"].get<std::string>());
  }
  std::set<std::string> wanted;
  for (const std::string arch : {"sm_90a", "sm_80"}) {
    const auto want = [&](const auto& problem) {
      for (const KernelSpec& spec : problem.kernels(arch).value()) {
        wanted.insert(arch + spec.canonical);
      }
    };
    const auto [decode, decode_with_conv, prefill, verify, commit, conv, conv_decode, conv_verify] =
        model_problems();
    want(decode);
    if (arch != "sm_80") want(decode_with_conv);  // which has no path for as many heads there
    want(prefill);
    want(verify);
    want(commit);
    want(conv);
    want(conv_decode);
    want(conv_verify);
  }
  CHECK(prewarmed == wanted);
}

TEST_CASE("an offline context finds what prewarm compiled for a model", "[nvrtc]") {
  const Cli cli;
  cli.prewarm("--form decode,decode_with_conv,conv_decode,conv_verify --arch sm_90a " +
              kModelOptions);
  Options options;
  options.device = kNoDevice;
  options.arch = "sm_90a";
  options.offline = true;
  options.cache_dir = cli.cache();
  const Context context = Context::create(options).value();
  const auto check_is_there = [&](const auto& problem) {
    for (const CompiledKernel& kernel : context.compile(problem).value()) {
      CHECK(kernel.source == Source::kDisk);
    }
  };
  check_is_there(model_problems().decode);
  check_is_there(model_problems().decode_with_conv);
  check_is_there(model_problems().conv_decode);
  check_is_there(model_problems().conv_verify);
  CHECK(context.compile(model_problems().conv).error().code() == Code::kNotCached);
}

}  // namespace
}  // namespace cubinery
