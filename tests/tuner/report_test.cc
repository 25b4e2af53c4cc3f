// Reports: records in, text out.  What is expected is computed from the records.
#include "tuner/report/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/tuner/sample_records.h"

namespace cubinery {
namespace {

using nlohmann::json;
using test::sample_configuration;
using test::sample_measurement;
using test::sample_result;
using test::sample_setting;
using test::TempDir;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Measurement rejected(Verdict verdict, int warps) {
  Measurement measurement = sample_measurement();
  measurement.configuration = sample_configuration(warps);
  measurement.verdict = verdict;
  measurement.reason = std::string("because of ") + to_string(verdict);
  return measurement;
}

// One setting with every verdict, and a result; another one that is not decided yet.
struct Records {
  Measurements measured;
  TuningResults decided;

  Records() {
    const Setting one = sample_setting(8);
    const Setting two = sample_setting(64);
    measured.settings = {{id_of(one), one}, {id_of(two), two}};
    measured.measurements = {sample_measurement(8),
                             rejected(Verdict::kConstraints, 16),
                             rejected(Verdict::kCompile, 32),
                             rejected(Verdict::kSpills, 64),
                             rejected(Verdict::kRuntime, 128),
                             rejected(Verdict::kWrong, 256)};
    for (Measurement& measurement : measured.measurements) measurement.setting = id_of(one);
    measured.measurements.push_back(sample_measurement(64));
    measured.measurements.back().setting = id_of(two);
    decided.results = {sample_result(8)};
    decided.results[0].setting = one;
  }
  TuningReport report() const { return make_report({measured}, {decided}); }
};

const ReportedSetting& decided_one(const TuningReport& report) {
  return *std::find_if(report.settings.begin(), report.settings.end(),
                       [](const ReportedSetting& reported) { return reported.result.has_value(); });
}

TEST_CASE("a report joins measurements and results, and keeps results alone", "[cpu]") {
  Records records;
  const TuningReport report = records.report();
  REQUIRE(report.settings.size() == 2);
  CHECK(decided_one(report).measurements.size() == 6);
  CHECK(decided_one(report).id == id_of(sample_setting(8)));
  const TuningReport results_alone = make_report({}, {records.decided});
  REQUIRE(results_alone.settings.size() == 1);
  CHECK(results_alone.settings[0].measurements.empty());
  CHECK(make_report({}, {}).settings.empty());
}

TEST_CASE("settings are in the order of their sizes", "[cpu]") {
  Measurements measured;
  for (const int batch : {256, 2, 1000, 16}) {
    const Setting setting = sample_setting(batch);
    measured.settings[id_of(setting)] = setting;
  }
  const TuningReport report = make_report({measured}, {});
  REQUIRE(report.settings.size() == 4);
  for (std::size_t i = 1; i < report.settings.size(); ++i) {
    CHECK(report.settings[i - 1].setting.features[0].value <
          report.settings[i].setting.features[0].value);
  }
}

TEST_CASE("gain is how much less time the result takes", "[cpu]") {
  TuningResult result = sample_result();
  result.ms.median = 3;
  result.otherwise_ms.median = 4;
  CHECK(gain_of(result) == 0.25);
  result.otherwise_ms.median = 0;
  CHECK(gain_of(result) == 0);
  Setting setting = sample_setting();
  setting.bytes = 2000;
  CHECK(rate_of(setting, 0.5) == Approx(4e6));
  CHECK(!rate_of(setting, 0));
  setting.bytes = 0;
  CHECK(!rate_of(setting, 1));
}

TEST_CASE("the table has the result, the best so far where there is none, and the damage",
          "[cpu]") {
  Records records;
  records.measured.damaged = {{.path = "a.jsonl", .line = 12, .what = "not JSON"}};
  TuningReport report = records.report();
  for (ReportedSetting& reported : report.settings) {
    if (reported.result) reported.stale = "NVRTC 1.2, here 3.4";
  }
  const std::string text = report_table(report);
  const TuningResult& result = records.decided.results[0];
  CHECK(contains(text, result.setting.problem));
  CHECK(contains(text, to_text(result.configuration)));
  CHECK(contains(text, "stale: NVRTC 1.2, here 3.4"));
  CHECK(contains(text, "no result yet"));
  CHECK(contains(text, to_text(sample_measurement(64).configuration)));
  CHECK(contains(text, "damaged: " + records.measured.damaged[0].text()));
  CHECK(!contains(text, "of copy"));
  report.copy_rate = 4e12;
  CHECK(contains(report_table(report), "of copy"));
}

TEST_CASE("json has every record, what follows from them, and the damage", "[cpu]") {
  Records records;
  records.decided.damaged = {{.path = "b.jsonl", .line = 3, .what = "cut \xff"}};
  TuningReport report = records.report();
  report.copy_rate = 1e12;
  const json document = json::parse(report_json(report));
  REQUIRE(document["settings"].size() == 2);
  CHECK(document["damaged"][0]["line"] == 3);
  for (const json& setting : document["settings"]) {
    CHECK(setting["floor_ms"].get<double>() == Approx(setting["bytes"].get<double>() / 1e12 * 1e3));
    CHECK(setting["stale"].is_null());
  }
  const std::string id = id_of(sample_setting(8));
  const auto one = std::find_if(document["settings"].begin(), document["settings"].end(),
                                [&](const json& setting) { return setting["id"] == id; });
  REQUIRE(one != document["settings"].end());
  REQUIRE((*one)["measurements"].size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    json line = json::parse(to_line(records.measured.measurements[i]));
    line.erase("measurement");
    line.erase("of");
    CHECK((*one)["measurements"][i] == line);
  }
  const json result = json::parse(to_line(records.decided.results[0]));
  for (const char* name : {"configuration", "ms", "otherwise", "otherwise_ms", "margin", "time"}) {
    CHECK((*one)["result"][name] == result[name]);
  }
  CHECK(!(*one)["result"].contains("fixed"));
}

TEST_CASE("requests leave the settings that fit, or say which there are", "[cpu]") {
  const Records records;
  const Setting one = sample_setting(8);
  TuningReport report = records.report();
  REQUIRE(narrow(report, {.op = one.op, .bucket = one.bucket}).ok());
  CHECK(report.settings.size() == 1);
  report = records.report();
  REQUIRE(narrow(report, {.setting = id_of(one).substr(0, 8), .copy_rate = 5}).ok());
  REQUIRE(report.settings.size() == 1);
  CHECK(report.settings[0].id == id_of(one));
  CHECK(report.copy_rate == 5);
  report = records.report();
  const Status none = narrow(report, {.op = "no_such_op"});
  CHECK(none.code() == Code::kInvalidArgument);
  CHECK(none.message() == "request.op = \"no_such_op\"; accepted: " + one.op);
  CHECK(narrow(report, {.op = one.op + "x"}, /*of_command_line=*/true).message() ==
        "--op " + one.op + "x; accepted: " + one.op + "; did you mean " + one.op + "?");
  const Status no_bucket = narrow(report, {.bucket = one.bucket + "0"});
  CHECK(no_bucket.message().starts_with("request.bucket = \"" + one.bucket +
                                        "0\"; accepted: " + one.bucket + ", "));
  const Status no_setting = narrow(report, {.setting = "zz"});
  CHECK(no_setting.message().starts_with("request.setting = \"zz\"; accepted: the start of "));
  CHECK(contains(std::string(no_setting.message()), id_of(one).substr(0, 12)));
  CHECK(report.settings.size() == 2);
}

TEST_CASE("a format for one setting asks which", "[cpu]") {
  const Records records;
  TuningReport report = records.report();
  const Result<const ReportedSetting*> several = only_setting(report);
  REQUIRE(!several);
  for (const ReportedSetting& reported : report.settings) {
    CHECK(contains(std::string(several.error().message()), reported.id.substr(0, 12)));
  }
  REQUIRE(narrow(report, {.bucket = sample_setting(8).bucket}).ok());
  REQUIRE(only_setting(report));
  CHECK((*only_setting(report))->id == id_of(sample_setting(8)));
  CHECK(!only_setting(make_report({}, {records.decided})));
}

TEST_CASE("T4 says of each configuration why it is invalid", "[cpu]") {
  const Records records;
  const TuningReport report = records.report();
  const json document = json::parse(report_t4(decided_one(report)));
  const Setting setting = sample_setting(8);
  CHECK(document["metadata"]["timeunit"] == "milliseconds");
  CHECK(document["metadata"]["device"] == setting.gpu.name);
  const std::vector<std::string> invalidities = {"correct",     "constraints", "compile",
                                                 "constraints", "runtime",     "correctness"};
  REQUIRE(document["results"].size() == invalidities.size());
  for (std::size_t i = 0; i < invalidities.size(); ++i) {
    const json& result = document["results"][i];
    CHECK(result["invalidity"] == invalidities[i]);
    CHECK(result["correctness"] == (i == 0 ? 1 : 0));
    CHECK(result["times"]["compilation"] == result["times"]["compilation_time"]);
    CHECK(result["times"]["runtimes"].size() == (i == 0 ? 1 : 0));
  }
  const Measurement& measured = records.measured.measurements[0];
  const json& first = document["results"][0];
  CHECK(first["measurements"][0]["name"] == "time");
  CHECK(first["measurements"][0]["value"].get<double>() == Approx(measured.ms.median));
  CHECK(first["configuration"] == json::parse(to_line(measured))["configuration"]);
  double compiled = 0;
  for (const MeasuredKernel& kernel : measured.kernels) compiled += kernel.compile_ms;
  CHECK(first["times"]["compilation"].get<double>() == Approx(compiled));
}

TEST_CASE("Kernel Tuner finds its errors and its names of entries", "[cpu]") {
  Records records;
  Measurement flagged = sample_measurement(8);
  flagged.setting = id_of(sample_setting(8));
  flagged.configuration.push_back({.name = "flag", .value = "true"});
  flagged.configuration.push_back({.name = "mode", .value = "row", .is_text = true});
  records.measured.measurements.push_back(flagged);
  const TuningReport report = records.report();
  const std::string text = report_kernel_tuner(decided_one(report));
  CHECK(text.ends_with("}\n}\n"));
  const json document = json::parse(text);
  std::string name;
  for (const TunedValue& value : records.measured.measurements[0].configuration) {
    name += (name.empty() ? "" : ",") + (value.value == "true" ? "True" : value.value);
  }
  const json& cache = document["cache"];
  REQUIRE(cache.contains(name));
  CHECK(cache.at(name)["time"].get<double>() == Approx(sample_measurement(8).ms.median));
  CHECK(cache.contains(name + ",True,row"));
  std::vector<std::string> errors;
  for (const json& entry : cache) {
    if (entry["time"].is_string()) errors.push_back(entry["time"]);
  }
  std::sort(errors.begin(), errors.end());
  CHECK(errors == std::vector<std::string>{"CompilationFailedConfig", "InvalidConfig",
                                           "InvalidConfig", "RuntimeFailedConfig",
                                           "RuntimeFailedConfig"});
  for (const auto& [field, values] : document["tune_params"].items()) {
    CHECK(std::is_sorted(values.begin(), values.end()));
  }
  CHECK(document["tune_params_keys"].size() == document["tune_params"].size());
}

TEST_CASE("tuning_report reads a directory", "[cpu]") {
  const TempDir dir;
  const Records records;
  const Setting setting = sample_setting(8);
  std::string lines = to_line(setting);
  for (const Measurement& measurement : records.measured.measurements) {
    if (measurement.setting == id_of(setting)) lines += to_line(measurement);
  }
  REQUIRE(append_lines(measurements_path(dir.path(), setting.op), lines + "damage\n").ok());
  const std::string results = to_line(records.decided.results[0]);
  REQUIRE(append_lines(results_path(dir.path(), setting.op), results).ok());

  const Result<std::string> table = tuning_report(dir.path(), {});
  REQUIRE(table);
  CHECK(contains(*table, setting.bucket));
  CHECK(contains(*table, "damaged: " + measurements_path(dir.path(), setting.op)));
  for (const ReportFormat format :
       {ReportFormat::kJson, ReportFormat::kT4, ReportFormat::kKernelTuner}) {
    const Result<std::string> text = tuning_report(dir.path(), {.format = format});
    REQUIRE(text);
    CHECK(json::parse(*text).is_object());
  }
  CHECK(tuning_report(dir.path(), {.bucket = "states=1"}).error().code() == Code::kInvalidArgument);
  CHECK(tuning_report(dir.path() + "/none", {}).error().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace cubinery
