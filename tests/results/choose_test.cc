// The ladder, on made-up results.
#include "results/choose.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "results/shape.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

const std::string kFixed = "dtype=bf16;dim=128;gate=log";
const std::string kOtherGate = "dtype=bf16;dim=128;gate=alpha";
const std::string kOtherDim = "dtype=bf16;dim=64;gate=log";

GpuIdentity h200() {
  return {.arch = "sm_90a",
          .capability = "9.0",
          .sm_count = 132,
          .l2_bytes = 60 << 20,
          .shared_bytes_per_sm = 228 << 10,
          .mig = "",
          .name = "NVIDIA H200"};
}

GpuIdentity gpu_of(int sm_count, std::string mig = "") {
  GpuIdentity gpu = h200();
  gpu.sm_count = sm_count;
  gpu.mig = std::move(mig);
  gpu.name = "Other " + std::to_string(sm_count);
  return gpu;
}

std::vector<TunedValue> warps(int count, int lanes = 8) {
  return {{.name = "warps", .value = std::to_string(count)},
          {.name = "lanes", .value = std::to_string(lanes), .changes_bits = true}};
}

TuningResult result_of(std::int64_t states, std::vector<TunedValue> configuration,
                       std::string fixed = kFixed, GpuIdentity gpu = h200()) {
  TuningResult result{};
  result.setting.op = "toy";
  result.setting.problem = std::move(fixed);
  result.setting.features = {{"states", states}};
  result.setting.bucket = bucket_of(result.setting.features);
  result.setting.gpu = std::move(gpu);
  result.setting.nvrtc = "13.0.88";
  result.templates = "t1";
  result.configuration = std::move(configuration);
  result.otherwise = warps(99);
  return result;
}

// With one more feature beside the states.
TuningResult result_at(std::int64_t states, ShapeSize feature, int count) {
  TuningResult result = result_of(states, warps(count));
  result.setting.features.push_back(std::move(feature));
  result.setting.bucket = bucket_of(result.setting.features);
  return result;
}

Wanted wanted() {
  return {.op = "toy",
          .problem = kFixed,
          .outline = {"dtype", "dim"},
          .batch_invariant = true,
          .gpu = h200(),
          .toolchain = {.nvrtc = "13.0.88", .templates = {{"", "t1"}}},
          .usable = {}};
}

// The rung and the number of warps of the result that is taken, or why none is: "exact: 4".
std::string answer(const Ladder& ladder, const Shape& features) {
  const auto found = ladder.nearest(features);
  if (!found) return ladder.why_none();
  return std::string(to_string(found->rung)) + ": " + found->result->configuration.at(0).value;
}
std::string answer(const std::vector<TuningResult>& results, std::int64_t states,
                   const Wanted& asked = wanted()) {
  return answer(Ladder(asked, results), {{"states", states}});
}
std::string why(const std::vector<TuningResult>& results, std::int64_t states,
                const Wanted& asked = wanted()) {
  const Ladder ladder(asked, results);
  const auto found = ladder.nearest({{"states", states}});
  return found ? ladder.why(*found) : "";
}

TEST_CASE("EachRungAnswersWhereTheOnesAboveItAreMissing", "[tuner]") {
  // The worst first: order must not matter between rungs.
  std::vector<TuningResult> results{
      result_of(64, warps(5), kOtherGate, gpu_of(132, "1g.18gb")),
      result_of(64, warps(4), kFixed, gpu_of(132, "1g.18gb")),
      result_of(64, warps(3), kOtherGate),
      result_of(100, warps(2)),
      result_of(64, warps(1)),
  };
  CHECK(answer(results, 64) == "exact: 1");
  CHECK(answer(results, 50) == "exact: 1");  // the same bucket
  results.pop_back();
  CHECK(answer(results, 64) == "nearest shape: 2");
  results.pop_back();
  CHECK(answer(results, 64) == "similar problem: 3");
  results.pop_back();
  CHECK(answer(results, 64) == "same architecture: 4");
  results.pop_back();
  CHECK(answer(results, 64) == "same architecture: 5");
  results.pop_back();
  CHECK(answer(results, 64) == "not measured for this problem on this GPU");
}

