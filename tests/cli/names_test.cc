// Options that choose by a name: an unknown one is refused in a line that says what is accepted,
// and one that is known and fits nothing is not passed over in silence.
#include <algorithm>
#include <fstream>

#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

const std::string kMeasured = CUBINERY_TEST_DIR "/data/tuning";

struct Case {
  std::string arguments;
  std::string text;
  std::string environment{};
};

void check_refused(const Cli& cli, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const Output output = cli.run(one.arguments, one.environment);
    INFO(one.arguments << "\n" << output.err);
    CHECK(output.exit_code == 2);
    CHECK(output.out.empty());
    CHECK(output.err.starts_with("cubinery: "));
    CHECK(std::count(output.err.begin(), output.err.end(), '\n') == 1);
    CHECK(contains(output.err, one.text));
  }
}

std::string file_of(const Cli& cli, const std::string& name, const std::string& text) {
  const std::string path = cli.dir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST_CASE("an unknown name is refused in a line", "[cpu]") {
  const Cli cli;
  const std::string problem = " --key-dim 64 --arch sm_80", model = " --hf-config " + kModel;
  const std::string op =
      "--op gdn_prefil; accepted: gdn_decode, gdn_prefill, gdn_verify, "
      "gdn_commit, gdn_conv; did you mean gdn_prefill?";
  const std::string arch = "--arch sm_9o; accepted: sm_80, ";
  const std::string own = file_of(cli, "own.json", R"([{"op": "gdn_decode", "arch": "sm_80"}])");
  std::vector<Case> cases = {
      {"problems --op gdn_prefil --key-dim 64", op},
      {"problems --form decod" + model, "--form decod; accepted: decode, "},
      {"problems --model-type qwen3_nxt" + model, "accepted: models with Gated DeltaNet layers ("},
      {"explain --kernel gdn_prefil_scan" + problem,
       "--kernel gdn_prefil_scan; accepted: gdn_commit, gdn_conv, gdn_decode, gdn_prefill_chunks, "
       "gdn_prefill_scan, gdn_verify, gdn_verify_wy; did you mean gdn_prefill_scan?"},
      {"report --library --op gdn_prefil", "--op gdn_prefil; accepted: gdn_prefill, "},
      {"report --library --op gdn_prefil", "; did you mean gdn_prefill?"},
      {"report --dir " + kMeasured + " --op gdn_decod", "--op gdn_decod; accepted: gdn_decode"},
      {"report --library --op gdn_decode --bucket states=255",
       "--bucket states=255; accepted: states=256, "},
      {"report --library --bucket state=256", "--bucket state=256; accepted: states=256, "},
      {"report --library --setting zz", "--setting zz; accepted: the start of "},
      {"report --library --format tabel", "tabel"},
      {"cache export -o x.pack --arch sm_9o", "--arch sm_9o: no such entry in "},
      {"cache export -o x.pack --kernel gdn_decod", "--kernel gdn_decod: no such entry in "},
  };
  for (const std::string command : {"prewarm --dry-run", "explain", "tune --dry-run"}) {
    cases.push_back({command + " --op gdn_prefil" + problem, op});
    cases.push_back({command + " --form decod --arch sm_80" + model, "--form decod; accepted: "});
    cases.push_back({command + " --key-dim 64 --arch sm_9o", arch});
  }
  for (const std::string command : {"prewarm --dry-run", "explain"}) {
    // Nothing here waits for --arch.
    cases.push_back({command + " --arch sm_9o --manifest " + own, arch});
    cases.push_back({command + problem,
                     "CUBINERY_PATHS has an operator gdn_decod; accepted: gdn_decode, ",
                     "CUBINERY_PATHS=gdn_decod=portable"});
  }
  check_refused(cli, cases);
}

TEST_CASE("a name that fits nothing is not passed over", "[cpu]") {
  const Cli cli;
  const std::string decode =
      " --manifest " + file_of(cli, "decode.json", R"([{"op": "gdn_decode"}])");
  const std::string none = "none of the problems is of it; accepted: gdn_decode";
  std::vector<Case> cases = {
      {"problems --op gdn_prefill" + decode, "--op gdn_prefill: " + none},
      {"problems --op gdn_decode,gdn_conv" + decode, "--op gdn_conv: " + none},
      {"report --dir " + kMeasured + " --op gdn_conv", "--op gdn_conv; accepted: "},
      {"report --library --op gdn_decode --bucket nothing=1", "--bucket nothing=1; accepted: "},
      {"cache export -o x.pack --arch sm_80", "accepted: nothing, the cache is empty"},
  };
  for (const std::string command : {"prewarm --dry-run", "explain", "tune --dry-run"}) {
    cases.push_back(
        {command + " --arch sm_80 --op gdn_prefill" + decode, "--op gdn_prefill: " + none});
  }
  check_refused(cli, cases);

  const std::string own = file_of(cli, "own.json", R"([{"op": "gdn_decode", "arch": "sm_80"}])");
  for (const std::string command : {"prewarm --dry-run", "explain"}) {
    const Output unused = cli.run(command + " --arch sm_90a,sm_86 --manifest " + own);
    CHECK(unused.exit_code == 0);
    CHECK(contains(unused.err,
                   "cubinery: --arch sm_90a,sm_86 is not used: every problem names its "
                   "own architecture\n"));
  }
}

TEST_CASE("a format that describes one setting lists a few to choose from", "[cpu]") {
  const Output output = Cli().run("report --format t4 --dir " + kMeasured);
  CHECK(output.exit_code == 2);
  CHECK(std::count(output.err.begin(), output.err.end(), '\n') <= 14);
  CHECK(contains(output.err, "this format describes one setting, and here are "));
}

}  // namespace
}  // namespace cubinery
