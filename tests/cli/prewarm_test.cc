#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "results/record_file.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/operator/tuning_context.h"
#include "runtime/registry/operators.h"
#include "tests/cli/run_cli.h"
#include "tests/runtime/made_up_results.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery {
namespace {

std::set<std::string> kernels_of(const json& summary) {
  std::set<std::string> kernels;
  for (const json& entry : summary["entries"]) {
    kernels.insert(entry["arch"].get<std::string>() + " " + entry["canonical"].get<std::string>());
  }
  return kernels;
}

std::set<std::string> names_of(const json& summary) {
  std::set<std::string> names;
  for (const json& entry : summary["entries"]) names.insert(entry["kernel"].get<std::string>());
  return names;
}

TEST_CASE("without a GPU an architecture must be named", "[cpu]") {
  const Cli cli;
  const Output output = cli.run("prewarm --hf-config " + kModel, "CUBINERY_DRIVER=/nowhere");
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "--arch is missing"));
  CHECK(contains(output.err, "sm_90a"));
}

TEST_CASE("a dry run counts kernels and compiles nothing", "[cpu]") {
  const Cli cli;
  const json summary =
      cli.prewarm("--dry-run --hf-config " + kModel + " --tp 1,2,4,8 --arch sm_90a,sm_80");
  CHECK(summary["problems"] == 32);
  CHECK(summary["dry_run"] == true);
  CHECK(summary["compiled"] == 0);
  CHECK(summary["hits"] == 0);
  CHECK(summary["missing"] == summary["requested"]);
  CHECK(summary["entries"].size() == summary["requested"]);
  // Most serve all four sizes; some results are of sizes that only few heads come to.
  std::size_t of_all = 0;
  for (const json& entry : summary["entries"]) {
    CHECK(entry["problems"] >= 1);
    CHECK(entry["problems"] <= 4);
    of_all += entry["problems"] == 4 ? 1 : 0;
  }
  CHECK(2 * of_all > summary["entries"].size());
  CHECK(names_of(summary) == std::set<std::string>{"gdn_commit", "gdn_conv", "gdn_decode",
                                                   "gdn_prefill_chunks", "gdn_prefill_scan",
                                                   "gdn_verify", "gdn_verify_wy"});
  CHECK(cli.entries().empty());
  const Output counts = cli.run("prewarm --dry-run -j 2 --key-dim 64 --arch sm_80");
  CHECK(counts.exit_code == 0);
  CHECK(counts.err.find("missing") == std::string::npos);
  CHECK(!contains(counts.out, "key_dim=64"));
  CHECK(contains(counts.out, "sm_80  gdn_prefill_chunks"));
  CHECK(contains(counts.out, " missing: about "));
  CHECK(contains(counts.out, " to compile, 2 at a time (dry run: nothing was compiled; --verbose"));
  CHECK(summary["seconds_to_compile"].get<double>() > 0);
  const Output text = cli.run("prewarm --dry-run --verbose --key-dim 64 --arch sm_80");
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "missing  sm_80 gdn_decode;key_dim=64;"));
  CHECK(contains(text.out, "missing  sm_80 gdn_prefill_chunks;key_dim=64;"));
  CHECK(contains(text.out, "missing  sm_80 gdn_verify_wy;key_dim=64;"));
  CHECK(contains(text.out, "missing  sm_80 gdn_commit;key_dim=64;"));
}

TEST_CASE("kernels that results of the cache can choose are wanted", "[cpu]") {
  const Cli cli;
  const std::string arguments = "--dry-run --op gdn_decode --key-dim 64 --arch sm_90a";
  const std::set<std::string> before = kernels_of(cli.prewarm(arguments));
  const gdn::DecodeProblem problem{.key_dim = 64};
  const TuningSpace space = test::planner_of(problem).space();
  const std::string templates =
      known_results_inside("gdn_decode", path_kernels("gdn_decode")).templates.at("portable");
  std::string lines;
  for (const std::size_t i : {std::size_t{0}, space.configurations.size() - 1}) {
    lines += to_line(test::made_up_result(space, {{"states", 64}}, space.configurations[i].values,
                                          "1.2.3", templates));
  }
  REQUIRE(append_lines(results_path(cli.cache() + "/tuning", "gdn_decode"), lines).ok());
  std::set<std::string> expected = before;
  // The later one of two results for a setting counts.
  expected.insert("sm_90a " + space.configurations.back().kernels.at(0).canonical);
  CHECK(kernels_of(cli.prewarm(arguments)) == expected);
  CHECK(expected.size() == before.size() + 1);
  CHECK(kernels_of(cli.prewarm("--dry-run --op gdn_decode --key-dim 64 --arch sm_80")).size() ==
        kernels_for(problem, "sm_80", {})->size());
}

