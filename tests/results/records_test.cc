// Records as lines and back.
#include "results/records.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "tests/catch.h"
#include "tests/tuner/sample_records.h"

namespace cubinery {
namespace {

using test::sample_measurement;
using test::sample_result;
using test::sample_setting;

// The line with one piece replaced, which must be there.
std::string with(std::string line, const std::string& piece, const std::string& replacement) {
  const std::size_t at = line.find(piece);
  INFO(line << " has no " << piece);
  REQUIRE(at != line.npos);
  return line.replace(at, piece.size(), replacement);
}

std::string why_no_setting(const std::string& line) {
  const Result<Setting> setting = parse_setting(line);
  if (setting) return "";
  CHECK(setting.error().code() == Code::kInvalidArgument);
  return std::string(setting.error().message());
}
std::string why_no_measurement(const std::string& line) {
  const Result<Measurement> measurement = parse_measurement(line);
  if (measurement) return "";
  CHECK(measurement.error().code() == Code::kInvalidArgument);
  return std::string(measurement.error().message());
}
std::string why_no_result(const std::string& line) {
  const Result<TuningResult> result = parse_result(line);
  if (result) return "";
  CHECK(result.error().code() == Code::kInvalidArgument);
  return std::string(result.error().message());
}

// Lines of the sample records.  Persistent: they must stay readable.
std::string golden(int number) {
  std::ifstream file(CUBINERY_TEST_DIR "/golden/tuning_v1.jsonl");
  std::string line;
  for (int i = 0; i <= number; ++i) std::getline(file, line);
  REQUIRE_FALSE(line.empty());
  return line + '\n';
}

TEST_CASE("RecordLinesAreThoseOfTheFormat", "[cpu]") {
  CHECK(to_line(sample_setting()) == golden(0));
  CHECK(to_line(sample_measurement()) == golden(1));
  CHECK(to_line(sample_result()) == golden(2));
}

TEST_CASE("AResultWithoutUncertaintyIsAsGoodAsBefore", "[cpu]") {
  TuningResult expected = sample_result();
  expected.uncertainty = 0;
  CHECK(to_line(parse_result(golden(3)).value()) == to_line(expected));
}

TEST_CASE("RecordsSurviveTheRoundTrip", "[cpu]") {
  // Lines hold every member, so equal lines are equal records; the golden says that they do.
  for (const std::int64_t batch : {1, 8, 1000}) {
    const std::string setting = to_line(sample_setting(batch));
    CHECK(to_line(*parse_setting(setting)) == setting);
    const std::string measurement = to_line(sample_measurement(batch));
    CHECK(to_line(*parse_measurement(measurement)) == measurement);
    const std::string result = to_line(sample_result(batch));
    CHECK(to_line(*parse_result(result)) == result);
  }
}

TEST_CASE("ValuesKeepTheirTypeOrderAndBits", "[cpu]") {
  CHECK(parse_measurement(to_line(sample_measurement()))->configuration ==
        test::sample_configuration());
  const Result<TuningResult> result = parse_result(to_line(sample_result()));
  REQUIRE(result);
  CHECK(result->configuration == test::sample_configuration(4));
  CHECK(result->otherwise == test::sample_configuration(1));
  CHECK(result->runner_up == test::sample_configuration(2));
  const Setting setting = *parse_setting(to_line(sample_setting()));
  CHECK(setting.shape == Shape{{"batch", 8}, {"heads", 32}});
  CHECK(setting.gpu.is_same(sample_setting().gpu));
  CHECK(setting.nvrtc == sample_setting().nvrtc);
}

TEST_CASE("EveryLineEndsOnce", "[cpu]") {
  for (const std::string& line :
       {to_line(sample_setting()), to_line(sample_measurement()), to_line(sample_result())}) {
    CHECK(line.find('\n') == line.size() - 1);
  }
}

TEST_CASE("TextsOfAnyBytesMakeALine", "[cpu]") {
  Measurement measurement = sample_measurement();
  measurement.verdict = Verdict::kCompile;
  measurement.reason = "\"quoted\"\n\xff\x01";
  const std::string line = to_line(measurement);
  CHECK(line.find('\n') == line.size() - 1);
  const Result<Measurement> parsed = parse_measurement(line);
  REQUIRE(parsed);
  CHECK(parsed->reason == "\"quoted\"\n\xef\xbf\xbd\x01");
}

TEST_CASE("TimesHaveSixDigits", "[cpu]") {
  Measurement measurement = sample_measurement();
  measurement.ms.median = 0.00123456789;
  CHECK(parse_measurement(to_line(measurement))->ms.median == 0.00123457);
}

TEST_CASE("ChecksThatAreNoNumberComeBackAsNaN", "[cpu]") {
  for (const double error : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Measurement measurement = sample_measurement();
    measurement.verdict = Verdict::kWrong;
    measurement.check.error = error;
    const std::string line = to_line(measurement);
    CHECK(line.find("\"error\":null") != line.npos);
    const Result<Measurement> parsed = parse_measurement(line);
    REQUIRE(parsed);
    CHECK(std::isnan(parsed->check.error));
    CHECK(parsed->check.limit == measurement.check.limit);
    CHECK_FALSE(parsed->check.passed());
  }
}

TEST_CASE("EveryVerdictIsRead", "[cpu]") {
  for (const Verdict verdict : {Verdict::kCorrect, Verdict::kConstraints, Verdict::kCompile,
                                Verdict::kSpills, Verdict::kRuntime, Verdict::kWrong}) {
    Measurement measurement = sample_measurement();
    measurement.verdict = verdict;
    const Result<Measurement> parsed = parse_measurement(to_line(measurement));
    REQUIRE(parsed);
    CHECK(parsed->verdict == verdict);
    // Only what is right is timed.
    CHECK(parsed->ms.median == (verdict == Verdict::kCorrect ? measurement.ms.median : 0));
  }
}

TEST_CASE("UnknownMembersArePassedOver", "[cpu]") {
  const auto more = [](const std::string& line) {
    return with(line, "}\n", ",\"zeal\":{\"of\":[1,null]}}\n");
  };
  CHECK(to_line(*parse_setting(more(to_line(sample_setting())))) == to_line(sample_setting()));
  CHECK(to_line(*parse_measurement(more(to_line(sample_measurement())))) ==
        to_line(sample_measurement()));
  CHECK(to_line(*parse_result(more(to_line(sample_result())))) == to_line(sample_result()));
  CHECK(why_no_result(
            with(to_line(sample_result()), "\"capability\"", "\"more\":1,\"capability\"")) == "");
}

TEST_CASE("MissingMembersKeepTheirDefaults", "[cpu]") {
  const Result<Setting> setting = parse_setting(
      R"({"setting":1,"op":"k","problem":"","shape":{"n":3},"features":{"n":3},"bucket":"n=4",)"
      R"("gpu":{"arch":"sm_80"},"nvrtc":"13.0.88"})");
  REQUIRE(setting);
  CHECK(setting->gpu.sm_count == 0);
  CHECK(setting->bytes == 0);
  const Result<Measurement> measurement = parse_measurement(
      R"({"measurement":1,"of":"x","configuration":{"w":1},"verdict":"correct","ms":{"median":2}})");
  REQUIRE(measurement);
  CHECK(measurement->configuration == std::vector<TunedValue>{{"w", "1"}});
  CHECK(measurement->templates == "");
  CHECK(measurement->ms.samples == 0);
  CHECK(measurement->check.limit == 0);
  CHECK(measurement->kernels.empty());
}

TEST_CASE("NothingStandsInForTheseMembers", "[cpu]") {
  for (const char* name : {"op", "problem", "shape", "features", "bucket", "gpu", "nvrtc"}) {
    const std::string quoted = '"' + std::string(name) + "\":";
    CHECK(why_no_setting(with(to_line(sample_setting()), quoted, "\"was\":")) ==
          std::string(name) + " is missing");
    CHECK(why_no_result(with(to_line(sample_result()), quoted, "\"was\":")) ==
          std::string(name) + " is missing");
  }
  for (const char* name : {"of", "configuration", "verdict", "ms"}) {
    const std::string quoted = '"' + std::string(name) + "\":";
    CHECK(why_no_measurement(with(to_line(sample_measurement()), quoted, "\"was\":")) ==
          std::string(name) + " is missing");
  }
  CHECK(why_no_setting(with(to_line(sample_setting()), "\"arch\"", "\"was\"")) ==
        "gpu.arch is missing");
  CHECK(why_no_result(with(to_line(sample_result()), "\"median\"", "\"was\"")) ==
        "ms.median is missing");
}

TEST_CASE("NewerFormatsAreNamed", "[cpu]") {
  const std::string what = "newer format 2, of which this version knows 1";
  CHECK(why_no_setting(with(to_line(sample_setting()), "{\"setting\":1", "{\"setting\":2")) ==
        what);
  CHECK(why_no_measurement(with(to_line(sample_measurement()), "\":1,", "\":2,")) == what);
  CHECK(why_no_result("{\"result\":2}") == what);
  CHECK(why_no_result("{\"result\":0}") == "result is not a format number");
  CHECK(why_no_result("{\"result\":\"1\"}") == "result is not a format number");
}

TEST_CASE("OtherLinesAreRefused", "[cpu]") {
  for (const char* line : {"", "{", "{\"setting\":1,}", "\"setting"}) {
    CHECK(why_no_setting(line).starts_with("not JSON at column "));
  }
  CHECK(why_no_setting("{\"setting\":1e999}") == "a number that no double holds at column 16");
  CHECK(why_no_setting("{\"setting\":1,\"op\":" + std::string(1'000'000, '[')) ==
        "arrays and objects more than 8 deep at column 26");
  for (const char* line :
       {"1", "null", "[]", "{}", "{\"result\":1}", "{\"op\":\"k\",\"setting\":1}"}) {
    CHECK(why_no_setting(line) == "not a setting");
  }
}

TEST_CASE("MembersOfAnotherTypeAreRefused", "[cpu]") {
  const std::string setting = to_line(sample_setting());
  CHECK(why_no_setting(with(setting, "\"gdn_decode\"", "7")) == "op is not a text");
  CHECK(why_no_setting(with(setting, "gdn_decode", "../x")) ==
        "op is not of letters, digits and _");
  CHECK(why_no_setting(with(setting, "\"sm_count\":132", "\"sm_count\":\"132\"")) ==
        "gpu.sm_count is not an integer from 0 to 2147483647");
  CHECK(why_no_setting(with(setting, "\"sm_count\":132", "\"sm_count\":3000000000")) ==
        "gpu.sm_count is not an integer from 0 to 2147483647");
  CHECK(why_no_setting(with(setting, "\"sm_count\":132", "\"sm_count\":-1")) ==
        "gpu.sm_count is not an integer from 0 to 2147483647");
  CHECK(why_no_setting(with(setting, "67108864", "0.5")) ==
        "bytes is not an integer from 0 to 9223372036854775807");
  CHECK(why_no_setting(with(setting, "{\"states\":256}", "[256]")) == "features is not an object");

  const std::string measurement = to_line(sample_measurement());
  CHECK(why_no_measurement(with(measurement, "\"warps\":4", "\"warps\":[4]")) ==
        "configuration.warps is not a text, a number or a boolean");
  CHECK(why_no_measurement(with(measurement, "[\"vec\"", "[1")) ==
        "bits has an element that is not a text");
  CHECK(why_no_measurement(with(measurement, "[{\"kernel\"", "[5,{\"kernel\"")) ==
        "kernels has an element that is not an object");
  CHECK(why_no_measurement(with(measurement, "\"registers\":96", "\"registers\":true")) ==
        "kernels.registers is not an integer from 0 to 2147483647");
  CHECK(why_no_measurement(with(measurement, "\"correct\"", "\"lucky\"")) ==
        "verdict is unknown: \"lucky\"");
}

TEST_CASE("TimesThatCannotBeAreRefused", "[cpu]") {
  const std::string line = to_line(sample_result());
  for (const char* time : {"-0.1", "null", "\"1\""}) {
    CHECK(why_no_result(with(line, "0.0123457", time)) ==
          "ms.median is not a number of at least 0");
    CHECK(why_no_result(with(line, "0.0149", time)) ==
          "otherwise_ms.p10 is not a number of at least 0");
  }
  CHECK(why_no_result(with(line, "0.0123457", "0")) == "ms.median is not above 0");
  Measurement measurement = sample_measurement();
  measurement.ms.median = std::nan("");
  CHECK(why_no_measurement(to_line(measurement)) == "ms.median is not a number of at least 0");
}

TEST_CASE("BucketsAreThoseOfTheFeatures", "[cpu]") {
  CHECK(why_no_setting(with(to_line(sample_setting()), "states=256", "states=128")) ==
        "bucket is not that of the features, states=256");
  CHECK(why_no_result(with(to_line(sample_result()), "{\"states\":256}", "{\"states\":2048}")) ==
        "bucket is not that of the features, states=2048");
  CHECK(why_no_setting(with(to_line(sample_setting()), "\"batch\":8", "\"batch\":0")) ==
        "shape is no shape: shape: the size batch is 0, which is less than 1");
}

TEST_CASE("IdsAreThoseOfTheirMembers", "[cpu]") {
  CHECK(why_no_setting(with(to_line(sample_setting()), "13.0.88", "13.0.89")) ==
        "id is not that of the other members");
}

TEST_CASE("IdsSeeWhatMakesASetting", "[cpu]") {
  const Setting setting = sample_setting();
  const auto differs = [&](auto change) {
    Setting other = setting;
    change(other);
    return id_of(other) != id_of(setting);
  };
  CHECK(id_of(setting).size() == 32);
  CHECK(differs([](Setting& s) { s.op = "gdn_prefill"; }));
  CHECK(differs([](Setting& s) { s.problem += "x"; }));
  CHECK(differs([](Setting& s) { s.bucket = "states=512"; }));
  CHECK(differs([](Setting& s) { s.gpu.arch = "sm_90"; }));
  CHECK(differs([](Setting& s) { s.gpu.capability = "9.1"; }));
  CHECK(differs([](Setting& s) { s.gpu.sm_count = 114; }));
  CHECK(differs([](Setting& s) { s.gpu.l2_bytes = 1; }));
  CHECK(differs([](Setting& s) { s.gpu.shared_bytes_per_sm = 1; }));
  CHECK(differs([](Setting& s) { s.gpu.mig = ""; }));
  CHECK(differs([](Setting& s) { s.nvrtc = "13.1.12"; }));
  // A bucket stands for many shapes; names and drivers are information.
  CHECK_FALSE(differs([](Setting& s) { s.shape = {{"batch", 9}}; }));
  CHECK_FALSE(differs([](Setting& s) { s.features = {{"states", 260}}; }));
  CHECK_FALSE(differs([](Setting& s) { s.gpu.name = "NVIDIA H100"; }));
  CHECK_FALSE(differs([](Setting& s) { s.driver = "590"; }));
  CHECK_FALSE(differs([](Setting& s) { s.bytes = 0; }));
}

TEST_CASE("KindsAreSeenInTheFirstMember", "[cpu]") {
  CHECK(kind_of(to_line(sample_setting())) == RecordKind::kSetting);
  CHECK(kind_of(to_line(sample_measurement())) == RecordKind::kMeasurement);
  CHECK(kind_of(to_line(sample_result())) == RecordKind::kResult);
  CHECK(kind_of(" {\t\"result\" :1") == RecordKind::kResult);
  for (const char* line :
       {"", "{", "   ", "{\"results\":1}", "[\"result\"]", "{\"a\":\"result\"}"}) {
    CHECK(kind_of(line) == RecordKind::kOther);
  }
}

}  // namespace
}  // namespace cubinery
