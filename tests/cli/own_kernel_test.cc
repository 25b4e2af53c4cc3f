// Kernels of a user's own on the command line: a program prints what its field table makes of keys,
// and a manifest holds it.
#include <fstream>
#include <set>

#include "cubinery/context.h"
#include "cubinery/gdn.h"
#include "cubinery/tuning.h"
#include "rms_norm/fields.h"
#include "tests/cache/temp_dir.h"
#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

const std::string kTemplates = CUBINERY_TEST_DIR "/../examples/02_own_kernel/templates";
const RmsNormKey kKey{.cols = 768};

std::string entry_of(const KernelSpec& spec) { return "{\"spec\": " + to_json(spec) + "}"; }

// Every variant of kKey.
std::string manifest_of_variants() {
  std::string text;
  for_each_candidate(kKey, [&](const RmsNormKey& candidate) {
    text += (text.empty() ? "[" : ",") + entry_of(spec_of(candidate).value());
  });
  return text + "]";
}

// A manifest in a file.
std::string file_of(const Cli& cli, const std::string& manifest) {
  const std::string file = cli.dir() + "/kernels.json";
  std::ofstream(file) << manifest;
  return file;
}

TEST_CASE("own kernels are compiled from a manifest", "[nvrtc]") {
  const Cli cli;
  const std::string arguments = "--manifest " + file_of(cli, manifest_of_variants()) +
                                " --template-dir " + kTemplates + " --arch sm_80";
  const json summary = cli.prewarm(arguments);
  CHECK(summary["compiled"] == 4);
  CHECK(contains(cli.run("explain --verbose " + arguments).out, "rms_norm for sm_80: cached"));

  Options options;
  options.device = kNoDevice;
  options.arch = "sm_80";
  options.offline = true;
  options.cache_dir = cli.cache();
  options.template_dirs = {kTemplates};
  const Context context = Context::create(options).value();
  CHECK(context.compile(kKey).value().source == Source::kDisk);
}

TEST_CASE("own kernels stand beside problems in a manifest", "[cpu]") {
  const Cli cli;
  const std::string both =
      "[{\"op\": \"gdn_decode\", \"key_dim\": 64}," + entry_of(spec_of(kKey).value()) + "]";
  const std::string manifest = "--manifest " + file_of(cli, both);
  const auto names = [](const json& summary) {
    std::set<std::string> kernels;
    for (const json& entry : summary["entries"]) kernels.insert(entry["kernel"]);
    return kernels;
  };
  const std::string dry_run = "--dry-run --arch sm_80 " + manifest;
  CHECK(names(cli.prewarm(dry_run + " --dtype f16 --template-dir " + kTemplates)) ==
        std::set<std::string>{"gdn_decode", "rms_norm"});
  // Folders of the environment are there for other commands too.
  const Output decode =
      cli.run("prewarm --json - --op gdn_decode " + dry_run, "CUBINERY_TEMPLATE_DIR=" + kTemplates);
  CHECK(names(json::parse(decode.out)) == std::set<std::string>{"gdn_decode"});
  const json printed = json::parse(cli.run("problems " + manifest).out);
  CHECK(printed.at(1).at("spec") == json::parse(to_json(spec_of(kKey).value())));
}

