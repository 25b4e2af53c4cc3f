// Tuning on a device: the clock, memory and graphs under it, and small operators from their space
// to the choice.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "harness/tunable.h"
#include "results/record_file.h"
#include "tests/cache/temp_dir.h"
#include "tests/gpu/cases.h"
#include "tuner/measure/candidates.h"
#include "tuner/measure/clocks.h"
#include "tuner/measure/device_memory.h"
#include "tuner/measure/timer.h"

namespace cubinery::test {
namespace {

std::shared_ptr<const Device> device() { return gpu().device(); }

// The device, NVRTC and driver of the tests with a cache, and results, of its own.
Context context_in(const std::string& cache_dir) {
  Options options = gpu().options();
  options.cache_dir = cache_dir;
  // Kernels of other tests need not be compiled again.
  options.cache_layers = {gpu().options().cache_dir};
  options.offline = false;
  return Context::create(options).value();
}

std::unique_ptr<Workload> workload_of(Tunable& tunable, const Shape& shape) {
  Result<std::unique_ptr<Workload>> workload = tunable.workload(shape);
  if (!workload) FAIL(workload.error().message());
  return *std::move(workload);
}

TEST_CASE("DeviceMemory.HoldsWhatItIsGiven", "[gpu]") {
  std::vector<std::byte> pattern(300), read(1000);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 7);
  const DeviceMemory memory = DeviceMemory::allocate(device(), read.size()).value();
  memory.fill(pattern).value();
  memory.download(read).value();
  for (std::size_t i = 0; i < read.size(); ++i) REQUIRE(read[i] == pattern[i % pattern.size()]);
  memory.set(0xff).value();
  memory.upload(pattern, 400).value();
  memory.download(read).value();
  CHECK(read[399] == std::byte{0xff});
  CHECK(std::equal(pattern.begin(), pattern.end(), read.begin() + 400));
  CHECK(read[700] == std::byte{0xff});
}

TEST_CASE("DeviceMemory.TooMuchOfItIsAnErrorWithNumbers", "[gpu][big]") {
  const Result<DeviceMemory> memory = DeviceMemory::allocate(device(), std::size_t{1} << 45);
  REQUIRE(!memory);
  CHECK(is_out_of_memory(memory.error()));
  CHECK(memory.error().code() == Code::kDriver);
  CHECK(memory.error().message().find("33554432 MiB asked for") != std::string_view::npos);
  CHECK(memory.error().message().find("MiB free on " + gpu().name()) != std::string_view::npos);
  CHECK(DeviceMemory::allocate(device(), 0).value().data() != nullptr);
}

TEST_CASE("DeviceGraph.AnErrorOfItsBodyIsReturned", "[gpu]") {
  const DeviceStream stream = DeviceStream::create(device()).value();
  const Result<DeviceGraph> graph =
      DeviceGraph::capture(stream, [] { return Status(Code::kInvalidArgument, "no such thing"); });
  REQUIRE(!graph);
  CHECK(graph.error().message() == "no such thing");
  CHECK(DeviceGraph::capture(stream, [] { return Status(); }).value().launch(stream).ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("Timer.RepeatsItselfWithinTheSpread", "[gpu][slow]") {
  const TempDir dir;
  const Context context = context_in(dir.path());
  const std::unique_ptr<Tunable> tunable = make_tunable(context, small_problem()).value();
  const Shape shape{{"batch", 64}};
  const std::size_t configuration = tunable->default_configuration(shape);
  tunable->prepare(configuration).value();
  const std::unique_ptr<Workload> workload = workload_of(*tunable, shape);
  const std::unique_ptr<Timer> timer = make_timer(context).value();
  const Timing first = timer->time(*workload, configuration, 20, kNoLimit).value();
  const Timing second = timer->time(*workload, configuration, 20, 10 * first.median).value();
  CHECK(second.samples == 20);
  const Timing over = timer->time(*workload, configuration, 20, 0.5 * first.median).value();
  CHECK(over.samples == 1);
  CHECK(over.median > 0.5 * first.median);
  const std::vector<Timing> both =
      timer->run_off(*workload, {configuration, configuration}, 40).value();
  CHECK(first.samples == 20);
  CHECK(both[0].samples == 40);
  CHECK(first.median > 0);
  for (const Timing& timing : {first, second, both[0], both[1]}) {
    CHECK(timing.p10 <= timing.median);
    CHECK(timing.median <= timing.p90);
    // The least that clocks drift by.
    const double spread =
        std::max({first.p90 - first.p10, timing.p90 - timing.p10, 0.05 * first.median});
    CHECK(std::abs(timing.median - first.median) <= spread);
  }
  CHECK(timer->usable().ok());
  const Clocks clocks = timer->clocks();
  CHECK((clocks.sm_mhz > 0) == (clocks.memory_mhz > 0));  // NVML may be absent
  CHECK(driver_version(device()->driver()).find('.') != std::string::npos);
}

// A cover of pairs of the tuned fields; with CUBINERY_TEST_FULL whichever is chosen has been here.
void expect_all_right(const Context& context, Tunable& tunable, std::size_t least = 50) {
  const TuningSpace& space = tunable.space();
  const GpuIdentity identity = gpu_identity(context).value();
  TuneCandidates candidates(context, space, identity);
  REQUIRE(space.configurations.size() > least);
  const std::vector<std::size_t> all = cover(space.configurations);
  const Status compiled = candidates.compile(all, 0, [] { return true; });
  if (!compiled.ok()) FAIL(compiled.message());
  for (const std::size_t i : all) {
    INFO(to_text(space.configurations[i].values));
    if (candidates[i].rejection) FAIL_CHECK(candidates[i].rejection->reason);
    const Status prepared = tunable.prepare(i);
    if (!prepared.ok()) FAIL(prepared.message());
    const Result<Check> check = tunable.check(i);
    if (!check) FAIL(check.error().message());
    INFO(check->worst << ": " << check->error << " of " << check->limit);
    CHECK(check->passed());
  }
}

TEST_CASE("Tune.EveryConfigurationOfDecodeIsRight", "[gpu][sanitize][slow]") {
  gdn::DecodeProblem problem = small_problem();
  problem.key_dim = problem.value_dim = 128;
  expect_all_right(gpu().context(), *make_tunable(gpu().context(), problem).value());
}

TEST_CASE("Tune.EveryConfigurationOfANormedDecodeIsRight", "[gpu][sanitize][slow]") {
  gdn::DecodeProblem problem = small_problem();
  problem.key_dim = problem.value_dim = 128;
  problem.output_norm = gdn::OutputNorm::kGatedRms;
  expect_all_right(gpu().context(), *make_tunable(gpu().context(), problem).value());
}

TEST_CASE("Tune.EveryConfigurationOfAConvolvedDecodeIsRight", "[gpu][sanitize][slow]") {
  gdn::DecodeProblem problem = small_problem();
  problem.key_dim = problem.value_dim = 128;
  problem.conv.width = 4;
  expect_all_right(gpu().context(), *make_tunable(gpu().context(), problem).value());
}

TEST_CASE("Tune.EveryConfigurationOfPrefillIsRight", "[gpu][sanitize][slow]") {
  gdn::PrefillProblem problem = small_varlen();
  problem.key_dim = problem.value_dim = 128;
  expect_all_right(gpu().context(), *make_tunable(gpu().context(), problem).value());
}

// Packed sequences of a model's layer, and steps with all that the pass can do.
TEST_CASE("Tune.EveryConfigurationOfAConvolutionIsRight", "[gpu][sanitize][slow]") {
  gdn::ConvProblem packed{.split_qkv = true, .varlen = true};
  packed.states.location = gdn::StateLocation::kPool;
  gdn::ConvProblem steps{.has_bias = true, .split_qkv = true};
  steps.inputs = {.gate_mode = gdn::GateMode::kComputed,
                  .beta_mode = gdn::BetaMode::kLogit,
                  .use_qk_l2norm = true};
  steps.states.location = gdn::StateLocation::kPool;
  steps.states.layout = gdn::ConvStateLayout::kChannels;
  gdn::ConvProblem accepted{
      .states = {.layout = gdn::ConvStateLayout::kChannels}, .varlen = true, .from_accepted = true};
  for (const gdn::ConvProblem& problem : {packed, steps, accepted}) {
    INFO(problem.to_json());
    expect_all_right(gpu().context(), *make_tunable(gpu().context(), problem).value(), 20);
  }
}

// Tunes two shapes on a part of the space; the choices are then those.
void expect_tuned(const Context& context, Tunable& tunable, const std::vector<Shape>& shapes) {
  TuneSettings settings;
  settings.exhaustive_up_to = 8;
  settings.budget = std::chrono::minutes(3);
  Result<TuneSummary> summary = tune(context, tunable, shapes, settings);
  if (!summary) FAIL(summary.error().message());
  CHECK_FALSE(summary->stopped);
  const TuningSpace& space = tunable.space();
  const Measurements all =
      read_measurements(measurements_path(summary->directory, space.op)).value();
  CHECK(all.damaged.empty());
  CHECK(all.settings.size() == shapes.size());
  for (const Measurement& measurement : all.measurements) {
    INFO(to_text(measurement.configuration) << ": " << measurement.reason);
    CHECK(measurement.verdict != Verdict::kWrong);
    CHECK(measurement.verdict != Verdict::kRuntime);
    CHECK(measurement.verdict != Verdict::kCompile);
  }
  for (const TunedShape& shape : summary->shapes) {
    INFO(shape.bucket << ": " << shape.why);
    CHECK(shape.complete);
    CHECK(shape.chosen_ms.median > 0);
    const Choice choice =
        choose(context, space, tunable.features(shape.shape), space.configurations.size());
    CHECK(choice.rung == Rung::kExact);
    CHECK(choice.index == shape.chosen);
  }
  // All of it is known now.
  const TuneSummary again = tune(context, tunable, shapes, settings).value();
  CHECK(again.measured == 0);
  CHECK(again.reused == summary->measured);
}

TEST_CASE("Tune.ADecodeIsTunedAndThenChosen", "[gpu][slow]") {
  const TempDir dir;
  const Context context = context_in(dir.path());
  const std::unique_ptr<Tunable> tunable = make_tunable(context, small_problem()).value();
  expect_tuned(context, *tunable, {{{"batch", 4}}, {{"batch", 256}}});
}

TEST_CASE("Tune.APrefillIsTunedAndThenChosen", "[gpu][slow]") {
  const TempDir dir;
  const Context context = context_in(dir.path());
  const std::unique_ptr<Tunable> tunable = make_tunable(context, small_varlen()).value();
  expect_tuned(context, *tunable,
               {{{"tokens", 256}, {"sequences", 1}}, {{"tokens", 4096}, {"sequences", 16}}});
}

TEST_CASE("Tune.AConvolutionIsTunedAndThenChosen", "[gpu][slow]") {
  const TempDir dir;
  const Context context = context_in(dir.path());
  const std::unique_ptr<Tunable> tunable = make_tunable(context, gdn::ConvProblem{}).value();
  expect_tuned(context, *tunable,
               {{{"tokens", 64}, {"sequences", 64}, {"channels", 1024}},
                {{"tokens", 4096}, {"sequences", 2}, {"channels", 1024}}});
}

TEST_CASE("Tune.AShapeThatTheOperatorDoesNotTakeIsRefused", "[gpu]") {
  const TempDir dir;
  const Context context = context_in(dir.path());
  const std::unique_ptr<Tunable> tunable = make_tunable(context, small_problem()).value();
  const Result<TuneSummary> summary = tune(context, *tunable, {{{"pages", 4}}}, {});
  REQUIRE(!summary);
  CHECK(summary.error().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace cubinery::test
