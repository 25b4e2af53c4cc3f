// tune() from the space to the results, with a clock that knows the costs.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/tuner/toy_bench.h"
#include "tuner/measure/tune_run.h"

namespace cubinery::test {
namespace {

TEST_CASE("Tune.FindsTheBestAndWritesItDown", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  const TuneSettings settings = bench.settings();
  const TuneSummary summary = bench.tuned(timer, tunable, {100, 1000}, settings);
  CHECK_FALSE(summary.stopped);
  CHECK(summary.measured == 16);
  CHECK(summary.reused == 0);
  CHECK(summary.rejected == 0);
  CHECK(summary.directory == settings.directory);
  REQUIRE(summary.shapes.size() == 2);
  for (const TunedShape& shape : summary.shapes) {
    CHECK(shape.complete);
    CHECK(shape.why.empty());
    CHECK(shape.chosen == 2);
    CHECK(shape.otherwise == 0);
    CHECK(shape.otherwise_ms.median == Approx(1.5 * shape.chosen_ms.median));
    CHECK(shape.chosen_ms.samples == kRunOffRounds);
  }
  CHECK(summary.shapes[0].bucket == "rows=128");
  CHECK(summary.shapes[1].chosen_ms.median == Approx(1.0));

  const std::vector<TuningResult> results = results_in(settings);
  REQUIRE(results.size() == 2);
  CHECK(results[1].configuration == tunable.of.configurations[2].values);
  CHECK(results[1].otherwise == tunable.of.configurations[0].values);
  CHECK(results[1].runner_up == tunable.of.configurations[3].values);
  CHECK(results[1].margin == Approx(0.03).margin(1e-4));
  CHECK(results[1].uncertainty == kWorth);
  CHECK(results[1].candidates == 8);
  CHECK(results[1].measured == 8);
  CHECK(results[1].rejected == 0);
  CHECK(results[1].clocks.sm_mhz == 1980);
  CHECK(results[1].setting.bytes == 8000);
  CHECK(results[1].setting.driver == bench.driver);
  CHECK(results[1].setting.nvrtc == bench.context->nvrtc_version().value());
  const Measurements all = measurements_in(settings);
  CHECK(all.settings.size() == 2);
  REQUIRE(all.measurements.size() == 16);
  for (const Measurement& measurement : all.measurements) {
    CHECK(measurement.verdict == Verdict::kCorrect);
    CHECK(measurement.check.error == 0.5);
    REQUIRE(measurement.kernels.size() == 1);
    CHECK(measurement.kernels[0].registers > 0);
    CHECK(measurement.kernels[0].compile_ms > 0);
    CHECK(measurement.time.size() == 20);
  }
}

TEST_CASE("Tune.EachConfigurationIsCheckedOnce", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  bench.tuned(timer, tunable, {100, 1000}, bench.settings());
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(tunable.checked[i] == 1);
    CHECK(tunable.prepared[i] == 1);
  }
  bench.tuned(timer, tunable, {10000}, bench.settings());  // the journal knows that they are right
  for (std::size_t i = 0; i < 8; ++i) CHECK(tunable.checked[i] == 1);
}

TEST_CASE("Tune.TheCloseOnesAreTimedInFull", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  bench.tuned(timer, tunable, {100}, bench.settings());
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(timer.calls[{100, i, kQuickReplays}] == 1);
    const bool is_close = i == 1 || i == 2 || i == 3;  // within 10 %
    CHECK(timer.calls[{100, i, kFullReplays}] == (is_close || i == 0 ? 1 : 0));
    const bool meets = i == 2 || i == 3 || i == 0;  // best, runner-up, default
    CHECK(timer.calls[{100, i, kRunOffRounds}] == (meets ? 1 : 0));
  }
}

TEST_CASE("Tune.WhatIsMuchSlowerThanTheBestIsReplayedOnce", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  const TuneSettings settings = bench.settings();
  bench.tuned(timer, tunable, {100}, settings);
  const Measurements all = measurements_in(settings);
  const auto samples = [&](std::size_t configuration) {
    return measurement_of(all, tunable.of.configurations[configuration]).ms.samples;
  };
  CHECK(samples(4) == 1);  // 80 % slower
  CHECK(samples(7) == kQuickReplays);
  CHECK(samples(0) == kFullReplays);  // 50 %, but the default
}

