// cubinery report, run as users do, on recorded results; what is expected is read from them.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "results/embedded.h"
#include "tests/cli/run_cli.h"
#include "tuner/report/report.h"

namespace cubinery {
namespace {

const std::string kData = CUBINERY_TEST_DIR "/data/tuning";

TuningReport recorded() {
  TuningReport report = read_report(kData).value();
  REQUIRE(report.settings.size() > 1);
  return report;
}

TEST_CASE("the table has a line for every setting", "[cpu]") {
  const Cli cli;
  const Output output = cli.run("report --dir " + kData);
  INFO(output.err);
  CHECK(output.exit_code == 0);
  for (const ReportedSetting& reported : recorded().settings) {
    CHECK(contains(output.out, reported.setting.bucket));
    if (reported.result) CHECK(contains(output.out, to_text(reported.result->configuration)));
  }
  CHECK(contains(cli.run("report --copy-rate 4 --dir " + kData).out, "of copy %"));
}

TEST_CASE("a report says what tuning gained by operator and GPU, and why", "[cpu]") {
  const Cli cli;
  const TuningReport report = recorded();
  const json document = json::parse(cli.run("report --format json --dir " + kData).out);
  const Output table = cli.run("report --dir " + kData);
  std::size_t settings = 0;
  for (const json& summary : document["summary"]) {
    std::vector<double> gains;
    std::size_t kept = 0;
    for (const ReportedSetting& reported : report.settings) {
      if (reported.setting.op != summary["op"].get<std::string>() || !reported.result) continue;
      const TuningResult& result = *reported.result;
      gains.push_back(gain_of(result));
      if (to_text(result.configuration) == to_text(result.otherwise)) ++kept;
    }
    REQUIRE(!gains.empty());
    settings += gains.size();
    std::sort(gains.begin(), gains.end());
    CHECK(summary["decided"] == gains.size());
    CHECK(summary["keep_default"] == kept);
    CHECK(summary["gain_greatest"].get<double>() == Approx(gains.back()));
    CHECK(summary["gain_median"].get<double>() >= gains[(gains.size() - 1) / 2]);
    CHECK(summary["gain_median"].get<double>() <= gains[gains.size() / 2]);
    const std::string line = fmt::format("at most {:.1f} %; {} keep", gains.back() * 100, kept);
    CHECK(contains(table.out, line));
  }
  CHECK(settings == report.settings.size());  // all are decided, on one GPU

  // One that stays, one of several equals, and one whose betters have other bits.
  const auto why = [&](const std::string& bucket) {
    for (const json& setting : document["settings"]) {
      if (setting["bucket"] == bucket)
        return setting["result"]["chosen_because"].get<std::string>();
    }
    return std::string();
  };
  CHECK(why("states=256") ==
        "The default stays: the runner-up was not faster by more than the noise. It was the "
        "fastest of 96 in the search. 6 of 13 other settings of this problem launch it too.");
  CHECK(contains(why("states=16;length=1024;skew=1;group=1"),
                 "In the search 1 of 81 was faster, by 0.3 %, which is the runner-up"));
  CHECK(contains(why("states=16"),
                 "all settings of this problem agree on path=portable;k_lanes=8;"
                 "vec_bytes=16."));
}

TEST_CASE("problems are told apart by what they have not alike", "[cpu]") {
  const Cli cli;
  std::map<std::string, std::set<std::string>> problems;
  for (const TuningResult& result : embedded_results()) {
    problems[result.setting.op].insert(result.setting.problem);
  }
  for (const auto& [op, of_op] : problems) {
    const Output output = cli.run("report --library --op " + op);
    for (const std::string& problem : of_op) {
      // All of these have it.
      CHECK(contains(output.out, problem) == (of_op.size() == 1));
      CHECK(contains(output.out, "\nkey_dim=128;") == (of_op.size() == 1));
    }
  }
}

TEST_CASE("json has every setting and says which results are stale", "[cpu]") {
  const Cli cli;
  const json document = json::parse(cli.run("report --format json --dir " + kData).out);
  const TuningReport report = recorded();
  REQUIRE(document["settings"].size() == report.settings.size());
  for (std::size_t i = 0; i < report.settings.size(); ++i) {
    const json& setting = document["settings"][i];
    CHECK(setting["id"] == report.settings[i].id);
    CHECK(setting["measurements"].size() == report.settings[i].measurements.size());
    CHECK(setting["stale"].is_boolean() == report.settings[i].result.has_value());
  }
}

TEST_CASE("a result of other templates is stale", "[cpu]") {
  const Cli cli;
  TuningReport report = recorded();
  const auto decided =
      std::find_if(report.settings.begin(), report.settings.end(),
                   [](const ReportedSetting& reported) { return reported.result.has_value(); });
  REQUIRE(decided != report.settings.end());
  decided->result->templates = std::string(32, '0');
  const std::string dir = cli.dir() + "/tuning";
  REQUIRE(append_lines(results_path(dir, decided->setting.op), to_line(*decided->result)).ok());
  const Output output = cli.run("report --dir " + dir);
  CHECK(output.exit_code == 0);
  CHECK(contains(output.out, "stale: "));
}

TEST_CASE("formats for one setting want one, or a directory", "[cpu]") {
  const Cli cli;
  const TuningReport report = recorded();
  std::size_t measured = 0;
  for (const ReportedSetting& reported : report.settings) {
    if (!reported.measurements.empty()) ++measured;
  }
  REQUIRE(measured > 1);
  for (const std::string format : {"t4", "kernel-tuner"}) {
    const std::string command = fmt::format("report --format {} --dir {}", format, kData);
    const Output which = cli.run(command);
    CHECK(which.exit_code == 2);
    CHECK(contains(which.err, report.settings[0].setting.bucket));
    CHECK(which.out.empty());

    const std::string folder = cli.dir() + "/" + format + "/";
    CHECK(cli.run(fmt::format("{} -o {}", command, folder)).exit_code == 0);
    std::size_t files = 0;
    for (const auto& file : fs::directory_iterator(folder)) {
      CHECK(json::parse(read_file(file.path()).value()).is_object());
      ++files;
    }
    CHECK(files == measured);

    for (const ReportedSetting& reported : report.settings) {
      if (reported.measurements.empty()) continue;
      const Output one = cli.run(command + " --setting " + reported.id);
      const std::string expected =
          format == "t4" ? report_t4(reported) : report_kernel_tuner(reported);
      CHECK(one.exit_code == 0);
      CHECK(one.out == expected);
      break;
    }
  }
}

TEST_CASE("damaged lines are named, the others reported", "[cpu]") {
  const Cli cli;
  const std::string dir = cli.dir() + "/tuning";
  fs::copy(kData, dir);
  const std::string op = recorded().settings[0].setting.op;
  std::ofstream(results_path(dir, op), std::ios::app) << "no record\n";
  const Output output = cli.run("report --dir " + dir);
  CHECK(output.exit_code == 0);
  CHECK(contains(output.err, results_path(dir, op) + ":"));
  CHECK(contains(output.out, recorded().settings[0].setting.bucket));
  CHECK(!contains(output.out, "damaged"));
}

TEST_CASE("results lie in the cache directory, and there may be none", "[cpu]") {
  const Cli cli;
  const Output none = cli.run("report");
  CHECK(none.exit_code == 1);
  CHECK(contains(none.err, cli.cache() + "/tuning"));
  CHECK(contains(none.err, "cubinery tune"));
  fs::create_directories(cli.cache());
  fs::copy(kData, cli.cache() + "/tuning");
  CHECK(contains(cli.run("report").out, recorded().settings[0].setting.bucket));
  const Output other = cli.run("report --op no_such_op");
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "--op no_such_op; accepted: " + recorded().settings[0].setting.op));
  const Output bucket = cli.run("report --bucket no_such_bucket");
  CHECK(bucket.exit_code == 2);
  CHECK(contains(bucket.err, recorded().settings[0].setting.bucket));
}