TEST_CASE("AResultStandsForItsBucketOnlyWithAsManyHeadsPerKeyHead", "[tuner]") {
  std::vector<TuningResult> results{result_at(64, {"group", 4}, 1)};
  CHECK(answer(Ladder(wanted(), results), {{"states", 48}, {"group", 4}}) == "exact: 1");
  CHECK(answer(Ladder(wanted(), results), {{"states", 48}, {"group", 3}}) == "nearest shape: 1");
  results.push_back(result_at(48, {"group", 3}, 2));
  CHECK(answer(Ladder(wanted(), results), {{"states", 48}, {"group", 3}}) == "exact: 2");
  CHECK(answer(Ladder(wanted(), results), {{"states", 64}, {"group", 4}}) == "exact: 1");
}

TEST_CASE("ResultsOfOtherThingsDoNotAnswer", "[tuner]") {
  TuningResult other_op = result_of(64, warps(1));
  other_op.setting.op = "toys";
  CHECK(answer({other_op}, 64) == "not measured for this problem on this GPU");
  GpuIdentity a100 = gpu_of(108);
  a100.arch = "sm_80";
  CHECK(answer({result_of(64, warps(1), kFixed, a100)}, 64) ==
        "not measured for this problem on this GPU");
  CHECK(answer({result_of(64, warps(1), kOtherDim)}, 64) ==
        "not measured for this problem on this GPU");
  Wanted no_outline = wanted();
  no_outline.outline.clear();
  CHECK(answer({result_of(64, warps(1), kOtherGate)}, 64, no_outline) ==
        "not measured for this problem on this GPU");
  // A field of the outline that neither has, and one whose name only ends alike.
  Wanted odd_outline = wanted();
  odd_outline.outline = {"im"};
  CHECK(answer({result_of(64, warps(1), kOtherGate)}, 64, odd_outline) ==
        "not measured for this problem on this GPU");
  CHECK(answer(Ladder(wanted(), {result_of(64, warps(1))}), {{"rows", 64}}) ==
        "no result within a factor of 8");
}

TEST_CASE("TheGpuIsAllThatMakesItFastButNotItsName", "[tuner]") {
  const auto rung_on = [](const GpuIdentity& gpu) {
    const std::vector<TuningResult> results{result_of(64, warps(1), kFixed, gpu)};
    return answer(results, 64);
  };
  GpuIdentity gpu = h200();
  gpu.name = "H200 by another name";
  CHECK(rung_on(gpu) == "exact: 1");
  gpu = h200();
  gpu.l2_bytes /= 2;
  CHECK(rung_on(gpu) == "same architecture: 1");
  gpu = h200();
  gpu.shared_bytes_per_sm /= 2;
  CHECK(rung_on(gpu) == "same architecture: 1");
  CHECK(rung_on(gpu_of(132, "1g.18gb")) == "same architecture: 1");
}

TEST_CASE("TheNearestShapeCountsUpToAFactorOfEight", "[tuner]") {
  const std::vector<TuningResult> results{result_of(16, warps(1)), result_of(1024, warps(2)),
                                          result_of(4096, warps(3))};
  CHECK(answer(results, 32) == "nearest shape: 1");
  CHECK(answer(results, 100) == "nearest shape: 1");
  CHECK(answer(results, 128) == "nearest shape: 1");  // as far from both: the earlier
  CHECK(answer(results, 129) == "nearest shape: 2");
  CHECK(answer(results, 3000) == "exact: 3");
  CHECK(answer(results, 4096 * 8) == "nearest shape: 3");
  CHECK(answer(results, 4096 * 8 + 1) == "no result within a factor of 8");
  CHECK(answer(results, 2) == "nearest shape: 1");
  CHECK(answer(results, 1) == "no result within a factor of 8");
}

