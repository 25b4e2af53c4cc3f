// The results inside the library are those of the files that they are made from.
#include "results/embedded.h"

#include <map>
#include <set>
#include <string>

#include "results/choose.h"
#include "results/record_file.h"
#include "runtime/operator/tuning_context.h"
#include "runtime/registry/operators.h"
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

// Whoever edits templates carries the results of kernels that stay as they are
// (scripts/carry_results.py); those of the others wait here to be measured again.
TEST_CASE("TheseEmbeddedResultsAreStale", "[cpu]") {
  std::set<std::string> operators;
  for (const TuningResult& result : embedded_results()) operators.insert(result.setting.op);
  std::map<std::string, int> found;
  for (const std::string& op : operators) {
    const KnownResults known = known_results_inside(op, path_kernels(op));
    const Toolchain ours{.nvrtc = {}, .templates = known.templates};
    for (const TuningResult& result : known.results) {
      const Decision decision = decision_of(result, /*batch_invariant=*/false);
      if (stale(result.setting, decision, ours)) ++found[op + ", " + result.setting.gpu.name];
    }
  }
  CHECK(found == std::map<std::string, int>{{"gdn_prefill, NVIDIA H100 80GB HBM3", 138},
                                            {"gdn_verify, NVIDIA H100 80GB HBM3", 48}});
}

}  // namespace
}  // namespace cubinery
