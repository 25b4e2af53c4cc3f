// cubinery merge, and the rules behind it.
#include "cli/merge_results.h"

#include <algorithm>
#include <fstream>

#include "results/embedded.h"
#include "results/record_file.h"
#include "results/shape.h"
#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

// Of a kernel that is none of the library's.
TuningResult result_of(const std::string& problem, std::int64_t size, double ms,
                       const std::string& lanes = "4") {
  TuningResult result;
  result.setting.op = "my_kernel";
  result.setting.problem = problem;
  result.setting.shape = result.setting.features = {{"rows", size}};
  result.setting.bucket = bucket_of(result.setting.features);
  result.setting.gpu.arch = "sm_90a";
  result.setting.nvrtc = "13.0.88";
  result.configuration = {{"lanes", lanes, false, /*changes_bits=*/true}, {"warps", "8"}};
  result.ms = {.median = ms, .p10 = ms, .p90 = ms, .samples = 40};
  result.uncertainty = 0.01;
  return result;
}

ResultsPart part_of(const std::string& place, const std::vector<TuningResult>& results) {
  return {place, make_report({}, {TuningResults{.results = results, .damaged = {}}})};
}

std::vector<std::string> faults_of(const std::vector<ResultsPart>& parts) {
  return merge_results(parts).faults;
}

TEST_CASE("parts of different problems are one set", "[cpu]") {
  const MergedResults merged =
      merge_results({part_of("a", {result_of("k=1", 8, 0.1), result_of("k=1", 16, 0.2)}),
                     part_of("b", {result_of("k=2", 8, 0.3, "8")})});
  CHECK(merged.faults.empty());
  CHECK(merged.repeated == 0);
  REQUIRE(merged.results.size() == 3);
  CHECK(merged.results[2].setting.problem == "k=2");
}

TEST_CASE("of a setting that two parts have the faster result is taken", "[cpu]") {
  for (const bool first : {true, false}) {
    const TuningResult fast = result_of("k=1", 8, 0.1), slow = result_of("k=1", 8, 0.1015);
    const MergedResults merged =
        merge_results({part_of("a", {first ? fast : slow}), part_of("b", {first ? slow : fast})});
    CHECK(merged.faults.empty());
    CHECK(merged.repeated == 1);
    REQUIRE(merged.results.size() == 1);
    CHECK(merged.results[0].ms.median == 0.1);
  }
}

TEST_CASE("times that differ by more than they may are a fault", "[cpu]") {
  const std::vector<std::string> faults = faults_of(
      {part_of("a", {result_of("k=1", 8, 0.1)}), part_of("b", {result_of("k=1", 8, 0.15)})});
  REQUIRE(faults.size() == 1);
  CHECK(contains(faults[0], "my_kernel, rows=8: " + us_text(0.1) + " us in a and " + us_text(0.15) +
                                " us in b"));
}

TEST_CASE("parts of one problem agree in what changes bits", "[cpu]") {
  const auto of = [](const std::string& lanes) { return result_of("k=1", 16, 0.2, lanes); };
  CHECK(faults_of({part_of("a", {result_of("k=1", 8, 0.1)}), part_of("b", {of("4")})}).empty());
  const std::vector<std::string> faults =
      faults_of({part_of("a", {result_of("k=1", 8, 0.1)}), part_of("b", {of("8")})});
  REQUIRE(faults.size() == 1);
  CHECK(contains(faults[0], "chose what has other bits: lanes=4 (a), lanes=8 (b)"));
  // One part's own, and another problem's.
  CHECK(faults_of({part_of("a", {result_of("k=1", 8, 0.1), of("8")}),
                   part_of("b", {result_of("k=2", 8, 0.1)})})
            .empty());
  // What is agreed on counts, not what is fastest.
  TuningResult agreed = of("8");
  agreed.agreed = of("4").configuration;
  agreed.agreed_ms = agreed.ms;
  CHECK(faults_of({part_of("a", {result_of("k=1", 8, 0.1)}), part_of("b", {agreed})}).empty());
}