TEST_CASE("two directories are compared", "[cpu]") {
  const Cli cli;
  const auto compared = [&](const std::string& dir, const std::string& options = "") {
    return cli.run("report --dir " + kData + " --against " + dir + options);
  };
  CHECK(compared(kData).exit_code == 0);  // with itself

  TuningReport report = recorded();
  const auto decided =
      std::find_if(report.settings.begin(), report.settings.end(),
                   [](const ReportedSetting& reported) { return reported.result.has_value(); });
  REQUIRE(decided != report.settings.end());
  decided->result->ms.median *= 1.5;
  const std::string dir = cli.dir() + "/tuning";
  REQUIRE(append_lines(results_path(dir, decided->setting.op), to_line(*decided->result)).ok());
  const Output slower = compared(dir);
  CHECK(slower.exit_code == 1);
  CHECK(contains(slower.out, "1 settings in both: 0 agree, 1 with the same choice"));
  const json document = json::parse(compared(dir, " --format json").out);
  CHECK(document["settings"][0]["change"].get<double>() == Approx(0.5));
  CHECK(document["settings"][0]["agrees"] == false);

  CHECK(compared(dir, " --format html").exit_code == 2);
  const Output none = compared(cli.dir() + "/nothing");
  CHECK(none.exit_code == 1);
  CHECK(contains(none.err, "has no result for a setting of these"));
}

TEST_CASE("wrong options are wrong usage", "[cpu]") {
  const Cli cli;
  for (const char* arguments : {"--format pdf", "--library --dir x", "--copy-rate 0"}) {
    CHECK(cli.run(std::string("report ") + arguments).exit_code == 2);
  }
  CHECK(cli.run("report -o /no/such/folder/file --dir " + kData).exit_code == 2);
}

TEST_CASE("the page is one file that names of kernels cannot break", "[cpu]") {
  const Cli cli;
  TuningReport report = recorded();
  const std::string dir = cli.dir() + "/tuning";
  Setting setting = report.settings[0].setting;
  setting.problem = "</script><script>alert(1)</script><!--";
  REQUIRE(append_lines(measurements_path(dir, setting.op), to_line(setting)).ok());
  const Output output = cli.run("report --format html --dir " + dir);
  CHECK(output.exit_code == 0);
  CHECK(!contains(output.out, "alert(1)</script>"));
  CHECK(contains(output.out, "\\u003c/script>\\u003cscript>alert(1)"));
  CHECK(contains(output.out, "Chart.js v3"));
  for (const char* part : {" src=", "@import", "@REPORT@"}) CHECK(!contains(output.out, part));
}

}  // namespace
}  // namespace cubinery
