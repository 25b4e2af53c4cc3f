#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/cli/run_cli.h"

#include "cache/store.h"
#include "cli/explain_causes.h"
#include "codegen/identity.h"

namespace cubinery {
namespace {

const std::string kDecode = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80";

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The command that a line of the summary proposes, run as a shell has it.
Output run_proposed(const Cli& cli, const std::string& summary) {
  const std::size_t run = summary.find("; run: ");
  REQUIRE(run != summary.npos);
  std::string command = summary.substr(run + 7, summary.find('\n', run) - run - 7);
  std::string environment;
  if (command.starts_with("CUBINERY_OFFLINE=0 ")) {
    environment = "CUBINERY_OFFLINE=0";
    command.erase(0, environment.size() + 1);
  }
  REQUIRE(command.starts_with("cubinery prewarm "));
  return cli.run(command.substr(std::string("cubinery ").size()), environment);
}

MissingKernel missing(const std::string& kernel, std::vector<std::string> differences) {
  MissingKernel one{.kernel = kernel, .found = {}};
  one.found.nearest_path = "/cache/entries/x";
  one.found.differences = std::move(differences);
  return one;
}

std::vector<std::string> texts_of(const std::vector<MissingKernel>& missing) {
  std::vector<std::string> texts;
  for (const MissCause& cause : causes_of(missing, {"state_dtype", "dtype", "output_dtype"})) {
    texts.push_back(std::to_string(cause.missing.size()) + " " + cause.text);
  }
  return texts;
}

TEST_CASE("explain tells hits and the nearest entry of misses", "[nvrtc]") {
  const Cli cli;
  const std::string problem = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80";
  CHECK(contains(cli.run("explain --verbose " + problem).out,
                 "the cache has no entry of gdn_decode"));
  cli.prewarm(problem);
  const Output hit = cli.run("explain --verbose " + problem);
  CHECK(hit.exit_code == 0);
  CHECK(contains(hit.out, "gdn_decode for sm_80: cached"));
  CHECK(contains(hit.out, "registers"));
  CHECK(contains(hit.out, "-DCUBINERY_KEY={.key_dim=64"));
  const Output miss = cli.run("explain --verbose " + problem + " --state-dtype bf16");
  CHECK(contains(miss.out, "gdn_decode for sm_80: not cached"));
  CHECK(contains(miss.out, "differs in key.state_dtype: f32 -> bf16"));

  const json found = json::parse(cli.run("explain --json - " + problem).out);
  CHECK(found[0]["cached"] == true);
  CHECK(found[0]["registers"] > 0);
}

TEST_CASE("explain shows the kernels of one name, or the source of one", "[cpu]") {
  const Cli cli;
  const std::string problem = " --key-dim 64 --value-dim 64 --arch sm_80";
  const json all = json::parse(cli.run("explain --json -" + problem).out);
  CHECK(all[0]["kernel"] == "gdn_decode");
  std::size_t scans = 0;
  for (const json& found : all) scans += found["kernel"] == "gdn_prefill_scan" ? 1 : 0;
  const json one = json::parse(cli.run("explain --json - --kernel gdn_prefill_scan" + problem).out);
  CHECK(one.size() == scans);
  for (const json& found : one) CHECK(found["kernel"] == "gdn_prefill_scan");

  const std::string manifest = cli.dir() + "/problems.json";
  std::ofstream(manifest) << R"([{"op": "gdn_prefill", "key_dim": 64, "arch": "sm_90a"}])";
  const Output own =
      cli.run("explain --verbose --manifest " + manifest, "CUBINERY_DRIVER=/nowhere");
  CHECK(own.exit_code == 0);
  CHECK(own.out.find("\ngdn_prefill_chunks for sm_90a: not cached") != std::string::npos);

  const Output first = cli.run("explain --source" + problem);
  CHECK(first.out == all[0]["source"].get<std::string>());
  CHECK(contains(first.out, "__global__"));
  const Output chosen = cli.run("explain --source --kernel gdn_prefill_scan" + problem);
  CHECK(chosen.out == one[0]["source"].get<std::string>());
  CHECK(chosen.out != first.out);
}

TEST_CASE("explain prints a kernel's PTX and machine code", "[nvrtc]") {
  const Cli cli;
  std::ofstream(cli.dir() + "/add.cu") << "extern \"C\" __global__ void add(int* x) { *x += 1; }\n";
  const std::string file = " --arch sm_90a --source-file " + cli.dir() + "/add.cu";
  CHECK(contains(cli.run("explain --ptx" + file).out, ".visible .entry add("));
  CHECK(
      contains(cli.run("explain --ptx --kernel gdn_decode " + kDecode).out, ".entry gdn_decode("));
  const Output both = cli.run("explain --ptx --sass" + file);
  CHECK(both.exit_code == 2);
  CHECK(contains(both.err, "--ptx excludes --sass"));

  const std::string program = cli.dir() + "/nvdisasm";
  const std::string nvcc = " --nvcc " + cli.dir() + "/nvcc";
  const Output none = cli.run("explain --sass" + file + nvcc);
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "nvdisasm: none of " + program));
  std::ofstream(program) << "#!/bin/sh\necho machine code\n";
  std::filesystem::permissions(program, std::filesystem::perms(0700));
  CHECK(cli.run("explain --sass" + file + nvcc).out == "machine code\n");
}