TEST_CASE("parts without results, stale ones and several compilers are faults", "[cpu]") {
  const ResultsPart good = part_of("a", {result_of("k=1", 8, 0.1)});
  CHECK(faults_of({good, part_of("b", {})}) == std::vector<std::string>{"b: no results"});
  ResultsPart stale = part_of("b", {result_of("k=2", 8, 0.1), result_of("k=2", 16, 0.1)});
  for (ReportedSetting& reported : stale.report.settings) reported.stale = "its code has changed";
  CHECK(faults_of({good, stale}) ==
        std::vector<std::string>{"b: 2 results of my_kernel: stale: its code has changed"});
  TuningResult other = result_of("k=2", 8, 0.1);
  other.setting.nvrtc = "12.9.86";
  const std::vector<std::string> faults = faults_of({good, part_of("b", {other})});
  REQUIRE(faults.size() == 1);
  CHECK(contains(faults[0], "12.9.86 (b), 13.0.88 (a)"));
}

TEST_CASE("results of problems that the library does not have are a fault", "[cpu]") {
  TuningResult result = embedded_results().front();
  result.setting.problem = "key_dim=128;colour=red";
  const std::vector<std::string> faults = faults_of({part_of("a", {result})});
  REQUIRE(faults.size() == 1);
  CHECK(contains(faults[0], "a: 1 results of " + result.setting.op));
  CHECK(contains(faults[0], "colour"));
}

// The command.

std::string folder(const Cli& cli, const std::string& name,
                   const std::vector<TuningResult>& results) {
  const std::string directory = cli.dir() + "/" + name;
  std::string lines;
  for (const TuningResult& result : results) lines += to_line(result);
  REQUIRE(append_lines(results_path(directory, "my_kernel"), lines).ok());
  return directory;
}

TEST_CASE("merge writes what its parts have", "[cpu]") {
  const Cli cli;
  const std::string a = folder(cli, "a", {result_of("k=1", 8, 0.1), result_of("k=1", 16, 0.2)});
  const std::string b = folder(cli, "b", {result_of("k=2", 8, 0.3)});
  const std::string out = cli.dir() + "/merged";
  const Output output = cli.run("merge " + a + " " + b + " -o " + out);
  INFO(output.err);
  CHECK(output.exit_code == 0);
  CHECK(contains(output.out, "my_kernel: 3 results"));
  const TuningResults merged = read_results(results_path(out, "my_kernel")).value();
  CHECK(merged.damaged.empty());
  CHECK(merged.results.size() == 3);

  const Output again = cli.run("merge " + a + " -o " + out);
  CHECK(again.exit_code == 2);
  CHECK(contains(again.err, "has files of my_kernel; accepted: a directory without results"));
}

TEST_CASE("merge names all faults and writes nothing", "[cpu]") {
  const Cli cli;
  const std::string a = folder(cli, "a", {result_of("k=1", 8, 0.1)});
  const std::string b = folder(cli, "b", {result_of("k=1", 8, 0.2)});
  std::ofstream(results_path(b, "my_kernel"), std::ios::app) << "{\"result\":1,\n";
  const std::string out = cli.dir() + "/merged";
  const Output output = cli.run("merge " + a + " " + b + " " + cli.dir() + "/none -o " + out);
  CHECK(output.exit_code == 1);
  CHECK(contains(output.err, us_text(0.1) + " us in " + a));
  CHECK(contains(output.err, "my_kernel.results.jsonl:2: "));
  CHECK(contains(output.err, "/none: no results"));
  CHECK(!fs::exists(out));
}

TEST_CASE("merge refuses results of other code", "[cpu]") {
  const Cli cli;
  TuningResult result = embedded_results().front();
  result.templates = "0123456789abcdef0123456789abcdef";
  const std::string directory = cli.dir() + "/a";
  REQUIRE(append_lines(results_path(directory, result.setting.op), to_line(result)).ok());
  const Output output = cli.run("merge " + directory + " -o " + cli.dir() + "/merged");
  CHECK(output.exit_code == 1);
  CHECK(contains(output.err, "a: 1 results of " + result.setting.op + ": stale: "));
}

}  // namespace
}  // namespace cubinery
