// The results inside the library are those of the files that they are made from.
#include "results/embedded.h"

#include "results/record_file.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

TEST_CASE("EmbeddedResultsAreThoseOfTheFiles", "[cpu]") {
  std::vector<TuningResult> measured;
  for (const std::string gpu : {"h200", "h100"}) {
    const TuningResults file =
        read_results(CUBINERY_TEST_DIR "/../results/measured/" + gpu + ".results.jsonl").value();
    for (const DamagedLine& line : file.damaged) FAIL(line.text());
    measured.insert(measured.end(), file.results.begin(), file.results.end());
  }
  const std::vector<TuningResult> embedded = embedded_results();
  REQUIRE(embedded.size() == measured.size());
  for (std::size_t i = 0; i < embedded.size(); ++i) {
    CHECK(to_line(embedded[i]) == to_line(measured[i]));
    CHECK(embedded[i].configuration == measured[i].configuration);  // also what changes bits
  }
}

TEST_CASE("EmbeddedResultsAreHandedOutByProblem", "[cpu]") {
  const std::vector<TuningResult> all = embedded_results();
  const std::string fixed = all.front().setting.problem;
  const auto same = [&](std::string_view op, std::string_view one) {
    return op == all.front().setting.op && one == fixed;
  };
  const std::vector<TuningResult> some = embedded_results(same);
  CHECK(some.size() < all.size());
  for (const TuningResult& result : some) CHECK(result.setting.problem == fixed);
}

}  // namespace
}  // namespace cubinery