TEST_CASE("kernels are those of the paths that operators may take", "[cpu]") {
  const Cli cli;
  for (const std::string command : {"prewarm --dry-run", "explain"}) {
    const std::string arguments = command + " --op gdn_decode --key-dim 64 --arch sm_80";
    CHECK(cli.run(arguments, "CUBINERY_PATHS=gdn_decode=portable").exit_code == 0);
    const Output unknown = cli.run(arguments, "CUBINERY_PATHS=gdn_decode=fast");
    CHECK(unknown.exit_code == 2);
    CHECK(contains(unknown.err, "\"gdn_decode=fast\"; paths of gdn_decode: portable"));
    const Output none = cli.run(arguments, "CUBINERY_PATHS=gdn_decode=-portable");
    CHECK(none.exit_code == 2);
    CHECK(contains(none.err, "excluded by Options::paths"));
  }
}

TEST_CASE("operators that cannot do it are left out unless --op names them", "[cpu]") {
  const Cli cli;
  const std::string model = "--hf-config " + kModel + " --arch sm_80 ";
  const auto has = [](const json& summary, const char* kernel) {
    return names_of(summary).contains(kernel);
  };
  const json f32 = cli.prewarm("--dry-run --dtype f32 " + model, kExitLeftOut);
  CHECK(has(f32, "gdn_decode"));
  CHECK(has(f32, "gdn_verify"));
  CHECK_FALSE(has(f32, "gdn_commit"));
  // A verification that starts from what was accepted has an initial state, too.
  const json fresh = cli.prewarm("--dry-run --has-initial-state false " + model, kExitLeftOut);
  CHECK(has(fresh, "gdn_decode"));
  CHECK_FALSE(has(fresh, "gdn_verify"));
  CHECK(has(fresh, "gdn_conv"));
  // Nor has the convolution in front of it; the other two can do it.
  const json convs =
      cli.prewarm("--dry-run --op gdn_conv --has-initial-state false " + model, kExitLeftOut);
  CHECK(convs["problems"] == 2);
  for (const json& entry : convs["entries"]) {
    CHECK(contains(entry["canonical"], ";has_initial_state=false;"));
    CHECK(contains(entry["canonical"], ";from_accepted=false;"));
  }
  // Layouts of one operator's states are none of the others': these stay as they are.
  const std::set<std::string> usual = kernels_of(cli.prewarm("--dry-run " + model));
  for (const auto& [layout, of_conv] : {std::pair{"channels", true}, std::pair{"kv", false}}) {
    const json other = cli.prewarm("--dry-run --state-layout " + std::string(layout) + " " + model);
    CHECK(names_of(other) == names_of(cli.prewarm("--dry-run " + model)));
    for (const json& entry : other["entries"]) {
      const bool is_conv = entry["kernel"] == "gdn_conv";
      const std::string kernel = "sm_80 " + entry["canonical"].get<std::string>();
      if (!contains(kernel, ";state_layout=")) continue;
      CHECK(usual.contains(kernel) == (is_conv != of_conv));
    }
  }
  for (const std::string refused :
       {"--op gdn_commit --dtype f32 ", "--draft-tokens 99 ", "--key-dim 100 ",
        "--accepted-dtype f32 ", "--form conv,conv_verify --has-initial-state false "}) {
    INFO(refused);
    CHECK(cli.run(fmt::format("prewarm --dry-run {}{}", refused, model)).exit_code != 0);
  }
}

