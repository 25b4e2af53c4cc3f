// Two sets of results, put side by side.
#include "tuner/report/compare.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/tuner/sample_records.h"

namespace cubinery {
namespace {

using test::sample_configuration;
using test::sample_result;

TuningReport report_of(std::vector<TuningResult> results) {
  return make_report({}, {TuningResults{.results = std::move(results), .damaged = {}}});
}

// Both times are `factor` of the sample's.
TuningResult scaled(double factor, double uncertainty, std::int64_t batch = 8) {
  TuningResult result = sample_result(batch);
  result.ms.median *= factor;
  result.otherwise_ms.median *= factor;
  result.uncertainty = uncertainty;
  return result;
}

bool agree(const TuningResult& here, const TuningResult& there) {
  const TuningReport one = report_of({here}), other = report_of({there});
  const Comparison comparison = compare(one, other);
  REQUIRE(comparison.settings.size() == 1);
  CHECK(comparison.agreeing() == (comparison.settings[0].agrees() ? 1 : 0));
  return comparison.settings[0].agrees();
}

TEST_CASE("Compare.TimesMayDifferByTheSumOfTheirUncertainties", "[cpu]") {
  const TuningResult here = scaled(1, 0.01);
  CHECK(agree(here, here));
  CHECK(agree(here, scaled(1.029, 0.02)));
  CHECK_FALSE(agree(here, scaled(1.031, 0.02)));
  CHECK(agree(here, scaled(1 / 1.029, 0.02)));
  CHECK_FALSE(agree(here, scaled(1 / 1.031, 0.02)));
  CHECK_FALSE(agree(scaled(1, 0), scaled(1.001, 0)));  // nobody knows how certain they are
}

TEST_CASE("Compare.TheDefaultMustAgreeToo", "[cpu]") {
  const TuningResult here = scaled(1, 0.01);
  TuningResult there = here;
  there.otherwise_ms.median *= 1.05;
  CHECK_FALSE(agree(here, there));
  there.otherwise = sample_configuration(16);  // another default has another time
  CHECK(agree(here, there));
  there.ms.median *= 1.05;
  CHECK_FALSE(agree(here, there));
}

TEST_CASE("Compare.AnotherChoiceAgreesWhereItsTimeDoes", "[cpu]") {
  const TuningResult here = scaled(1, 0.01);
  TuningResult there = scaled(1.015, 0.01);
  there.configuration = sample_configuration(2);
  const TuningReport one = report_of({here}), other = report_of({there});
  const Comparison comparison = compare(one, other);
  CHECK(comparison.same_choices() == 0);
  CHECK(comparison.agreeing() == 1);
}

TEST_CASE("Compare.SettingsAreMatchedButForTheCompiler", "[cpu]") {
  TuningResult newer = scaled(1.3, 0.01);
  newer.setting.nvrtc = "14.0.1";
  TuningResult elsewhere = scaled(1, 0.01);
  elsewhere.setting.gpu.sm_count = 66;
  const TuningReport here = report_of({scaled(1, 0.01), scaled(1, 0.01, 64), elsewhere});
  const TuningReport there = report_of({newer, scaled(1, 0.01, 64), scaled(1, 0.01, 512)});
  const Comparison comparison = compare(here, there);
  REQUIRE(comparison.settings.size() == 2);
  CHECK(comparison.only_here == 1);
  CHECK(comparison.only_there == 1);
  CHECK(comparison.agreeing() == 1);
  for (const ComparedSetting& compared : comparison.settings) {
    CHECK(compared.here->setting.bucket == compared.there->setting.bucket);
  }

  const std::string table = comparison_table(comparison);
  CHECK(table.find("2 settings in both: 1 agree, 2 with the same choice; 1 only here, 1 only "
                   "there\n") != std::string::npos);
  CHECK(table.find(" 30.0 ") != std::string::npos);
  const auto document = nlohmann::json::parse(comparison_json(comparison));
  CHECK(document["agreeing"] == 1);
  REQUIRE(document["settings"].size() == 2);
  CHECK(document["settings"][0]["allowed"] == 0.02);
}

// Two runs from nothing, on two GPUs of the same kind.
TEST_CASE("Compare.TwoRunsOnAnH200Agree", "[cpu]") {
  const TuningReport first = read_report(CUBINERY_TEST_DIR "/data/tuning/first").value();
  const TuningReport again = read_report(CUBINERY_TEST_DIR "/data/tuning/again").value();
  const Comparison comparison = compare(first, again);
  INFO(comparison_table(comparison));
  CHECK(comparison.settings.size() == again.settings.size());
  for (const ComparedSetting& compared : comparison.settings) {
    CHECK(compared.here->setting.features == compared.there->setting.features);
  }
  CHECK(comparison.agreeing() == again.settings.size());
}

}  // namespace
}  // namespace cubinery
