#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "tests/cli/run_cli.h"

#include "cubinery/version.h"
#include "runtime/registry/describe.h"

namespace cubinery {
namespace {

TEST_CASE("version and help", "[cpu]") {
  const Cli cli;
  CHECK(cli.run("--version").out == "cubinery " CUBINERY_VERSION "\n");
  for (const char* command :
       {"", "prewarm", "tune", "merge", "report", "explain", "cache", "cache ls", "cache gc",
        "doctor", "problems", "operators", "new-kernel"}) {
    const Output help = cli.run(std::string(command) + " --help");
    CHECK(help.exit_code == 0);
    CHECK(contains(help.out, "Usage: cubinery"));
    CHECK(help.err.empty());
  }
  CHECK(contains(cli.run("--help").out, "Examples:"));
  CHECK(contains(cli.run("prewarm --help").out, "--state-dtype"));
  CHECK(contains(cli.run("prewarm --help").out,
                 "[gdn_decode,gdn_prefill,gdn_verify,gdn_commit,gdn_conv]"));
}

TEST_CASE("help and operators say what a field accepts", "[cpu]") {
  const Cli cli;
  const std::string brief = cli.run("prewarm --help").out;
  CHECK(contains(brief, " --dtype "));
  CHECK(!contains(brief, "dtype of q, k and v"));
  CHECK(std::count(brief.begin(), brief.end(), '\n') < 80);
  const std::string help = cli.run("prewarm --help-all").out;
  CHECK(contains(help, "dtype of q, k and v: f32, bf16, f16 [bf16]"));
  CHECK(contains(help, "gdn_prefill, gdn_verify, gdn_commit, gdn_conv: dtype of cu_seqlens"));
  const Output list = cli.run("operators");
  CHECK(list.exit_code == 0);
  CHECK(contains(list.out, "gdn_decode: One decode step"));
  CHECK(contains(list.out, "gdn_verify: A verification"));
  CHECK(contains(list.out, "gdn_commit: A commit"));
  CHECK(contains(list.out, "gdn_conv: "));
  CHECK(contains(list.out, "  conv_decode  in front of decode: dense, one token"));
  CHECK(contains(list.out, "none, log, alpha, computed"));
  CHECK(json::parse(cli.run("operators --json -").out) == json::parse(operators_json()));
}

TEST_CASE("bad arguments exit with 2 and say what is accepted", "[cpu]") {
  const Cli cli;
  const std::string model = "prewarm --hf-config " + kModel;
  const std::string odd_model = cli.dir() + "/config.json";
  std::ofstream(odd_model) << R"({"linear_num_key_heads": 16, "linear_num_value_heads": 32,
                                  "linear_key_head_dim": 100, "linear_value_head_dim": 128})";
  const std::string pipe = cli.dir() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "accepted: prewarm, tune, merge, report, explain, cache, doctor"},
      {"bogus", "accepted: prewarm, tune, merge, report, explain, cache, doctor"},
      {"cache", "accepted: ls, show, verify, gc"},
      {"prewarm --bogus", "see cubinery prewarm --help"},
      {"prewarm", "accepted: --hf-config, --manifest"},
      {model + " --arch sm_91", "--arch sm_91; accepted: sm_80, "},
      {model + " --arch sm_80 --tp 3", "accepted: 1, 2, 4, 8, 16"},
      {model + " --arch sm_80 --tp 0", "accepted: positive integers"},
      {model + " --arch sm_80 --tp two", "accepted: positive integers"},
      {model + " --arch sm_80 --shard 3/2", "accepted: i/n"},
      {model + " --arch sm_80 --jobs 0", "1024"},
      {model + " --arch sm_80 --state-dtype int8", "accepted: f32, bf16, f16"},
      {model + " --arch sm_80 --key-dim 100", "accepted: multiples of 16"},
      {model + " --arch sm_80 --padding skip", "--padding is no option of cubinery prewarm"},
      {model + " --arch sm_80 --op decode",
       "--op decode; accepted: gdn_decode, gdn_prefill, gdn_verify, gdn_commit, gdn_conv"},
      {model + " --arch sm_80 --op gdn_decode --varlen false",
       "--varlen false: no problem is of an operator with this field; accepted: --q-heads, "
       "--k-heads"},
      {model + " --arch sm_80 --form conv_deocde",
       "--form conv_deocde; accepted: decode, decode_with_conv, prefill, verify, commit, conv, "
       "conv_decode, conv_verify; did you mean conv_decode?"},
      {model + " --arch sm_80 --op gdn_decode,gdn_commit --form decode,conv_verify",
       "--form conv_verify: it is of gdn_conv, which --op leaves out"},
      {"prewarm --key-dim 128 --arch sm_80 --form decode", "--hf-config, which is missing"},
      {model + " --arch sm_80 --op gdn_prefill --checkpoints after --checkpoint-every 8",
       "accepted: multiples of 16"},
      {model + " --arch sm_80 --segments sometimes", "accepted: auto, never, always"},
      {"prewarm --arch sm_80 --hf-config " + odd_model,
       odd_model + ", tp 1: gdn_decode: key_dim = 100; accepted: multiples of 16 from 16 to 256"},
      {"prewarm --arch sm_80 --op gdn_prefill --hf-config " + odd_model,
       "gdn_prefill: key_dim = 100"},
      {"prewarm --key-dim 128 --arch sm_80 --tp 2", "--hf-config, which is missing"},
      {"prewarm --hf-config /nowhere --arch sm_80", "cannot read /nowhere"},
      {"prewarm --manifest " + kModel + " --arch sm_80", "accepted: a JSON array"},
      {"prewarm --manifest /dev/zero --arch sm_80",
       "cannot read /dev/zero: it is not a regular file"},
      {"prewarm --hf-config " + pipe + " --arch sm_80",
       "cannot read " + pipe + ": it is not a regular file"},
      {model + " --arch sm_80 --v-heads 2147483647", "accepted: 1 to 65536"},
      {model + " --arch sm_80 --dtype '\xff'", "accepted: f32, bf16, f16"},
      {"explain --key-dim 128 --arch sm_9", "accepted: sm_80"},
      {"explain --key-dim 128 --arch sm_80 --kernel gdn_prefill",
       "--kernel gdn_prefill; accepted: gdn_commit, gdn_conv, gdn_decode, gdn_prefill_chunks, "
       "gdn_prefill_scan, gdn_verify, gdn_verify_wy"},
      {"cache gc --limit 3X", "accepted: a number of bytes such as 4096, 64K, 512M, 1G or 2T"},
      {"prewarn --tp 2",
       "prewarn is no command of cubinery; accepted: prewarm, tune, merge, report, explain, "
       "cache, doctor, problems, operators, new-kernel, completion; did you mean prewarm?; see "
       "cubinery "
       "--help"},
      {"cache lss",
       "lss is no command of cubinery cache; accepted: ls, show, verify, gc, export, import; did "
       "you mean ls?; see cubinery cache --help"},
      {"tune --toknes=8", "--toknes is no option of cubinery tune; did you mean --tokens?"},
      {"explain --state_dtype f32", "did you mean --state-dtype?"},
      {"prewarm config.json", "config.json is not expected after cubinery prewarm"},
      {model + " --arch sm_90", "did you mean sm_90a?"},
      {model + " --arch sm_80 --op gdn_decod", "did you mean gdn_decode?"},
      {model + " --arch sm_80 --json /nowhere/file", "cannot write /nowhere/file: No such file"},
      {"problems --hf-config " + kModel + " -o " + cli.dir(), "Is a directory"},
      {"cache show nothing", "accepted: a path"},
  };
  for (const auto& [arguments, text] : cases) {
    const Output output = cli.run(arguments);
    INFO(arguments << "\n" << output.err);
    CHECK(output.exit_code == 2);
    CHECK(contains(output.err, text));
    CHECK(output.err.find("cubinery: ") == 0);
  }
  CHECK(!fs::exists(cli.cache()));
}