TEST_CASE("the option --op chooses the operators", "[cpu]") {
  const Cli cli;
  const std::string manifest = cli.dir() + "/problems.json";
  std::ofstream(manifest) << R"([{"op": "gdn_decode", "arch": "sm_80"},
                                 {"op": "gdn_prefill", "arch": "sm_80", "varlen": true},
                                 {"op": "gdn_verify", "arch": "sm_80", "varlen": true},
                                 {"op": "gdn_commit", "arch": "sm_80", "varlen": true},
                                 {"op": "gdn_conv", "arch": "sm_80", "varlen": true}])";
  for (const std::string& source :
       {"--hf-config " + kModel + " --arch sm_80", "--manifest " + manifest,
        std::string("--dtype f16 --arch sm_80")}) {
    INFO(source);
    const json decode = cli.prewarm("--dry-run --op gdn_decode " + source);
    const json prefill = cli.prewarm("--dry-run --op gdn_prefill " + source);
    const json verify = cli.prewarm("--dry-run --op gdn_verify " + source);
    const json commit = cli.prewarm("--dry-run --op gdn_commit " + source);
    const json conv = cli.prewarm("--dry-run --op gdn_conv " + source);
    const json both = cli.prewarm("--dry-run --op gdn_prefill,gdn_decode " + source);
    const json all = cli.prewarm(
        "--dry-run --op gdn_conv,gdn_commit,gdn_verify,gdn_prefill,gdn_decode " + source);
    CHECK(names_of(decode) == std::set<std::string>{"gdn_decode"});
    CHECK(names_of(prefill) == std::set<std::string>{"gdn_prefill_chunks", "gdn_prefill_scan"});
    CHECK(names_of(verify) == std::set<std::string>{"gdn_verify", "gdn_verify_wy"});
    CHECK(all["entries"] == cli.prewarm("--dry-run " + source)["entries"]);
    CHECK(names_of(commit) == std::set<std::string>{"gdn_commit"});
    CHECK(names_of(conv) == std::set<std::string>{"gdn_conv"});
    const bool is_model = source.starts_with("--hf-config");
    CHECK(all["problems"] == (is_model ? 8 : 5));
    CHECK(all["requested"] == both["requested"].get<int>() + verify["requested"].get<int>() +
                                  commit["requested"].get<int>() + conv["requested"].get<int>());
    CHECK(both["problems"] == (is_model ? 3 : 2));
    CHECK(both["requested"] == decode["requested"].get<int>() + prefill["requested"].get<int>());
  }
}

TEST_CASE("the option --form chooses among a model's problems", "[cpu]") {
  const Cli cli;
  const std::string model = "--dry-run --arch sm_80 --hf-config " + kModel;
  std::set<std::string> kernels;
  for (const char* form : {"conv", "conv_decode", "conv_verify"}) {
    const json one = cli.prewarm(std::string("--form ") + form + " " + model);
    CHECK(one["problems"] == 1);
    CHECK(names_of(one) == std::set<std::string>{"gdn_conv"});
    const std::set<std::string> its = kernels_of(one);
    for (const std::string& kernel : its) CHECK(kernels.insert(kernel).second);
  }
  CHECK(kernels == kernels_of(cli.prewarm("--op gdn_conv " + model)));
  CHECK(names_of(cli.prewarm("--form decode,conv_decode " + model)) ==
        std::set<std::string>{"gdn_conv", "gdn_decode"});
  // Flags change every form that has the field.
  const std::string f32 = "--op gdn_conv --state-dtype f32 " + model;
  CHECK(cli.prewarm(f32)["problems"] == 3);
  for (const json& entry : cli.prewarm(f32)["entries"]) {
    CHECK(contains(entry["canonical"], ";state_dtype=f32;"));
  }
  // A manifest's problems have no form.
  const std::string manifest = cli.dir() + "/problems.json";
  std::ofstream(manifest) << R"([{"op": "gdn_prefill", "arch": "sm_80", "varlen": true}])";
  CHECK(names_of(cli.prewarm("--form conv_decode --manifest " + manifest + " " + model)) ==
        std::set<std::string>{"gdn_conv", "gdn_prefill_chunks", "gdn_prefill_scan"});
}