TEST_CASE("own kernels that cannot be are refused with the reason", "[cpu]") {
  const Cli cli;
  const std::string arguments = " --arch sm_80 --manifest " + cli.dir() + "/kernels.json";
  const auto refused = [&](const std::string& command, const std::string& manifest) {
    file_of(cli, manifest);
    const Output output = cli.run(command + arguments);
    CHECK(output.exit_code == 2);
    return output.err;
  };
  const std::string with_templates = "prewarm --dry-run --template-dir " + kTemplates;
  const std::string good = "[" + entry_of(spec_of(kKey).value()) + "]";
  CHECK(contains(refused("prewarm --dry-run --template-dir /nowhere", good),
                 "--template-dir /nowhere: no such directory; accepted: a folder of templates"));
  CHECK(contains(refused("prewarm --dry-run --template-dir " + cli.dir(), good),
                 "entry 1: template: no rms_norm/rms_norm.cu in [" + cli.dir() + "]"));
  CHECK(contains(refused("explain --template-dir " + cli.dir(), R"([{"op": "gdn_decode"}])"),
                 "--template-dir " + cli.dir() +
                     ": nothing for these kernels; accepted: a folder that holds one of common, "
                     "gdn_decode"));
  CHECK(contains(refused("tune --dry-run --template-dir " + kTemplates, good),
                 "entry 1: rms_norm is no kernel of the library; accepted: problems"));
  std::string changed = good;
  changed.replace(changed.find("cols=768"), 8, "cols=512");
  CHECK(contains(refused(with_templates, changed), "spec: rms_norm was changed since it was"));
  CHECK(contains(refused(with_templates, changed), "cols=512;warps=4\n"));
  const auto ours = gdn::DecodeProblem{}.kernels("sm_80").value();
  CHECK(contains(refused(with_templates, "[" + entry_of(ours.front()) + "]"),
                 "gdn_decode is a kernel of the library; accepted: its problem"));
  CHECK(contains(refused(with_templates, "[{\"op\":\"gdn_decode\"," + good.substr(2)),
                 "entry 1: op beside spec; accepted: arch"));
  CHECK(contains(refused(with_templates, R"([{"spec":7}])"), "entry 1: spec: not a JSON object"));
}

TEST_CASE("a new kernel is the example by another name", "[cpu]") {
  const Cli cli;
  const Output made = cli.run("new-kernel my_norm2 --directory " + cli.dir() + "/new");
  CHECK(made.err.empty());
  REQUIRE(made.exit_code == 0);
  CHECK(contains(made.out, "new/build/my_norm2 --manifest > kernels.json"));
  const std::string example = CUBINERY_TEST_DIR "/../examples/02_own_kernel/";
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(example)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string name = entry.path().lexically_relative(example).string();
    std::string there = name;
    for (std::size_t at; (at = there.find("rms_norm")) != there.npos;) {
      there.replace(at, 8, "my_norm2");
    }
    INFO(name);
    std::string text = test::read_bytes(entry.path().string());
    for (const auto& [from, to] :
         {std::pair{"rms_norm", "my_norm2"}, {"RmsNorm", "MyNorm2"}, {"RMS_NORM", "MY_NORM2"}}) {
      for (std::size_t at; (at = text.find(from)) != text.npos;) {
        text.replace(at, std::string(from).size(), to);
      }
    }
    CHECK(test::read_bytes(cli.dir() + "/new/" + there) == text);
  }
  CHECK(files == 6);
}

TEST_CASE("a new kernel needs a name and a new folder", "[cpu]") {
  const Cli cli;
  const auto refused = [&](const std::string& arguments) {
    const Output output = cli.run("new-kernel " + arguments);
    CHECK(output.exit_code == 2);
    return output.err;
  };
  const std::string there = " --directory " + cli.dir() + "/new";
  for (const char* name : {"MyNorm", "2nd", "my-norm", "../x", "_x", "''"}) {
    CHECK(contains(refused(name + there), "accepted: a C identifier of small letters"));
  }
  CHECK(contains(refused("gdn_decode" + there), "the library's own kernel has this name"));
  CHECK_FALSE(fs::exists(cli.dir() + "/new"));
  fs::create_directory(cli.dir() + "/new");
  std::ofstream(cli.dir() + "/new/file") << "mine";
  CHECK(contains(refused("my_norm" + there), "is there, and not empty"));
  CHECK(test::read_bytes(cli.dir() + "/new/file") == "mine");
}

TEST_CASE("a space without candidates says which rule is in the way", "[cpu]") {
  const std::string why =
      "cols must be a positive multiple of 32; key: rms_norm;dtype=bf16;cols=33;warps=4";
  CHECK(tuning_space(RmsNormKey{.cols = 33}).why_empty == why);
  CHECK(tuning_space(kKey).why_empty.empty());
  CHECK(why_no_candidate(RmsNormKey{.cols = 33, .warps = 99}) ==
        "cols must be a positive multiple of 32; key: rms_norm;dtype=bf16;cols=33;warps=99");
}

}  // namespace
}  // namespace cubinery