TEST_CASE("doctor finds a machine in order", "[nvrtc]") {
  const Cli cli;
  const bool has_gpu = fs::exists("/dev/nvidiactl");
  const Output output = cli.run("doctor");
  INFO(output.out);
  CHECK(output.exit_code == 0);
  CHECK(contains(output.out, "OK    nvrtc"));
  CHECK(contains(output.out, "OK    cache    " + cli.cache()));
  const std::size_t compiled = output.out.find("OK    compile  ");
  REQUIRE(compiled != std::string::npos);
  CHECK(output.out.find("kernels of gdn_decode for sm_", compiled) != std::string::npos);
  CHECK(output.out.find("OK    compile  ", compiled + 1) == std::string::npos);  // one line
  const std::string last = output.out.substr(output.out.rfind('\n', output.out.size() - 2) + 1);
  CHECK(last.find("In order: kernels compile, and ") == 0);
  CHECK(contains(last, "Next: cubinery prewarm --hf-config config.json --arch sm_"));
  if (has_gpu) {
    CHECK(contains(output.out, "numbers are right"));
    CHECK(contains(last, "give right numbers on GPU 0"));
  } else {
    CHECK(contains(output.out, "WARN  driver"));
    CHECK(contains(output.out, "WARN  launch"));
    CHECK(contains(output.out, " -> "));
  }
  CHECK(cli.entries().empty());
  CHECK(json::parse(cli.run("doctor --json -").out)["ok"] == true);
}