TEST_CASE("ResultsOfSmallerAndOfLargerSizesAreCompared", "[tuner]") {
  CHECK(answer({result_of(1024, warps(1)), result_of(16, warps(2))}, 128) == "nearest shape: 1");
  // 44 is nearer to 48, but 90 is in its bucket.
  CHECK(answer({result_of(44, warps(1)), result_of(90, warps(2))}, 48) == "exact: 2");
  CHECK(answer({result_of(92, warps(1)), result_of(46, warps(2))}, 90) == "exact: 2");
  // So for a similar problem; another GPU's buckets are not ours.
  const auto gate = [](std::int64_t states, int count, GpuIdentity gpu = h200()) {
    return result_of(states, warps(count), kOtherGate, std::move(gpu));
  };
  CHECK(answer({gate(44, 1), gate(90, 2)}, 48) == "similar problem: 2");
  const GpuIdentity other_gpu = gpu_of(132, "1g.18gb");
  CHECK(answer({gate(44, 1, other_gpu), gate(90, 2, other_gpu)}, 48) == "same architecture: 1");
  // As near: that of the problem which differs in fewer fields, wherever it stands.
  const auto two_fields = result_of(60, warps(3), std::string(kOtherGate) + ";norm=true");
  CHECK(answer({two_fields, gate(64, 1)}, 64) == "similar problem: 1");
  CHECK(answer({gate(64, 1), two_fields}, 64) == "similar problem: 1");
  CHECK(answer({gate(30, 1), two_fields}, 64) == "similar problem: 3");
  // What is nearest by its first size may be of another shape.
  TuningResult longer = result_of(60, warps(1));
  longer.setting.features.push_back({"length", 1});
  TuningResult other = result_of(62, warps(2));
  other.setting.features[0].name = "rows";
  const Ladder ladder(wanted(), {longer, other, result_of(256, warps(3)), result_of(8, warps(4))});
  CHECK(answer(ladder, {{"states", 64}}) == "nearest shape: 3");
}

TEST_CASE("ARungWhoseResultsAreTooFarLeavesTheNextOneToAnswer", "[tuner]") {
  const std::vector<TuningResult> results{result_of(16, warps(1)),
                                          result_of(1024, warps(2), kOtherGate)};
  CHECK(answer(results, 128) == "nearest shape: 1");
  CHECK(answer(results, 256) == "similar problem: 2");
}

TEST_CASE("TheUsersResultsComeFirst", "[tuner]") {
  // Both of one bucket; the second is nearer.
  const std::vector<TuningResult> results{result_of(250, warps(1)), result_of(256, warps(2))};
  CHECK(answer(results, 256) == "exact: 1");
  CHECK(answer(results, 600) == "nearest shape: 1");
  CHECK(Ladder(wanted(), results).configurations() ==
        std::vector<std::vector<TunedValue>>{warps(1)});
}

TEST_CASE("AsMuchParallelWorkCountsBeforeAllElse", "[tuner]") {
  // Both are a factor of four away; the second has as many states.
  const std::vector<TuningResult> results{result_at(16, {"length", 32768}, 1),
                                          result_at(32, {"length", 4096}, 2)};
  CHECK(answer(Ladder(wanted(), results), {{"states", 32}, {"length", 16384}}) ==
        "nearest shape: 2");
  CHECK(answer(Ladder(wanted(), results), {{"states", 16}, {"length", 8192}}) ==
        "nearest shape: 1");
}

TEST_CASE("AnotherGpuAnswersForAsMuchWorkPerMultiprocessor", "[tuner]") {
  const std::vector<TuningResult> results{result_of(64, warps(1), kFixed, gpu_of(33)),
                                          result_of(128, warps(2), kFixed, gpu_of(33)),
                                          result_of(256, warps(3), kFixed, gpu_of(33))};
  CHECK(answer(results, 256) == "same architecture: 1");  // four times the multiprocessors
  CHECK(answer(results, 512) == "same architecture: 2");
  CHECK(answer(results, 1024) == "same architecture: 3");
  CHECK(answer(results, 1) == "no result within a factor of 8");
  CHECK(answer(results, 32) == "same architecture: 1");
  CHECK(answer(results, 31) == "no result within a factor of 8");
  CHECK(why(results, 256) == "measured on Other 33 (33 SMs, here 132) for states=64");
}