TEST_CASE("a field changes nothing of operators without it", "[cpu]") {
  const Cli cli;
  const std::string model = "--dry-run --arch sm_90a --hf-config " + kModel;
  const std::set<std::string> before = kernels_of(cli.prewarm(model));
  const json after = cli.prewarm(model + " --checkpoints after");
  CHECK(names_of(after).size() == 7);
  std::set<std::string> changed;
  for (const json& entry : after["entries"]) {
    const std::string canonical = entry["canonical"];
    const bool has_it = contains(canonical, "checkpoints=after;");
    if (has_it) changed.insert(entry["kernel"]);
    CHECK(before.contains("sm_90a " + canonical) != has_it);
    CHECK((has_it || entry["kernel"] != "gdn_prefill_scan"));
  }
  CHECK(changed == std::set<std::string>{"gdn_conv", "gdn_prefill_scan"});
  // Of the convolutions, that in front of prefills.
  const std::set<std::string> all = kernels_of(after);
  for (const std::string& kernel :
       kernels_of(cli.prewarm(model + " --form conv_decode,conv_verify"))) {
    CHECK(all.contains(kernel));
  }
}

// A model's config does not say how many tokens are drafted.
TEST_CASE("the number of drafts is an option of a model's verification", "[cpu]") {
  const Cli cli;
  const std::string model = " --hf-config " + kModel;
  const auto drafts = [&](int tokens) {
    return model + " --draft-tokens " + std::to_string(tokens);
  };
  const auto problem = [&](const std::string& options) {
    return json::parse(cli.run("problems --op gdn_verify" + options).out);
  };
  json expected = problem(model);
  CHECK(expected["draft_tokens"] == 4);
  expected["draft_tokens"] = 8;
  CHECK(problem(drafts(8)) == expected);
  // Other operators have no such field.
  CHECK(cli.run("problems --op gdn_decode" + drafts(8)).exit_code == 2);

  const std::string dry = "--dry-run --arch sm_90a --op gdn_verify";
  const std::set<std::string> usual = kernels_of(cli.prewarm(dry + model));
  CHECK(kernels_of(cli.prewarm(dry + drafts(3))) == usual);  // as many rows of products
  const json more = cli.prewarm(dry + drafts(9));
  for (const json& entry : more["entries"]) {
    const std::string canonical = entry["canonical"];
    const bool is_wy = entry["kernel"] == "gdn_verify_wy";
    CHECK(usual.contains("sm_90a " + canonical) != is_wy);
    CHECK(contains(canonical, ";draft_tokens=16;") == is_wy);
  }
  CHECK(names_of(more) == std::set<std::string>{"gdn_verify", "gdn_verify_wy"});
  const Output bad = cli.run("prewarm " + dry + drafts(17));
  CHECK(bad.exit_code == 2);
  CHECK(contains(bad.err, "gdn_verify: draft_tokens = 17; accepted: 1 to 16"));
}

TEST_CASE("what keeps every kernel from being made is said once, before the first", "[cpu]") {
  const Cli cli;
  const std::string file = cli.dir() + "/file";
  std::ofstream(file) << "no directory";
  const std::string problem = "prewarm --key-dim 64 --arch sm_80,sm_90a ";
  const auto refused = [&](const std::string& arguments, const std::string& environment,
                           const std::string& cause) {
    const Output output = cli.run(problem + arguments, environment);
    INFO(output.err);
    CHECK(output.exit_code == 1);
    CHECK(output.out.empty());
    CHECK(std::count(output.err.begin(), output.err.end(), '\n') == 1);
    CHECK(contains(output.err, " kernels are not in the cache and cannot be compiled into it: "));
    CHECK(contains(output.err, cause));
  };
  refused("--nvrtc /nowhere", "", "/nowhere");
  refused("", "CUBINERY_OFFLINE=1", "CUBINERY_OFFLINE=1 forbids it; --dry-run lists them");
  refused("--cache-dir " + file, "", file);
  CHECK(cli.run(problem + "--dry-run", "CUBINERY_OFFLINE=1").exit_code == 0);
  CHECK(cli.entries().empty());
}

TEST_CASE("a full cache needs no compiler", "[nvrtc]") {
  const Cli cli;
  const std::string problem = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80 ";
  const json made = cli.prewarm(problem);
  for (const char* environment : {"CUBINERY_OFFLINE=1", "CUBINERY_NVRTC=/nowhere"}) {
    const Output again = cli.run("prewarm --json - " + problem, environment);
    INFO(again.err);
    CHECK(again.exit_code == 0);
    CHECK(json::parse(again.out)["hits"] == made["requested"]);
  }
}

