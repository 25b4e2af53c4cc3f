// Calls of tune() that end early or follow one another.
#include <chrono>
#include <string>
#include <vector>

#include "tests/tuner/toy_bench.h"
#include "tuner/measure/tune_run.h"

namespace cubinery::test {
namespace {

TEST_CASE("Tune.AWrongOneOfAnEarlierCallStaysWrong", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.wrong = {2};
  ToyTimer timer(even_cost);
  bench.tuned(timer, tunable, {100}, bench.settings());
  tunable.wrong.clear();
  CHECK(bench.tuned(timer, tunable, {1000}, bench.settings()).shapes[0].chosen == 3);
  CHECK(tunable.checked[2] == 1);
  TuneSettings again = bench.settings();
  again.again = true;
  CHECK(bench.tuned(timer, tunable, {1000}, again).shapes[0].chosen == 2);
  CHECK(tunable.checked[2] == 2);
}

TEST_CASE("Tune.NothingIsMeasuredTwice", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  const TuneSettings settings = bench.settings();
  const TuneSummary first = bench.tuned(timer, tunable, {100}, settings);
  const auto calls = timer.calls;
  const auto lines = lines_of(settings);
  const TuneSummary second = bench.tuned(timer, tunable, {100}, settings);
  CHECK(timer.calls == calls);
  CHECK(second.measured == 0);
  CHECK(second.reused == 8);
  CHECK(second.shapes[0].complete);
  CHECK(second.shapes[0].chosen == first.shapes[0].chosen);
  CHECK(second.shapes[0].chosen_ms.median == Approx(first.shapes[0].chosen_ms.median));
  CHECK(lines_of(settings) == lines);
  TuneSettings again = settings;
  again.again = true;
  CHECK(bench.tuned(timer, tunable, {100}, again).measured == 8);
  for (const auto& [call, count] : timer.calls) CHECK(count == 2);
}

TEST_CASE("Tune.AnotherGpuIsMeasuredOnItsOwn", "[nvrtc]") {
  Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  bench.tuned(timer, tunable, {100}, bench.settings());
  bench.gpu.name = "Toy, another product of the same chip";
  CHECK(bench.tuned(timer, tunable, {100}, bench.settings()).reused == 8);
  bench.gpu.sm_count = 66;
  const TuneSummary summary = bench.tuned(timer, tunable, {100}, bench.settings());
  CHECK(summary.measured == 8);
  CHECK(results_in(bench.settings()).size() == 2);
}

TEST_CASE("Tune.ABudgetThatIsOverMeasuresNothing", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  TuneSettings settings = bench.settings();
  settings.budget = std::chrono::milliseconds(0);
  const TuneSummary summary = bench.tuned(timer, tunable, {100}, settings);
  CHECK(summary.stopped);
  CHECK(timer.calls.empty());
  CHECK_FALSE(summary.shapes[0].complete);
  CHECK(summary.shapes[0].why == "stopped");
}

TEST_CASE("Tune.ABudgetEndsAndKeepsWhatIsComplete", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  TuneSettings settings = bench.settings();
  // The third measurement of the second shape lasts until the budget is over.
  settings.budget = std::chrono::seconds(4);
  settings.progress = [&](const TuneProgress& progress) {
    if (progress.shapes_done == 0 || progress.measured < 2) return;
    timer.clock += settings.budget;
  };
  const TuneSummary summary = bench.tuned(timer, tunable, {100, 1000}, settings);
  CHECK(summary.stopped);
  CHECK(summary.shapes[0].complete);
  CHECK_FALSE(summary.shapes[1].complete);
  CHECK(results_in(settings).size() == 1);
  CHECK(measurements_in(settings).measurements.size() == 10);
}

TEST_CASE("Tune.ABudgetIncludesTheRunOffs", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer* running = nullptr;
  ToyTimer slow([&](std::int64_t rows, std::size_t configuration) {
    if (configuration == 2) running->clock += std::chrono::milliseconds(700);
    return even_cost(rows, configuration);
  });
  running = &slow;
  TuneSettings settings = bench.settings();
  // 120 replays at 700 ms for 20 are more.
  settings.budget = std::chrono::seconds(4);
  const TuneSummary summary = bench.tuned(slow, tunable, {100, 1000}, settings);
  CHECK(summary.stopped);
  CHECK(summary.shapes[0].complete);
  CHECK(summary.shapes[1].why == "stopped");
  CHECK(summary.measured == 8);
  // With the result of the first, all is for the second.
  ToyTimer timer(even_cost);
  CHECK(bench.tuned(timer, tunable, {100, 1000}, settings).shapes[1].complete);
}

// Stops a call at every single step; the call that follows completes it.
TEST_CASE("Tune.AnInterruptedCallIsContinuedAtEveryStep", "[nvrtc]") {
  const Bench bench;
  const Rows rows{100, 1000};
  ToyTunable tunable;
  tunable.wrong = {7};
  tunable.of.configurations.push_back(toy({.shared = 300000}));
  const auto new_timer = [] {
    ToyTimer timer(even_cost);
    timer.noise = 0.005;
    return timer;
  };
  int steps = 0;
  TuneSettings whole = bench.settings("whole");
  whole.should_stop = [&] { return ++steps, false; };
  ToyTimer uninterrupted = new_timer();
  const TuneSummary all = bench.tuned(uninterrupted, tunable, rows, whole);
  CHECK_FALSE(all.stopped);
  REQUIRE(steps > 20);
  for (int k = 1; k <= steps; ++k) {
    INFO("stopped at step " << k << " of " << steps);
    ToyTimer timer = new_timer();
    TuneSettings settings = bench.settings("step" + std::to_string(k));
    int asked = 0;
    settings.should_stop = [&] { return ++asked >= k; };
    const TuneSummary part = bench.tuned(timer, tunable, rows, settings);
    CHECK(part.stopped);
    CHECK_FALSE(part.shapes[1].complete);
    CHECK(asked == k);  // nothing goes on after it
    settings.should_stop = nullptr;
    const TuneSummary rest = bench.tuned(timer, tunable, rows, settings);
    CHECK_FALSE(rest.stopped);
    CHECK(part.measured + rest.measured == all.measured);
    CHECK(timer.calls == uninterrupted.calls);
    CHECK(lines_of(settings) == lines_of(whole));
  }
}

TEST_CASE("Tune.ResultsAlsoSayWhatAllShapesAgreeOn", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.otherwise = 3;  // the best for few rows, which gives other bits than the best for many
  // For few rows order 1 is a little faster, for many order 2 is by far.
  ToyTimer timer([](std::int64_t rows, std::size_t configuration) {
    const bool is_second = configuration >= 4;
    const double factor = rows < 500 ? (is_second ? 1.005 : 1.0) : (is_second ? 1.0 : 2.0);
    return factor * (1 + 0.1 * static_cast<double>((configuration + 1) % 4));
  });
  const TuneSettings settings = bench.settings();
  const TuneSummary few = bench.tuned(timer, tunable, {100}, settings);
  CHECK(few.shapes[0].chosen == 3);
  CHECK(few.shapes[0].agreed == 3);
  const TuneSummary many = bench.tuned(timer, tunable, {1000}, settings);
  CHECK(many.shapes[0].chosen == 7);
  CHECK(many.shapes[0].agreed == 7);
  const std::vector<TuningResult> results = results_in(settings);
  REQUIRE(results.size() == 2);
  for (const TuningResult& result : results) {
    const Decision agreed = decision_of(result, /*batch_invariant=*/true);
    CHECK(agreed.configuration == tunable.of.configurations[7].values);
    CHECK(agreed.templates == result.templates);
  }
  // The older one keeps its own choice; what all agree on was written again from its medians.  When
  // its shape is tuned, they meet.
  CHECK(results[0].configuration == tunable.of.configurations[3].values);
  CHECK(results[0].ms.samples == kRunOffRounds);
  CHECK(results[0].agreed_ms.samples < kRunOffRounds);
  const TuneSummary again = bench.tuned(timer, tunable, {100}, settings);
  CHECK(again.shapes[0].chosen == 3);
  CHECK(again.shapes[0].agreed == 7);
  CHECK(results_in(settings)[0].agreed_ms.samples == kRunOffRounds);
}

TEST_CASE("Tune.ADirectoryThatCannotBeWrittenIsAnError", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  TuneSettings settings = bench.settings();
  settings.directory = bench.shop.templates() + "/toy/toy.cu/results";
  const Result<TuneSummary> summary = bench.tune(timer, tunable, {100}, settings);
  REQUIRE_FALSE(summary);
  CHECK(summary.error().code() == Code::kIo);
  CHECK(contains(summary.error().message(), "toy.cu"));
  CHECK(timer.calls.empty());
}

TEST_CASE("Tune.AKernelThatTakesTheContextWithItIsLeftOutTheNextTime", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  timer.deadly = {2};
  const Result<TuneSummary> lost = bench.tune(timer, tunable, {100, 1000}, bench.settings());
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code() == Code::kDriver);
  CHECK(contains(lost.error().message(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK(measurements_in(bench.settings()).measurements.size() == 3);
  timer.dead = false;  // another process
  const TuneSummary summary = bench.tuned(timer, tunable, {100, 1000}, bench.settings());
  CHECK(summary.reused == 3);
  for (const TunedShape& shape : summary.shapes) CHECK(shape.chosen == 3);
}

TEST_CASE("Tune.TwoShapesOfOneBucketShareTheirMeasurements", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  const TuneSummary summary = bench.tuned(timer, tunable, {100, 120}, bench.settings());
  CHECK(summary.measured == 8);
  CHECK(summary.reused == 8);
  CHECK(summary.shapes[1].complete);
  CHECK(results_in(bench.settings()).size() == 1);
}

}  // namespace
}  // namespace cubinery::test