TEST_CASE("SizesThatAreNotParallelWorkAreNotScaled", "[tuner]") {
  TuningResult result = result_of(64, warps(1), kFixed, gpu_of(33));
  result.setting.features = {{"length", 64}};
  const std::vector<TuningResult> results{result};
  const Ladder ladder(wanted(), results);
  CHECK(answer(ladder, {{"length", 512}}) == "same architecture: 1");
  CHECK(answer(ladder, {{"length", 513}}) == "no result within a factor of 8");
}

TEST_CASE("AbsurdSizesAndGpusDoNotOverflow", "[tuner]") {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK(answer({result_of(kHuge, warps(1), kFixed, gpu_of(33))}, 64) ==
        "no result within a factor of 8");
  CHECK(answer({result_of(64, warps(1), kFixed, gpu_of(0))}, 64) == "same architecture: 1");
  CHECK(answer({result_of(64, warps(1), kFixed, gpu_of(-5))}, 64) == "same architecture: 1");
}

TuningResult of_old_compiler(TuningResult result) {
  result.setting.nvrtc = "12.9.41";
  return result;
}
TuningResult of_old_templates(TuningResult result) {
  result.templates = "t0";
  return result;
}

TEST_CASE("StaleResultsAnswerBelowAllOthersAndAreCounted", "[tuner]") {
  const TuningResult old_compiler = of_old_compiler(result_of(64, warps(1)));
  const TuningResult old_template = of_old_templates(result_of(64, warps(2)));
  std::vector<TuningResult> results{old_template, old_compiler, old_template};
  CHECK(answer(results, 64) == "stale: 2");  // the earlier
  CHECK(answer(results, 1024) ==
        "no result within a factor of 8; 2 results are stale: the kernels' templates have changed; "
        "1 result is stale: measured with NVRTC 12.9.41, here 13.0.88");
  // Any other is better, and where it is too far the stale ones answer.
  results.push_back(result_of(1024, warps(3), kOtherGate, gpu_of(66)));
  CHECK(answer(results, 512) == "same architecture: 3");
  CHECK(answer(results, 64) == "stale: 2");
  results.push_back(result_of(64, warps(4)));
  CHECK(answer(results, 64) == "exact: 4");

  Wanted any_compiler = wanted();
  any_compiler.toolchain.nvrtc.clear();
  CHECK(answer({old_template, old_compiler}, 64, any_compiler) == "exact: 1");
  CHECK(answer({old_template}, 64, any_compiler) == "stale: 2");
}

TEST_CASE("StaleResultsAreRankedAsOthers", "[tuner]") {
  std::vector<TuningResult> results{
      result_of(64, warps(5), kOtherGate, gpu_of(132, "1g.18gb")),
      result_of(64, warps(4), kFixed, gpu_of(132, "1g.18gb")),
      result_of(64, warps(3), kOtherGate),
      result_of(100, warps(2)),
      result_of(64, warps(1)),
  };
  for (TuningResult& result : results) result = of_old_templates(result);
  for (int left = 1; left <= 5; ++left) {
    CHECK(answer(results, 64) == "stale: " + std::to_string(left));
    results.pop_back();
  }
}

// A result of current code is not hidden by one that the user measured before.
TEST_CASE("StaleResultsHideNone", "[tuner]") {
  const std::vector<TuningResult> results{of_old_templates(result_of(64, warps(1))),
                                          result_of(64, warps(2))};
  CHECK(answer(results, 64) == "exact: 2");
  CHECK(Ladder(wanted(), results).configurations() ==
        std::vector<std::vector<TunedValue>>{warps(2)});
}

TEST_CASE("StaleResultsAgreeInBitsWithWhatIsAboveThem", "[tuner]") {
  const TuningResult old = of_old_templates(result_of(64, warps(1, 4)));
  const TuningResult agreeing = of_old_templates(result_of(64, warps(2, 8)));
  CHECK(answer({old, agreeing}, 64) == "stale: 1");
  const std::vector<TuningResult> results{old, agreeing, result_of(1024, warps(3, 8))};
  CHECK(answer(results, 64) == "stale: 2");
  CHECK(Ladder(wanted(), results).configurations() ==
        std::vector<std::vector<TunedValue>>{warps(3, 8), warps(2, 8)});
}