// Every shipped model: what an image build waits for.  That all of it compiles, and without spills,
// is KernelsOfModelsAndResultsCompile's.
TEST_CASE("models share most of their kernels", "[cpu]") {
  const Cli cli;
  const std::string options = "--dry-run --tp 1,2,4,8,16 --arch sm_90a,sm_80";
  std::string arguments = options, with_kimi_layers = options;
  for (const auto& model : fs::directory_iterator(CUBINERY_TEST_DIR "/data/models")) {
    if (!model.is_directory()) continue;
    const bool is_qwen = model.path().filename().string().starts_with("Qwen");
    (is_qwen ? arguments : with_kimi_layers) +=
        " --hf-config " + model.path().string() + "/config.json";
  }
  // Of two gates.
  const json kimi = cli.prewarm(with_kimi_layers);
  CHECK(kimi["requested"] <= 101);
  CHECK(kimi["left_out"].empty());
  const json all = cli.prewarm(arguments);
  const auto& entries = all["entries"];
  const auto verifications = std::count_if(entries.begin(), entries.end(), [](const json& entry) {
    return entry["kernel"].get<std::string>().starts_with("gdn_verify");
  });
  const auto commits = std::count_if(entries.begin(), entries.end(), [](const json& entry) {
    return entry["kernel"] == "gdn_commit";
  });
  const auto convs = std::count_if(entries.begin(), entries.end(),
                                   [](const json& entry) { return entry["kernel"] == "gdn_conv"; });
  CHECK(static_cast<std::ptrdiff_t>(all["requested"]) - verifications - commits - convs <= 80);
  CHECK(verifications <= 16);
  CHECK((commits > 0 && commits <= 8));
  CHECK((convs > 0 && convs <= 44));
}

TEST_CASE("prewarm fills the cache once", "[nvrtc]") {
  const Cli cli;
  // Small heads, which compile in a fifth of the time.
  const std::string arguments =
      "--tp 1,2,4,8,16 --arch sm_90a,sm_80 --key-dim 32 --value-dim 32 --hf-config " + kModel;
  const json first = cli.prewarm(arguments);
  CHECK(first["compiled"] == first["requested"]);
  CHECK(first["requested"] > 30);
  CHECK(first["failed"] == 0);
  CHECK(cli.entries().size() == first["requested"]);
  for (const json& entry : first["entries"]) {
    CHECK(entry["source"] == "compiled");
    CHECK(entry["registers"] > 0);
    CHECK(entry["spills"] == 0);
    CHECK(entry["compile_ms"] > 0);
    CHECK(entry["bytes"] == fs::file_size(entry["path"].get<std::string>()));
  }
  const json second = cli.prewarm(arguments + " --verify");
  CHECK(second["hits"] == first["requested"]);
  CHECK(second["compiled"] == 0);
  CHECK(kernels_of(second) == kernels_of(first));

  const Output text = cli.run("prewarm " + arguments);
  CHECK(contains(text.out, "0 compiled"));
  CHECK(contains(text.out, "sm_90a  gdn_decode"));
  CHECK(contains(text.out, "sm_90a  gdn_prefill_scan"));
  CHECK(contains(text.out, "sm_90a  gdn_verify"));
  CHECK(contains(text.out, "sm_90a  gdn_commit"));
  CHECK(contains(text.out, "sm_90a  gdn_conv"));
  CHECK(contains(text.out, "Cache: " + cli.cache()));
  CHECK(contains(text.err, "hit gdn_decode sm_80"));
}

TEST_CASE("a cache that cannot hold the kernels is a failure", "[nvrtc]") {
  const Cli cli;
  const std::string arguments =
      "prewarm --op gdn_decode --key-dim 32 --value-dim 32 --arch sm_80 --json -";
  const json all = json::parse(cli.run(arguments).out);
  std::uint64_t bytes = 0;
  for (const json& entry : all["entries"]) bytes += entry["bytes"].get<std::uint64_t>();
  const Cli small;
  const std::string limit = "CUBINERY_CACHE_LIMIT=" + std::to_string(bytes * 3 / 4);
  for (const char* more : {"", " --verify"}) {
    const Output output = small.run(arguments + more, limit);
    CHECK(output.exit_code == 1);
    const json made = json::parse(output.out);
    CHECK(made["failed"].get<std::size_t>() ==
          all["requested"].get<std::size_t>() - small.entries().size());
    CHECK(contains(output.out, "evicted at once"));
  }
}

