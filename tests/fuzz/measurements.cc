#include "tests/fuzz/records.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(measurements) {
  const Measurements read = parse_measurements(input, "measurements");
  std::string lines;
  for (const auto& [id, setting] : read.settings) lines += to_line(setting);
  for (const Measurement& measurement : read.measurements) lines += to_line(measurement);
  const Measurements again = parse_measurements(lines, "measurements");
  fuzz::require(again.damaged.empty() && again.settings.size() == read.settings.size());
  fuzz::require(again.measurements.size() == read.measurements.size());
  fuzz::report({read}, {});
}