TEST_CASE("ResultsOfPathsThatThereAreNotDoNotAnswer", "[tuner]") {
  TuningResult other_path = result_of(64, warps(1));
  other_path.configuration.insert(other_path.configuration.begin(),
                                  {.name = "path", .value = "gone", .is_text = true});
  CHECK(answer({other_path}, 64) == "1 result is of configurations that cannot be used here");
}

TEST_CASE("ConfigurationsThatCannotBeUsedDoNotAnswer", "[tuner]") {
  Wanted asked = wanted();
  asked.usable = [](const std::vector<TunedValue>& values) { return values[0].value != "1"; };
  const std::vector<TuningResult> results{result_of(64, warps(1)), result_of(128, warps(2))};
  CHECK(answer(results, 64, asked) == "nearest shape: 2");
  CHECK(answer({results[0]}, 64, asked) ==
        "1 result is of configurations that cannot be used here");
}

TEST_CASE("AnswersAgreeInTheFieldsThatChangeBits", "[tuner]") {
  const std::vector<TuningResult> results{
      result_of(64, warps(1, 4), kOtherGate),  // a lower rung: does not decide
      result_of(64, warps(2, 8)),
      result_of(1024, warps(3, 4)),
      result_of(1024, warps(4, 8), kOtherGate),
  };
  const Ladder ladder(wanted(), results);
  CHECK(answer(ladder, {{"states", 64}}) == "exact: 2");
  CHECK(answer(ladder, {{"states", 256}}) == "nearest shape: 2");
  CHECK(answer(ladder, {{"states", 1024}}) == "similar problem: 4");
  CHECK(ladder.configurations() == std::vector<std::vector<TunedValue>>{warps(2, 8), warps(4, 8)});
  CHECK(answer(ladder, {{"states", 1 << 20}}) ==
        "no result within a factor of 8; 2 results are left out: their outputs differ in bits from "
        "those with lanes=8");
}

// A user's result with other bits must not hide the library's for the same shape.
TEST_CASE("LeftOutResultsHideNone", "[tuner]") {
  const std::vector<TuningResult> results{result_of(64, warps(1, 8)), result_of(1024, warps(2, 4)),
                                          result_of(1024, warps(3, 8))};
  CHECK(answer(results, 1024) == "exact: 3");
}

TEST_CASE("AnAnswerSaysWhichMeasurementDecided", "[tuner]") {
  TuningResult faster = result_of(256, warps(1));
  faster.ms.median = 0.1421;
  faster.otherwise_ms.median = 0.1467;
  CHECK(why({faster}, 256) ==
        "measured on NVIDIA H200 for states=256: 3.1 % faster than the default (142.1 against "
        "146.7 us)");
  Wanted any_compiler = wanted();
  any_compiler.toolchain.nvrtc.clear();
  CHECK(why({of_old_compiler(faster)}, 256, any_compiler) ==
        "measured on NVIDIA H200 with NVRTC 12.9.41 for states=256: 3.1 % faster than the default "
        "(142.1 against 146.7 us)");
  CHECK(why({faster, result_of(4096, warps(2))}, 512) ==
        "measured on NVIDIA H200 for states=256: 3.1 % faster than the default (142.1 against "
        "146.7 us); the nearest of 2 measured shapes");
  TuningResult usual = faster;
  usual.otherwise = usual.configuration;
  CHECK(why({usual}, 256) ==
        "measured on NVIDIA H200 for states=256: the default is the fastest (142.1 us)");
  TuningResult similar = result_of(256, warps(1), kOtherGate);
  CHECK(
      why({similar}, 400) ==
      "measured on NVIDIA H200 for states=256 of a similar problem (gate=alpha); the nearest of 1 "
      "measured shape");
  CHECK(why({of_old_templates(similar)}, 256) ==
        "measured on NVIDIA H200 for states=256 of a similar problem (gate=alpha); stale: the "
        "kernels' templates have changed");
  CHECK(why({of_old_compiler(result_of(64, warps(1), kFixed, gpu_of(33)))}, 256) ==
        "measured on Other 33 (33 SMs, here 132) for states=64; stale: measured with NVRTC "
        "12.9.41, here "
        "13.0.88");
}

}  // namespace
}  // namespace cubinery