TEST_CASE("explain has a line for each cause", "[nvrtc]") {
  const Cli cli;
  cli.prewarm(kDecode);
  const Output miss = cli.run("explain --state-dtype bf16 " + kDecode);
  INFO(miss.out);
  CHECK(miss.exit_code == 0);
  CHECK(lines_of(miss.out) == 1);
  const json all = json::parse(cli.run("explain --json - --state-dtype bf16 " + kDecode).out);
  const std::string count = std::to_string(all.size());
  CHECK(miss.out.starts_with(count + " of " + count +
                             " missing; nearest differ in state_dtype: f32 -> bf16; run: "));
  for (const json& found : all) {
    CHECK(found["cause"] == "nearest differ in state_dtype: f32 -> bf16");
    CHECK(contains(miss.out, found["run"].get<std::string>()));
  }
  CHECK(run_proposed(cli, miss.out).exit_code == 0);
  const Output hit = cli.run("explain --state-dtype bf16 " + kDecode);
  CHECK(hit.out == count + " of " + count + " cached\n");
}

TEST_CASE("the command that explain proposes is one for a shell", "[nvrtc]") {
  const Cli cli;
  const std::string folder = cli.dir() + "/a model's $HOME; x";
  fs::create_directory(folder);
  fs::copy_file(kModel, folder + "/config.json");
  const std::string cache = cli.dir() + "/-c \"x\"";
  const std::string problem = "explain --hf-config \"" + cli.dir() +
                              "/a model's \\$HOME; x\" --op gdn_decode --form decode " +
                              "--tp 2,4 --arch sm_80 --cache-dir '" + cache +
                              "' --kernel gdn_decode";
  const Output miss = cli.run(problem, "CUBINERY_OFFLINE=1");
  INFO(miss.out << miss.err);
  CHECK(lines_of(miss.out) == 1);
  CHECK(contains(miss.out,
                 "missing; the cache has no entry of gdn_decode; run: CUBINERY_OFFLINE=0 "));
  const Output made = run_proposed(cli, miss.out);
  INFO(made.err);
  CHECK(made.exit_code == 0);
  CHECK(cli.run(problem).out.ends_with(" cached\n"));
}

TEST_CASE("an entry of another version is called that", "[nvrtc]") {
  const Cli cli;
  cli.prewarm(kDecode);
  const Store store({.dir = cli.cache()});
  std::vector<Entry> entries;
  store.for_each([&](const ListedEntry& listed) { entries.push_back(*listed.entry); });
  fs::remove_all(cli.cache() + "/entries");
  for (Entry& entry : entries) {
    entry.identity.template_digest = std::string(32, '0');
    entry.identity.headers_digest = std::string(32, '1');
    REQUIRE(Store({.dir = cli.cache()}).publish(entry));
  }
  const Output miss = cli.run("explain " + kDecode);
  INFO(miss.out);
  CHECK(lines_of(miss.out) == 1);
  CHECK(contains(miss.out,
                 "missing; nearest were made by another version of cubinery or another "
                 "template; run: cubinery prewarm "));
  // --verbose has the digests.
  CHECK(contains(cli.run("explain --verbose " + kDecode).out,
                 "differs in template: " + std::string(32, '0')));
}

TEST_CASE("missing kernels share the cause that most have", "[cpu]") {
  const std::string state = "key.state_dtype: f32 -> bf16", dtype = "key.dtype: bf16 -> f16",
                    out = "key.output_dtype: bf16 -> f16", warps = "key.warps: 4 -> 2",
                    arch = "arch: sm_80 -> sm_90a";
  CHECK(
      texts_of({missing("a", {state}), missing("b", {state, warps}), missing("c", {state, out})}) ==
      std::vector<std::string>{"3 nearest differ in state_dtype: f32 -> bf16"});
  CHECK(texts_of({missing("a", {dtype, out, arch}), missing("b", {dtype, arch})}) ==
        std::vector<std::string>{"2 nearest differ in dtype: bf16 -> f16, arch: sm_80 -> sm_90a"});
  CHECK(texts_of({missing("a", {state}), missing("b", {dtype}), missing("c", {dtype})}) ==
        std::vector<std::string>{"1 nearest differ in state_dtype: f32 -> bf16",
                                 "2 nearest differ in dtype: bf16 -> f16"});
  CHECK(texts_of({missing("a", {warps}), missing("b", {"key.lanes: 1 -> 2"})}) ==
        std::vector<std::string>{"2 nearest differ in tuned fields alone: lanes, warps"});
  CHECK(texts_of({missing("a", {"template: 1 -> 2", state}),
                  missing("b", {"template: 3 -> 4", "headers: 5 -> 6"})}) ==
        std::vector<std::string>{
            "2 nearest were made by another version of cubinery or another template"});
  MissingKernel none = missing("b", {});
  none.found.nearest_path.clear();
  CHECK(texts_of({none, missing("a", {}), none}) ==
        std::vector<std::string>{"2 the cache has no entry of b",
                                 "1 nearest cannot be used, see cubinery cache verify"});
  CHECK(texts_of({}).empty());
}

}  // namespace
}  // namespace cubinery