TEST_CASE("Tune.WrongOnesAreRecordedAndNeverChosen", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.wrong = {2};
  tunable.unprepared = {3};
  ToyTimer timer(even_cost);
  timer.failing = {1};
  const TuneSettings settings = bench.settings();
  const TuneSummary summary = bench.tuned(timer, tunable, {100, 1000}, settings);
  CHECK(summary.rejected == 6);
  for (const TunedShape& shape : summary.shapes) CHECK(shape.chosen == 7);
  CHECK(timer.calls.count({100, 2, kQuickReplays}) == 0);
  CHECK(tunable.checked[2] == 1);
  CHECK(tunable.prepared[3] == 1);  // not again for the second shape
  const Measurements all = measurements_in(settings);
  const auto& configurations = tunable.of.configurations;
  const Measurement& wrong = measurement_of(all, configurations[2]);
  CHECK(wrong.verdict == Verdict::kWrong);
  CHECK(wrong.reason == "off by 2, allowed are 1: y, everywhere");
  CHECK(measurement_of(all, configurations[3]).verdict == Verdict::kRuntime);
  CHECK(measurement_of(all, configurations[3]).reason == "the driver refuses it");
  CHECK(measurement_of(all, configurations[1]).reason == "cuGraphLaunch: refused");
  CHECK(results_in(settings).front().rejected == 3);
}

TEST_CASE("Tune.WhatCannotRunIsRecordedWithItsReason", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  auto& configurations = tunable.of.configurations;
  configurations.push_back(toy({.shared = 300000}));
  configurations.push_back(toy({.threads = 2048}));
  configurations.push_back(toy({.threads = 48}));
  configurations.push_back(toy({.threads = 1024, .bulk = 128}));
  ToyTimer timer(even_cost);  // these four would be the fastest
  const TuneSettings settings = bench.settings();
  const TuneSummary summary = bench.tuned(timer, tunable, {100}, settings);
  CHECK(summary.shapes[0].chosen == 2);
  CHECK(summary.rejected == 4);
  const Measurements all = measurements_in(settings);
  const auto& shared = measurement_of(all, configurations[8]);
  CHECK(shared.verdict == Verdict::kConstraints);
  CHECK(shared.reason == "toy: 300000 bytes of shared memory, of which a block has 232448");
  CHECK(shared.kernels.empty());
  const auto& threads = measurement_of(all, configurations[9]);
  CHECK(threads.verdict == Verdict::kConstraints);
  CHECK(threads.reason == "toy: 2048 threads, of which a block has 1024");
  const auto& refused = measurement_of(all, configurations[10]);
  CHECK(refused.verdict == Verdict::kCompile);
  CHECK(contains(refused.reason, "toy: whole warps only"));
  const auto& spills = measurement_of(all, configurations[11]);
  CHECK(spills.verdict == Verdict::kSpills);
  CHECK(spills.reason.starts_with("toy: spills "));
  REQUIRE(spills.kernels.size() == 1);
  CHECK(spills.kernels[0].spill_bytes > 0);
  CHECK(tunable.prepared.count(11) == 0);
}

TEST_CASE("Tune.RegistersOfABlockAreLimited", "[cpu]") {
  KernelSpec spec{.kernel = "toy"};
  spec.threads = 512;
  const Target target = target_of(*parse_arch(toy_gpu().arch), toy_gpu());
  KernelInfo info;
  info.registers = 128;
  CHECK_FALSE(why_rejected(spec, info, target));
  info.registers = 129;  // handed out as 136
  const auto rejection = why_rejected(spec, info, target);
  REQUIRE(rejection);
  CHECK(rejection->verdict == Verdict::kConstraints);
  CHECK(contains(rejection->reason, "69632 in all, of which a block has 65536"));
  info.registers = 16;
  info.log = "warning: something\nand more\n";
  CHECK(why_rejected(spec, info, target)->verdict == Verdict::kSpills);
  CHECK(why_rejected(spec, info, target)->reason == "toy: warning: something");
}