TEST_CASE("doctor fails without NVRTC", "[cpu]") {
  const Cli cli;
  const Output output = cli.run("doctor --nvrtc /nowhere");
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "FAIL  nvrtc"));
  CHECK(contains(output.out, "/nowhere"));
  CHECK(contains(output.out, "\nNot in order: nvrtc. Do what stands behind ->"));
}

TEST_CASE("trust is asked for by name", "[cpu]") {
  const Cli cli;
  const std::string doctor = "doctor --nvrtc /nowhere ";
  CHECK(contains(cli.run(doctor).out, "OK    trust    files of this user and root\n"));
  CHECK(contains(cli.run(doctor, "CUBINERY_TRUST=uid:65534,gid:2000").out,
                 "trust    files of this user, root and uid:65534,gid:2000\n"));
  CHECK(contains(cli.run(doctor + "--trust gid:7", "CUBINERY_TRUST=all").out, "root and gid:7\n"));
  for (const char* all : {"--trust all", "--trust-shared-dirs"}) {
    CHECK(contains(cli.run(doctor + all).out, "trust    files of everybody"));
  }
  const std::string accepted =
      "accepted: all, or ids of users and groups between commas such as "
      "uid:65534,gid:2000";
  const Output by_flag = cli.run("doctor --trust nobody");
  CHECK(by_flag.exit_code == 2);
  CHECK(contains(by_flag.err, "--trust nobody; " + accepted));
  const Output by_variable = cli.run("cache ls", "CUBINERY_TRUST=uid:1,");
  CHECK(by_variable.exit_code == 2);
  CHECK(contains(by_variable.err, "CUBINERY_TRUST = \"uid:1,\"; " + accepted));
}

TEST_CASE("a refused cache names the setting that would trust it", "[cpu]") {
  if (geteuid() != 0) {
    WARN("not root: cannot give files away");
    return;
  }
  const Cli cli;
  const auto give = [&](uid_t user, gid_t group, mode_t mode) {
    fs::create_directories(cli.cache());
    REQUIRE(chown(cli.cache().c_str(), user, group) == 0);
    REQUIRE(chmod(cli.cache().c_str(), mode) == 0);
  };
  // In turn: what root's own files become where root is squashed, an fsGroup, a team's folder.
  struct Case {
    uid_t user;
    gid_t group;
    mode_t mode;
    std::string setting;
  };
  const Case a = GENERATE(values<Case>({{65534, 65534, 0755, "CUBINERY_TRUST=uid:65534"},
                                        {0, 2000, 02775, "CUBINERY_TRUST=gid:2000"},
                                        {1001, 2000, 02770, "CUBINERY_TRUST=gid:2000"}}));
  give(a.user, a.group, a.mode);
  const Output refused = cli.run("doctor --nvrtc /nowhere");
  INFO(refused.out);
  CHECK(contains(refused.out, "FAIL  cache"));
  CHECK(contains(refused.out, "set " + a.setting + " if"));
  CHECK(contains(cli.run("cache ls").err, "set " + a.setting + " if"));
  CHECK(contains(cli.run("doctor --nvrtc /nowhere", a.setting).out, "OK    cache"));
  CHECK(cli.run("cache ls", a.setting).exit_code == 0);
}

TEST_CASE("a compiler that others could have written is not opened", "[cpu]") {
  const Cli cli;
  const std::string folder = cli.dir() + "/lib";
  fs::create_directories(folder);
  std::ofstream(folder + "/libnvrtc.so.13") << "no code";
  fs::permissions(folder, fs::perms::all);
  const Output output = cli.run("doctor --nvrtc " + folder + "/libnvrtc.so.13");
  INFO(output.out);
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "FAIL  nvrtc"));
  CHECK(contains(output.out, folder + " can be written by other users"));
  CHECK(contains(cli.run("doctor --trust all --nvrtc " + folder + "/libnvrtc.so.13").out,
                 "file too short"));
}

TEST_CASE("a bad environment variable is a usage error", "[cpu]") {
  const Cli cli;
  const Output output = cli.run("doctor", "CUBINERY_CACHE_LIMIT=much");
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "CUBINERY_CACHE_LIMIT"));
  CHECK(contains(cli.run("doctor --nvrtc /nowhere", "CUBINERY_CACHE_LIMIT=512M").out,
                 "0 B of at most 512.0 MiB"));
}

}  // namespace
}  // namespace cubinery
