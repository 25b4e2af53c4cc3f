// Calls of tune() on the toy, and what they write.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results/record_file.h"
#include "tests/catch.h"
#include "tests/tuner/toy_tunable.h"
#include "tuner/measure/tune_with.h"

namespace cubinery::test {

using Rows = std::vector<std::int64_t>;

// Configuration 2 (128 threads, order 1) is the best whatever the rows, 1 and 3 are close.
inline double even_cost(std::int64_t rows, std::size_t configuration) {
  constexpr double kFactors[] = {1.5, 1.05, 1.0, 1.03, 1.8, 1.4, 1.3, 1.2};
  return 1e-3 * static_cast<double>(rows) * (configuration < 8 ? kFactors[configuration] : 0.5);
}

inline std::vector<Shape> shapes_of(const Rows& rows) {
  std::vector<Shape> shapes;
  for (const std::int64_t value : rows) shapes.push_back({{"rows", value}});
  return shapes;
}

// A folder of templates, a compiler, and a directory for results.
struct Bench {
  Bench() {
    shop.write("toy/key.h", kToyKey);
    shop.write("toy/toy.cu", kToyKernel);
    context.emplace(context_of(shop.options()));
  }

  TuneSettings settings(const std::string& name = "results") const {
    TuneSettings settings;
    settings.directory = shop.path(name);
    return settings;
  }
  Result<TuneSummary> tune(Timer& timer, ToyTunable& tunable, const Rows& rows,
                           const TuneSettings& how) const {
    return tune_with(*context, gpu, driver, timer, tunable, shapes_of(rows), how);
  }
  TuneSummary tuned(Timer& timer, ToyTunable& tunable, const Rows& rows,
                    const TuneSettings& how) const {
    Result<TuneSummary> summary = tune(timer, tunable, rows, how);
    if (!summary) FAIL(summary.error().message());
    return *std::move(summary);
  }

  Workshop shop;
  std::optional<Context> context;
  GpuIdentity gpu = toy_gpu();
  std::string driver = "580.159.04";
};

inline Measurements measurements_in(const TuneSettings& settings) {
  Result<Measurements> read = read_measurements(measurements_path(settings.directory, "toy"));
  REQUIRE(read);
  CHECK(read->damaged.empty());
  return *std::move(read);
}

inline std::vector<TuningResult> results_in(const TuneSettings& settings) {
  Result<TuningResults> read = read_results(results_path(settings.directory, "toy"));
  REQUIRE(read);
  CHECK(read->damaged.empty());
  return std::move(read->results);
}

// Of the only setting.
inline const Measurement& measurement_of(const Measurements& all,
                                         const Configuration& configuration) {
  const std::string text = to_text(configuration.values);
  const auto found = std::find_if(
      all.measurements.begin(), all.measurements.end(),
      [&](const Measurement& measurement) { return to_text(measurement.configuration) == text; });
  REQUIRE(found != all.measurements.end());
  return *found;
}

// Results but for the time of day, by bucket.
inline std::map<std::string, std::string> lines_of(const TuneSettings& settings) {
  std::map<std::string, std::string> lines;
  for (TuningResult result : results_in(settings)) {
    result.time.clear();
    lines[result.setting.bucket] = to_line(result);
  }
  return lines;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace cubinery::test
