// tune() of kernels that are given as text, and choose() in contexts that did not tune.
#include <string>
#include <vector>

#include "tests/data/fake_driver.h"
#include "tests/tuner/toy_bench.h"

namespace cubinery::test {
namespace {

constexpr const char* kText = R"(#include "factor.h"
__global__ void __launch_bounds__(BLOCK) scale(Type* x) {
  float kept[BULK];
#pragma unroll
  for (int i = 0; i < BULK; ++i) kept[i] = x[i * BLOCK + threadIdx.x];
#pragma unroll
  for (int i = 0; i < BULK; ++i) x[i * BLOCK + threadIdx.x + 1] = kept[BULK - 1 - i] * kFactor;
}
)";
const std::vector<SourceChoice> kChoices{{"BLOCK", {"64", "128", "-1"}},
                                         {"Type", {"float", "int"}}};

// A text, a header of it, and a device that is not there.
struct SourceBench {
  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  Workshop shop;
  KernelSource source{.name = "scale",
                      .source = kText,
                      .includes = {shop.path("include")},
                      .options = {"-DBULK=2"}};

  SourceBench() { write_header("constexpr float kFactor = 2;\n"); }

  void write_header(const std::string& text) const {
    std::filesystem::create_directories(shop.path("include"));
    write_bytes(shop.path("include/factor.h"), text);
  }
  Context context(bool offline = false) {
    Options options = shop.options();
    options.device = 0;
    options.driver_path = CUBINERY_FAKE_DRIVER;
    options.offline = offline;
    return context_of(options);
  }
  TuneSummary tuned(ToyTunable& tunable, const std::vector<double>& costs) {
    const Context here = context();
    const GpuIdentity gpu = gpu_identity(here).value();
    ToyTimer timer([&](std::int64_t, std::size_t configuration) { return costs[configuration]; });
    Result<TuneSummary> summary = tune_with(here, gpu, "580", timer, tunable, shapes_of({100}), {});
    if (!summary) FAIL(summary.error().message());
    return *std::move(summary);
  }
  Choice chosen(const TuningSpace& space) {
    return choose(context(true), space, {{"rows", 90}}, 0);
  }
};

TEST_CASE("TuneSource.TheSpaceIsEveryCombination", "[cpu]") {
  const KernelSource source{
      .name = "ns::scale<float, 4>", .source = kText, .options = {"-DBULK=2", "--use_fast_math"}};
  const TuningSpace space = tuning_space(source, kChoices);
  CHECK(space.op == "scale");
  CHECK(space.problem == "name=ns::scale<float, 4>;options=-DBULK=2 --use_fast_math");
  REQUIRE(space.configurations.size() == 6);
  CHECK(to_text(space.configurations[0].values) == "BLOCK=64;Type=float");
  CHECK(to_text(space.configurations[5].values) == "BLOCK=-1;Type=int");
  CHECK_FALSE(space.configurations[5].values[0].is_text);
  CHECK(space.configurations[5].values[1].is_text);
  CHECK(space.configurations[3].sources.at(0).options ==
        std::vector<std::string>{"-DBULK=2", "--use_fast_math", "-DBLOCK=128", "-DType=int"});
  const auto is_int = [](const auto& values) { return values[1].value == "int"; };
  CHECK(tuning_space(source, kChoices, is_int).configurations.size() == 3);
}

TEST_CASE("TuneSource.ASpaceThatCannotBeSaysWhy", "[cpu]") {
  const KernelSource source{.name = "scale", .source = kText};
  const auto why = [&](const std::vector<SourceChoice>& choices) {
    const TuningSpace space = tuning_space(source, choices);
    CHECK(space.configurations.empty());
    return space.why_empty;
  };
  CHECK(why({}) == "there are no choices");
  CHECK(why({{"BLOCK", {}}}) == "choice BLOCK has no values");
  CHECK(why({{"A B", {"1"}}}) == "choice \"A B\"; accepted: the name of a macro");
  CHECK(why({{"2A", {"1"}}}) == "choice \"2A\"; accepted: the name of a macro");
  CHECK(why({{"A", {"1"}}, {"A", {"2"}}}) == "the choice A is there twice");
  const TuningSpace none = tuning_space(source, kChoices, [](const auto&) { return false; });
  CHECK(none.why_empty == "no combination of the choices is valid");
  CHECK(tuning_space({.source = kText}, kChoices).why_empty ==
        "the text has no name, which results are kept under");
  CHECK(
      contains(tuning_space({.name = "no name", .source = kText}, kChoices).why_empty, "no name"));
}

TEST_CASE("TuneSource.TheBestIsFoundByOtherProcesses", "[nvrtc]") {
  SourceBench bench;
  ToyTunable tunable;
  tunable.of = tuning_space(bench.source, kChoices);
  CHECK(bench.chosen(tunable.of).rung == Rung::kDefault);
  const TuneSummary summary = bench.tuned(tunable, {3, 3, 2, 1, 0, 0});
  REQUIRE(summary.shapes.at(0).complete);
  CHECK(summary.shapes[0].chosen == 3);
  CHECK(summary.rejected == 2);  // blocks of -1 threads do not compile
  const Choice choice = bench.chosen(tuning_space(bench.source, kChoices));
  CHECK(choice.rung == Rung::kNearestShape);
  CHECK(choice.configuration == "BLOCK=128;Type=int");
  CHECK(choice.index == 3);
  // What was compiled is there, offline.
  CHECK(bench.context(true).compile(tunable.of.configurations[3].sources[0]).has_value());
  // Other options are another problem.
  KernelSource other = bench.source;
  other.options = {"-DBULK=3"};
  CHECK(bench.chosen(tuning_space(other, kChoices)).rung == Rung::kDefault);
}

TEST_CASE("TuneSource.AnEditMakesResultsStale", "[nvrtc]") {
  SourceBench bench;
  ToyTunable tunable;
  tunable.of = tuning_space(bench.source, kChoices);
  bench.tuned(tunable, {3, 3, 2, 1, 0, 0});
  CHECK(bench.tuned(tunable, {3, 3, 2, 1, 0, 0}).measured == 0);
  SECTION("of a header") { bench.write_header("constexpr float kFactor = 3;\n"); }
  SECTION("of the text") {
    bench.source.source += "// edited\n";
    tunable.of = tuning_space(bench.source, kChoices);
  }
  const Choice choice = bench.chosen(tunable.of);
  CHECK(choice.rung == Rung::kStale);
  CHECK(choice.index == 3);
  CHECK(bench.tuned(tunable, {1, 3, 2, 3, 0, 0}).measured == 6);
  CHECK(bench.chosen(tunable.of).rung == Rung::kNearestShape);
  CHECK(bench.chosen(tunable.of).index == 0);
}

TEST_CASE("TuneSource.ATextSaysWhetherItMaySpill", "[nvrtc]") {
  SourceBench bench;
  bench.source.options = {"-DBULK=400"};  // more than there are registers
  ToyTunable tunable;
  const std::vector<SourceChoice> choices{{"BLOCK", {"64", "128"}}, {"Type", {"float"}}};
  tunable.of = tuning_space(bench.source, choices);
  CHECK(bench.tuned(tunable, {2, 1}).rejected == 0);
  bench.source.allow_spills = false;
  tunable.of = tuning_space(bench.source, choices);
  const TuneSummary summary = bench.tuned(tunable, {2, 1});
  CHECK(summary.rejected == 2);
  CHECK(summary.shapes.at(0).why == "no configuration runs and is right");
}

// What the tunable itself cannot do is no configuration's fault.
TEST_CASE("TuneSource.ATunableMayEndTheCall", "[nvrtc]") {
  struct Ending : ToyTunable {
    Result<Check> check(std::size_t configuration) override {
      if (configuration == 1) return Status(Code::kIo, "no reference");
      return ToyTunable::check(configuration);
    }
  };
  const Bench bench;
  Ending tunable;
  ToyTimer timer(even_cost);
  const TuneSettings settings = bench.settings();
  const Result<TuneSummary> summary = bench.tune(timer, tunable, {100}, settings);
  REQUIRE_FALSE(summary);
  CHECK(summary.error().message() == "no reference");
  const Measurements all = measurements_in(settings);
  REQUIRE(all.measurements.size() == 1);
  CHECK(all.measurements[0].verdict == Verdict::kCorrect);
  // The call that is made again goes on behind it.
  ToyTunable whole;
  CHECK(bench.tuned(timer, whole, {100}, settings).measured == 7);
}

}  // namespace
}  // namespace cubinery::test