Timing timing(double median, double spread = 0) {
  return {median, median * (1 - spread / 2), median * (1 + spread / 2), kRunOffRounds};
}

TEST_CASE("Tune.DifferencesWithinTheNoiseDecideNothing", "[cpu]") {
  CHECK(noise(timing(1), timing(2)) == kWorth);
  CHECK(noise(timing(1, 0.2), timing(2)) == Approx(0.05));
  std::map<std::size_t, Timing> times{{0, timing(1.005)}, {1, timing(1)}, {2, timing(0.995)}};
  const TimeOf time_of = [&](std::size_t i) -> const Timing* {
    return times.count(i) != 0 ? &times.at(i) : nullptr;
  };
  const Finalists finalists{.best = 1, .runner_up = 2, .otherwise = 0, .agreed = 1};
  const auto agree = [](std::size_t) { return true; };
  const auto but_the_default = [](std::size_t i) { return i != 0; };
  CHECK(decide(finalists, time_of) == 0);  // the default wins ties
  CHECK(decide_agreed(finalists, agree, time_of) == 0);
  CHECK(decide_agreed(finalists, but_the_default, time_of) == 1);  // unless it gives other bits
  times[0] = timing(1.02);
  CHECK(decide(finalists, time_of) == 1);
  times[2] = timing(0.97);
  CHECK(decide(finalists, time_of) == 2);
  times[2] = timing(0.97, 0.2);  // within a quarter of its spread
  times[1] = timing(1);
  CHECK(decide_agreed(finalists, but_the_default, time_of) == 1);
  times.erase(0);
  CHECK(decide(finalists, time_of) == 1);
}

TEST_CASE("Tune.TheDefaultWinsTies", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.otherwise = 3;
  ToyTimer timer([](std::int64_t rows, std::size_t configuration) {
    return configuration == 3 ? 1.008 * even_cost(rows, 2) : even_cost(rows, configuration);
  });
  const TuneSummary summary = bench.tuned(timer, tunable, {100}, bench.settings());
  CHECK(summary.shapes[0].chosen == 3);
  CHECK(summary.shapes[0].otherwise == 3);
}

TEST_CASE("Tune.UncertaintyIsThatOfRoundsOrOfTwoSittings", "[cpu]") {
  const Timing here = timing(1);
  CHECK(uncertainty(here, nullptr) == kWorth);
  CHECK(uncertainty(timing(1, 0.2), nullptr) == Approx(0.05));
  Timing earlier = timing(1.03);
  earlier.samples = kFullReplays;
  CHECK(uncertainty(here, &earlier) == Approx(0.03));
  earlier.median = 1 / 1.04;
  CHECK(uncertainty(here, &earlier) == Approx(0.04));
  earlier.samples = kQuickReplays;
  CHECK(uncertainty(here, &earlier) == kWorth);
}

TEST_CASE("Tune.NoiseDoesNotMakeTwoRunsDisagreeBeyondIt", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  constexpr double kNoise = 0.02;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ToyTimer timer(even_cost);
    timer.noise = kNoise;
    timer.seed = seed;
    const TuneSummary summary =
        bench.tuned(timer, tunable, {100}, bench.settings("seed" + std::to_string(seed)));
    // 2 is the best; 3, 3 % behind it, passes it at most by the noise of both.
    CHECK(even_cost(100, summary.shapes[0].chosen) <= even_cost(100, 2) * (1 + 2 * kNoise));
  }
}

TEST_CASE("Tune.AShapeThatDoesNotFitIsLeftOut", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.too_large = {1000};
  ToyTimer timer(even_cost);
  const TuneSummary summary = bench.tuned(timer, tunable, {100, 1000, 10000}, bench.settings());
  CHECK_FALSE(summary.stopped);
  CHECK(summary.shapes[0].complete);
  CHECK_FALSE(summary.shapes[1].complete);
  CHECK(summary.shapes[1].why == "out of memory");
  CHECK(summary.shapes[2].complete);
  CHECK(results_in(bench.settings()).size() == 2);
  CHECK(measurements_in(bench.settings()).measurements.size() == 16);
}

