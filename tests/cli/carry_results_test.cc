// scripts/carry_results.py, run as maintainers do: the base is the library's own templates, the
// other tree has an edited header over them.
#include <fstream>

#include "cubinery/context.h"
#include "results/record_file.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/registry/operators.h"
#include "tests/cli/run_cli.h"
#include "tests/runtime/made_up_results.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery {
namespace {

const std::string kRoot = CUBINERY_TEST_DIR "/..";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(contains(text, from));
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// A tree with other templates, a results file, and what the script does to it.
class Carrying {
 public:
  Carrying() {
    fs::create_directories(cli_.dir() + "/templates/common");
    std::ofstream(here_) << "#!/bin/sh\nCUBINERY_TEMPLATE_DIR=" << cli_.dir()
                         << "/templates exec " CUBINERY_CLI_PATH " \"$@\"\n";
    fs::permissions(here_, fs::perms::owner_all);
    Options options;
    options.device = kNoDevice;
    options.arch = "sm_80";
    nvrtc_ = Context::create(options).value().nvrtc_version().value();
  }

  void edit(const std::string& header, const std::string& text) const {
    std::ofstream(cli_.dir() + "/templates/common/" + header) << text;
  }
  // One result for the smallest decode of the base.
  TuningResult measured() const {
    const gdn::DecodeProblem problem{.key_dim = 16, .value_dim = 16};
    GpuIdentity gpu = test::fake_gpu();
    gpu.arch = "sm_80";
    const std::string templates =
        known_results_inside("gdn_decode", path_kernels("gdn_decode")).templates.at("portable");
    TuningResult result = test::made_up_result(test::planner_of(problem).space(), {{"states", 64}},
                                               test::decode_values(test::decode_keys(problem).wide),
                                               nvrtc_, templates, gpu);
    result.agreed = result.configuration;
    result.agreed_ms = result.ms;
    result.agreed_templates = result.templates;
    return result;
  }
  void write(const TuningResult& result) const { std::ofstream(file_) << to_line(result); }
  TuningResult read() const { return parse_result(read_file(file_).value()).value(); }

  // What the script prints, and its exit code.
  Output run() const {
    const std::string command = "CUBINERY_CACHE_DIR=" + cli_.cache() + " python3 " + kRoot +
                                "/scripts/carry_results.py " CUBINERY_CLI_PATH " " + file_ +
                                " --here " + here_ + " 2>/dev/null";
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Output output;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      output.out += static_cast<char>(c);
    }
    output.exit_code = WEXITSTATUS(pclose(pipe));
    INFO(output.out);
    return output;
  }

 private:
  const Cli cli_;
  const std::string here_ = cli_.dir() + "/here", file_ = cli_.dir() + "/gpu.results.jsonl";
  std::string nvrtc_;
};

TEST_CASE("results are carried over edits that leave the code as it was", "[nvrtc]") {
  const Carrying carrying;
  const std::string step = read_file(kRoot + "/templates/common/step.cuh").value();
  const TuningResult before = carrying.measured();

  // A comment is no code: nothing is stale.
  carrying.edit("step.cuh", "// A comment.\n" + step);
  carrying.write(before);
  CHECK(carrying.run().out == "0 carried, 1 current, 0 not carried\n");
  CHECK(to_line(carrying.read()) == to_line(before));

  // A renamed member, and an include that moved to a new header with a constant.
  carrying.edit("moved.cuh",
                "#pragma once\n#include \"common/uniform.cuh\"\n"
                "namespace cubinery::dev {\nconstexpr int kHalf = 2;\n}\n");
  carrying.edit("step.cuh", replaced(replaced(replaced(step, "vectors_", "loaded_"),
                                              "common/uniform.cuh", "common/moved.cuh"),
                                     "kKPart % 2", "kKPart % kHalf"));
  const Output carried = carrying.run();
  CHECK(carried.out == "1 carried, 0 current, 0 not carried\n");
  CHECK(carried.exit_code == 0);
  TuningResult after = carrying.read();
  CHECK(after.templates != before.templates);
  CHECK(after.agreed_templates == after.templates);
  after.templates = after.agreed_templates = before.templates;
  CHECK(to_line(after) == to_line(before));
  CHECK(carrying.run().out == "0 carried, 1 current, 0 not carried\n");
}

TEST_CASE("results of other code are not carried", "[nvrtc]") {
  const Carrying carrying;
  const std::string step = read_file(kRoot + "/templates/common/step.cuh").value();
  const TuningResult before = carrying.measured();
  carrying.edit("step.cuh", replaced(step, "kKey.k_lanes, kKLaneStride>(x)",
                                     "kKey.k_lanes, kKLaneStride>(2 * x)"));
  const auto refused = [&](const TuningResult& result) {
    carrying.write(result);
    const Output output = carrying.run();
    CHECK(output.exit_code == 1);
    CHECK(contains(output.out, "0 carried, 0 current, 1 not carried\n"));
    CHECK(to_line(carrying.read()) == to_line(result));
    return output.out;
  };
  CHECK(contains(refused(before),
                 "results.jsonl:1: gdn_decode states=64: other code of gdn_decode\n"));
  TuningResult other = before;
  other.templates = std::string(32, '0');
  CHECK(contains(refused(other), "was stale in the base already"));
  other = before;
  other.setting.nvrtc = "1.2.3";
  CHECK(contains(refused(other), "measured with NVRTC 1.2.3, compiled with "));
  other = before;
  other.configuration.at(1).value = "7";
  CHECK(contains(refused(other), "no configuration of the problem: path="));
  other = before;
  other.setting.op = "rms_norm";
  CHECK(contains(refused(other), "rms_norm is no operator of the library"));
}

}  // namespace
}  // namespace cubinery
