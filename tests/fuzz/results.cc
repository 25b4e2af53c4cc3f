#include "tests/fuzz/records.h"
#include "tuner/report/compare.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(results) {
  const TuningResults read = parse_results(input, "results");
  std::string lines;
  for (const TuningResult& result : read.results) lines += to_line(result);
  // What was read is read again, and says the same.
  const TuningResults again = parse_results(lines, "results");
  fuzz::require(again.damaged.empty() && again.results.size() == read.results.size());
  std::string same;
  for (const TuningResult& result : again.results) same += to_line(result);
  fuzz::require(same == lines);
  fuzz::report({}, {read});
  const TuningReport report = make_report({}, {read});
  (void)comparison_json(compare(report, report));
}