TEST_CASE("Tune.AShapeWithoutARightConfigurationIsNotComplete", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.wrong = {0, 1, 2, 3, 4, 5, 6, 7};
  ToyTimer timer(even_cost);
  const TuneSummary summary = bench.tuned(timer, tunable, {100}, bench.settings());
  CHECK_FALSE(summary.shapes[0].complete);
  CHECK(summary.shapes[0].why == "no configuration runs and is right");
  CHECK(results_in(bench.settings()).empty());
  tunable.wrong = {0};  // the default alone: the others are chosen from without it
  TuneSettings again = bench.settings();
  again.again = true;
  const TuneSummary rest = bench.tuned(timer, tunable, {100}, again);
  CHECK(rest.shapes[0].chosen == 2);
  CHECK(rest.shapes[0].otherwise_ms.samples == 0);
}

TEST_CASE("Tune.ALargeSpaceIsSearchedInPart", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  tunable.of.configurations.clear();
  for (int order = 1; order <= 40; ++order) {
    tunable.of.configurations.push_back(toy({.threads = 32, .order = order}));
    tunable.of.configurations.back().values[1].changes_bits = false;
  }
  ToyTimer timer([](std::int64_t, std::size_t configuration) {
    return 1 + 0.1 * std::abs(static_cast<double>(configuration) - 30);
  });
  TuneSettings settings = bench.settings();
  settings.exhaustive_up_to = 24;
  const TuneSummary summary = bench.tuned(timer, tunable, {100}, settings);
  CHECK(summary.measured == 24);
  CHECK(summary.shapes[0].chosen == 30);
  const auto calls = timer.calls;
  CHECK(bench.tuned(timer, tunable, {100}, settings).reused == 24);
  CHECK(timer.calls == calls);
}

TEST_CASE("Tune.ProgressIsTold", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  TuneSettings settings = bench.settings();
  std::vector<std::string> whats;
  std::size_t most = 0;
  double best_ms = 0, default_ms = 0;
  settings.progress = [&](const TuneProgress& progress) {
    CHECK(progress.op == "toy");
    CHECK(progress.bucket == "rows=128");
    CHECK(progress.candidates == 8);
    if (whats.empty() || whats.back() != progress.what) whats.emplace_back(progress.what);
    most = std::max(most, progress.measured);
    best_ms = progress.best_ms;
    default_ms = progress.default_ms;
  };
  bench.tuned(timer, tunable, {100}, settings);
  CHECK(whats.front() == "compiling");
  CHECK(std::count(whats.begin(), whats.end(), "checking") == 8);
  CHECK(whats.back() == "run-off");
  CHECK(most == 8);
  CHECK(best_ms == Approx(0.1));
  CHECK(default_ms == Approx(0.15));
}

TEST_CASE("Tune.WhatCannotBeTunedIsRefused", "[nvrtc]") {
  Bench bench;
  ToyTunable tunable;
  ToyTimer timer(even_cost);
  const auto code_of = [&](const Rows& rows) {
    const Result<TuneSummary> summary = bench.tune(timer, tunable, rows, bench.settings());
    return summary ? Code::kOk : summary.error().code();
  };
  CHECK(code_of({0}) == Code::kInvalidArgument);
  tunable.refused = {7};
  CHECK(code_of({7}) == Code::kInvalidArgument);
  CHECK(code_of({}) == Code::kOk);
  tunable.otherwise = 8;
  CHECK(code_of({100}) == Code::kInvalidArgument);
  tunable.otherwise = 0;
  Options options = bench.shop.options();
  options.nvrtc_path = bench.shop.path("nowhere.so");
  bench.context.emplace(context_of(options));
  CHECK(code_of({100}) == Code::kUnsupported);
  tunable.of.configurations.clear();
  CHECK(code_of({100}) == Code::kInvalidArgument);
  CHECK(timer.calls.empty());
}

TEST_CASE("Tune.ADeviceIsNeeded", "[nvrtc]") {
  const Bench bench;
  ToyTunable tunable;
  const Result<TuneSummary> summary =
      tune(*bench.context, tunable, shapes_of({100}), bench.settings());
  REQUIRE_FALSE(summary);
  CHECK(summary.error().code() == Code::kUnsupported);
}

}  // namespace
}  // namespace cubinery::test