TEST_CASE("a cache below is enough", "[nvrtc]") {
  const Cli below;
  const Cli above;
  const json made = below.prewarm("--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80");
  const json seen = above.prewarm(
      "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80 --verify --cache-layers " +
      below.cache());
  CHECK(seen["hits"] == made["requested"]);
  CHECK(above.entries().empty());
}

TEST_CASE("shards make everything once", "[nvrtc]") {
  const Cli cli;
  const std::string arguments =
      "--op gdn_decode,gdn_verify,gdn_commit --hf-config " + kModel + " --arch sm_80";
  const json one = cli.prewarm(arguments + " --shard 1/2");
  const json two = cli.prewarm(arguments + " --shard 2/2");
  const json all = cli.prewarm(arguments);
  CHECK(one["hits"] == 0);
  CHECK(two["hits"] == 0);
  CHECK(all["compiled"] == 0);
  std::set<std::string> both = kernels_of(one);
  both.merge(kernels_of(two));
  CHECK(both == kernels_of(all));
}

TEST_CASE("a manifest names problems and architectures", "[nvrtc]") {
  const Cli cli;
  const std::string manifest = cli.dir() + "/problems.json";
  std::ofstream(manifest) << R"([{"op": "gdn_decode", "key_dim": 64, "arch": "sm_80"},
                                 {"op": "gdn_decode", "key_dim": 64, "v_heads": 16, "arch": "sm_80"}])";
  const json summary = cli.prewarm("--manifest " + manifest + " --state-dtype bf16");
  CHECK(summary["problems"] == 2);
  for (const json& entry : summary["entries"]) {
    CHECK(entry["arch"] == "sm_80");
    CHECK(entry["problems"] == 2);
    CHECK(contains(entry["canonical"], "key_dim=64;"));
    CHECK(contains(entry["canonical"], "state_dtype=bf16;"));
  }
}

TEST_CASE("a template that does not compile is reported with its log", "[nvrtc]") {
  const Cli cli;
  const std::string folder = cli.dir() + "/templates/gdn_decode";
  fs::create_directories(folder);
  std::ofstream(folder + "/key.h") << "#pragma once\n";
  std::ofstream(folder + "/gdn_decode.cu") << "this is not CUDA\n";
  const std::string arguments =
      "--op gdn_decode --key-dim 64 --arch sm_80 --template-dir " + cli.dir() + "/templates";
  const json summary = cli.prewarm(arguments, 1);
  CHECK(summary["failed"] == summary["requested"]);
  CHECK(contains(summary["entries"][0]["error"], "compile failed"));
  CHECK(contains(summary["entries"][0]["log"], "gdn_decode.cu"));
  const Output text = cli.run("prewarm " + arguments);
  CHECK(text.exit_code == 1);
  CHECK(contains(text.out, "error"));
  // One message for all of them.
  REQUIRE(summary["requested"] > 1);
  const std::string others =
      "and " + std::to_string(summary["requested"].get<int>() - 1) + " more in the same way";
  CHECK(contains(text.out, others));
  CHECK(!contains(text.out, "\nfailed: "));
}

TEST_CASE("an interrupted prewarm reports and leaves whole entries", "[nvrtc]") {
  const Cli cli;
  const std::string report = cli.dir() + "/report.json";
  // Interrupted as soon as the first of many kernels is there.
  const Output stopped =
      cli.run("prewarm --hf-config " + kModel + " --arch all --jobs 1 --json " + report +
              " 2>/dev/null & while kill -0 $! && ! ls " + cli.cache() +
              "/entries/*.entry >/dev/null 2>&1; do sleep 0.02; done; kill -INT $!; wait $!");
  CHECK(stopped.exit_code == 130);
  const json summary = json::parse(read_file(report).value());
  CHECK(summary["interrupted"] == true);
  CHECK(summary["failed"] == 0);
  CHECK(summary["not_started"].get<int>() + summary["compiled"].get<int>() == summary["requested"]);
  CHECK(cli.entries().size() == summary["compiled"]);
  CHECK(cli.run("cache verify").exit_code == 0);
}

}  // namespace
}  // namespace cubinery
