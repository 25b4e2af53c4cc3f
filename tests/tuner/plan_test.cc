// Plans: which kernels operators launch, on made-up results.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "gdn_decode/fields.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/decode_plan.h"
#include "runtime/gdn/decode_problem.h"
#include "runtime/gdn/prefill_plan.h"
#include "runtime/gdn/prefill_problem.h"
#include "tests/catch.h"
#include "tests/runtime/made_up_results.h"
#include "tuner/choose/shape.h"

namespace cubinery::gdn {
namespace {

using test::fake_gpu;

const Toolchain kToolchain{.nvrtc = "13.0.88", .templates = "t1"};
constexpr int kLimit = 227 * 1024;  // of sm_90a
constexpr Arch kArch{9, 0, 'a'};

// Values of a problem's space with some replaced: {{"warps", "2"}}.
std::vector<TunedValue> with(std::vector<TunedValue> values,
                             const std::vector<std::pair<std::string, std::string>>& changes) {
  for (const auto& change : changes) {
    for (TunedValue& value : values) {
      if (value.name == change.first) value.value = change.second;
    }
  }
  return values;
}

std::vector<TunedValue> wide_with(const DecodeProblem& problem,
                                  const std::vector<std::pair<std::string, std::string>>& changes) {
  return with(decode_values(decode_keys(problem).wide), changes);
}

TuningResult decode_result(const DecodeProblem& problem, std::int64_t states,
                           std::vector<TunedValue> values, const GpuIdentity& gpu = fake_gpu()) {
  return test::made_up_result(decode_space(problem), {{"states", states}}, std::move(values),
                              kToolchain, gpu);
}

DecodePlan planned(const DecodeProblem& problem, const std::vector<TuningResult>& results,
                   const GpuIdentity& gpu = fake_gpu()) {
  const Answers answers(decode_question(problem, gpu, kToolchain), results);
  return decode_plan(problem, rates_of(kArch, gpu), &answers);
}

TuningResult prefill_result(const PrefillProblem& problem, const PrefillSize& size,
                            std::vector<TunedValue> values, const GpuIdentity& gpu = fake_gpu()) {
  return test::made_up_result(prefill_space(problem, kLimit), prefill_features(problem, size),
                              std::move(values), kToolchain, gpu);
}

PrefillPlan planned(const PrefillProblem& problem, const std::vector<TuningResult>& results,
                    const GpuIdentity& gpu = fake_gpu()) {
  const Answers answers(prefill_question(problem, gpu, kToolchain, kLimit), results);
  return prefill_plan(problem, kLimit, rates_of(kArch, gpu), &answers);
}

std::vector<TunedValue> default_with(
    const PrefillProblem& problem,
    const std::vector<std::pair<std::string, std::string>>& changes) {
  const PrefillKeys keys = prefill_keys(problem, kLimit);
  return with(prefill_values({keys.chunks, keys.scans.front()}), changes);
}

const Chosen& chosen(const PrefillPlan& plan, const PrefillSize& size) {
  return plan.choices[plan.cell(size).chosen];
}

TEST_CASE("CellsLieAtPowersOfTwo", "[cpu]") {
  CHECK(nearest_log2(-5) == 0);
  CHECK(nearest_log2(0) == 0);
  CHECK(nearest_log2(1) == 0);
  CHECK(nearest_log2(2) == 1);
  CHECK(nearest_log2(3) == 2);
  CHECK(nearest_log2(5) == 2);
  CHECK(nearest_log2(6) == 3);
  CHECK(nearest_log2(1448) == 10);
  CHECK(nearest_log2(1449) == 11);
  CHECK(nearest_log2(std::int64_t{1} << 62) == 62);
  CHECK(DecodePlan::index(std::int64_t{1} << 62) == DecodePlan::kCells - 1);
}

TEST_CASE("CellsAreTheBucketsOfResults", "[cpu]") {
  for (std::int64_t states = 1; states < 5000; ++states) {
    const std::int64_t power = std::int64_t{1} << DecodePlan::index(states);
    if (bucket_of({{"states", states}}) != bucket_of({{"states", power}})) FAIL_CHECK(states);
  }
}

TEST_CASE("DecodeSpacesHoldTheirDefaults", "[cpu]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    const DecodeProblem problem{.state_layout = layout};
    const TuningSpace space = decode_space(problem);
    CHECK(space.op == "gdn_decode");
    CHECK(space.configurations.size() > 10);
    const DecodeKeys keys = decode_keys(problem);
    for (const GdnDecodeKey& key : {keys.wide, keys.narrow}) {
      CHECK(index_of(space, decode_values(key)) < space.configurations.size());
    }
    for (const Configuration& configuration : space.configurations) {
      const auto key = decode_key(problem, configuration.values);
      REQUIRE(key);
      CHECK(configuration.kernels.at(0).canonical == canonical(*key));
    }
  }
}

TEST_CASE("SpacesDoNotDependOnHeadCounts", "[cpu]") {
  CHECK(decode_space({}).fixed == decode_space({.q_heads = 2, .k_heads = 2, .v_heads = 4}).fixed);
  CHECK(prefill_space({}, kLimit).fixed == prefill_space({.v_heads = 64}, kLimit).fixed);
}

TEST_CASE("OutlinesAreFixedFields", "[cpu]") {
  for (const TuningSpace& space : {decode_space({}), prefill_space({}, kLimit)}) {
    const std::string fixed = ";" + space.fixed;
    for (const std::string& name : space.outline) {
      INFO(name);
      CHECK(fixed.find(";" + name + "=") != fixed.npos);
    }
    CHECK_FALSE(space.outline.empty());
  }
}

TEST_CASE("PrefillSpacesHaveOneChunkSize", "[cpu]") {
  const PrefillProblem problem;
  const TuningSpace space = prefill_space(problem, kLimit);
  CHECK(space.configurations.size() > 50);
  for (const Configuration& configuration : space.configurations) {
    const auto pair = prefill_pair(problem, configuration.values, kLimit);
    REQUIRE(pair);
    CHECK(pair->chunks.chunk_size == pair->scan.chunk_size);
    CHECK(configuration.kernels.at(0).canonical == canonical(pair->chunks));
    CHECK(configuration.kernels.at(1).canonical == canonical(pair->scan));
    CHECK(prefill_values(*pair) == configuration.values);
  }
  const PrefillKeys keys = prefill_keys(problem, kLimit);
  for (const GdnPrefillScanKey& scan : keys.scans) {
    CHECK(index_of(space, prefill_values({keys.chunks, scan})) < space.configurations.size());
  }
}

TEST_CASE("PrefillFeaturesCountSequencesLengthAndSkew", "[cpu]") {
  const PrefillProblem problem{.k_heads = 8};
  CHECK(prefill_features(problem, {.tokens = 1001, .sequences = 4}) ==
        Shape{{"states", 128}, {"length", 251}, {"skew", 1}, {"group", 4}});
  CHECK(prefill_features(problem, {.tokens = 1000, .sequences = 4, .max_seqlen = 300}) ==
        Shape{{"states", 128}, {"length", 250}, {"skew", 2}, {"group", 4}});
  CHECK(prefill_features(problem, {.tokens = -1, .sequences = -1, .max_seqlen = -1}) ==
        Shape{{"states", 32}, {"length", 1}, {"skew", 1}, {"group", 4}});
}

TEST_CASE("ConfigurationsThatAreNotOfTheProblemAreNoKeys", "[cpu]") {
  const DecodeProblem decode;
  CHECK(decode_key(decode, wide_with(decode, {{"warps", "2"}}))->warps == 2);
  CHECK_FALSE(decode_key(decode, wide_with(decode, {{"warp_v", "3"}})));
  CHECK_FALSE(decode_key(decode, wide_with(decode, {{"warps", "two"}})));
  CHECK_FALSE(decode_key(decode, {}));
  const PrefillProblem kept{.checkpoints = Checkpoints::kAfter, .checkpoint_every = 48};
  CHECK(prefill_pair(kept, default_with(kept, {{"chunk_size", "16"}}), kLimit));
  CHECK_FALSE(prefill_pair(kept, default_with(kept, {{"chunk_size", "32"}}), kLimit));
  const auto deep = default_with({}, {{"scan.stages", "4"}});
  CHECK(prefill_pair({}, deep, kLimit));
  CHECK_FALSE(prefill_pair({}, deep, 99 * 1024));
}

TEST_CASE("WithoutResultsTheModelChooses", "[cpu]") {
  const DecodePlan plan = planned(DecodeProblem{}, {});
  CHECK_FALSE(plan.uses_results);
  const DecodeKeys keys = decode_keys({});
  CHECK(canonical(plan.key(32)) == canonical(keys.narrow));
  CHECK(canonical(plan.key(1 << 20)) == canonical(keys.wide));
  std::size_t changes = 0;
  for (std::size_t i = 1; i < DecodePlan::kCells; ++i) {
    CHECK(plan.cells[i].chosen.rung == Rung::kDefault);
    CHECK_FALSE(plan.cells[i].chosen.why.empty());
    changes += plan.cells[i].key != plan.cells[i - 1].key;
  }
  CHECK(changes == 1);
}

TEST_CASE("EachRungAppearsInAPlan", "[cpu]") {
  const DecodeProblem problem;
  const DecodeProblem other_gate{.gate_mode = GateMode::kAlpha};
  const auto values = wide_with(problem, {{"warps", "2"}});
  const auto rung = [&](const TuningResult& result, std::int64_t states) {
    const DecodePlan plan = planned(problem, {result});
    const DecodePlan::Cell& cell = plan.cell(states);
    if (cell.chosen.rung != Rung::kDefault) {
      CHECK(plan.uses_results);
      CHECK(cell.chosen.configuration == to_text(values));
      CHECK(plan.keys[cell.key].warps == 2);
    }
    return cell.chosen.rung;
  };
  CHECK(rung(decode_result(problem, 256, values), 256) == Rung::kExact);
  CHECK(rung(decode_result(problem, 256, values), 300) == Rung::kExact);
  CHECK(rung(decode_result(problem, 256, values), 512) == Rung::kNearestShape);
  CHECK(rung(decode_result(problem, 256, values), 1 << 20) == Rung::kDefault);
  CHECK(rung(decode_result(other_gate, 256, values), 256) == Rung::kSimilarProblem);
  CHECK(rung(decode_result(problem, 256, values, fake_gpu(66)), 512) == Rung::kSameArch);
}

TEST_CASE("AResultIsNotTakenWhereTheModelKnowsBetter", "[cpu]") {
  PrefillProblem problem;
  problem.v_heads = 16;
  problem.varlen = true;
  // One warp per block is right for one sequence; for eight times as many blocks it is not.
  const PrefillSize one{.tokens = 8192, .sequences = 1};
  const PrefillSize eight{.tokens = 8 * 8192, .sequences = 8};
  const auto narrow = default_with(problem, {{"scan.warps", "1"}});
  const PrefillPlan plan = planned(problem, {prefill_result(problem, one, narrow)});
  CHECK(chosen(plan, one).rung == Rung::kExact);
  CHECK(plan.pair(one).scan.warps == 1);
  CHECK(chosen(plan, eight).rung == Rung::kDefault);
  CHECK(plan.pair(eight).scan.warps > 1);
  CHECK(chosen(plan, eight).why.find("slower here") != std::string::npos);
  // A wide block is taken there from a neighbour.
  const auto wide = default_with(problem, {{"scan.warps", "4"}, {"chunks.warps", "4"}});
  const PrefillSize four{.tokens = 4 * 8192, .sequences = 4};
  const PrefillPlan near = planned(problem, {prefill_result(problem, four, wide)});
  CHECK(chosen(near, eight).rung == Rung::kNearestShape);
  CHECK(near.pair(eight).scan.warps == 4);
}

TEST_CASE("AllCellsAgreeInBits", "[cpu]") {
  const DecodeProblem problem;
  // Sixteen lanes along key_dim sum in another order than the default's eight.
  const auto values = wide_with(problem, {{"k_lanes", "16"}, {"warps", "2"}});
  const DecodePlan plan = planned(problem, {decode_result(problem, 64, values)});
  CHECK(plan.cell(64).chosen.rung == Rung::kExact);
  CHECK(plan.cell(1 << 20).chosen.rung == Rung::kDefault);
  for (const GdnDecodeKey& key : plan.keys) CHECK(key.k_lanes == 16);

  const PrefillProblem prefill{.varlen = true};
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  const auto small = default_with(prefill, {{"chunk_size", "16"}});
  const PrefillPlan prefill_cells = planned(prefill, {prefill_result(prefill, size, small)});
  CHECK(chosen(prefill_cells, size).rung == Rung::kExact);
  CHECK(prefill_cells.chunk_size() == 16);
  for (const auto& key : prefill_cells.chunks) CHECK(key.chunk_size == 16);
  for (const auto& key : prefill_cells.scans) CHECK(key.chunk_size == 16);
}

// With rows along value_dim a vector holds columns, which are summed apart.
TEST_CASE("VectorsOfColumnsDoNotChangeBits", "[cpu]") {
  const DecodeProblem problem{.state_layout = StateLayout::kKV};
  const DecodeKeys keys = decode_keys(problem);
  const auto narrow = decode_values(keys.narrow);
  const DecodePlan plan = planned(problem, {decode_result(problem, 64, narrow)});
  CHECK(plan.cell(64).chosen.rung == Rung::kExact);
  CHECK(canonical(plan.key(1 << 20)) == canonical(keys.wide));
}

TEST_CASE("ResultsThatCannotBeUsedAreLeftOut", "[cpu]") {
  const DecodeProblem problem;
  TuningResult stale = decode_result(problem, 64, wide_with(problem, {{"warps", "2"}}));
  stale.setting.toolchain.templates = "t0";
  const TuningResult invalid = decode_result(problem, 64, wide_with(problem, {{"warps", "99"}}));
  const DecodePlan plan = planned(problem, {stale, invalid});
  CHECK_FALSE(plan.uses_results);
  CHECK(plan.cell(64).chosen.why.find("stale") != std::string::npos);

  const PrefillProblem kept{
      .varlen = true, .checkpoints = Checkpoints::kBefore, .checkpoint_every = 48};
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  const PrefillPlan prefill =
      planned(kept, {prefill_result(kept, size, default_with(kept, {{"chunk_size", "32"}}))});
  CHECK_FALSE(prefill.uses_results);
  CHECK(prefill.chunk_size() == 16);
}

TEST_CASE("CellsThatNoBatchReachesNeedNoKernels", "[cpu]") {
  const DecodeProblem problem{.q_heads = 1024, .k_heads = 1024, .v_heads = 1024};
  const DecodePlan plan =
      planned(problem, {decode_result(problem, 32, wide_with(problem, {{"warps", "2"}}))});
  CHECK_FALSE(plan.uses_results);
  CHECK(plan.keys.size() == 1);
  CHECK(plan.cell(1).key == plan.cell(1024).key);
}

TEST_CASE("ALongSequenceAmongShortOnesMayHaveKernelsOfItsOwn", "[cpu]") {
  const PrefillProblem problem{.varlen = true};
  const PrefillSize even{.tokens = 8192, .sequences = 8, .max_seqlen = 1024};
  const PrefillSize skewed{.tokens = 8192, .sequences = 8, .max_seqlen = 8000};
  const auto narrow = default_with(problem, {{"scan.warps", "1"}});
  const auto wide = default_with(problem, {{"scan.warps", "4"}});
  const PrefillPlan plan = planned(
      problem, {prefill_result(problem, even, wide), prefill_result(problem, skewed, narrow)});
  CHECK(plan.pair(even).scan.warps == 4);
  CHECK(plan.pair(skewed).scan.warps == 1);
  CHECK(chosen(plan, skewed).rung == Rung::kExact);
  CHECK(plan.pair({.tokens = 8192, .sequences = 8}).scan.warps == 4);  // not known: even
  // Dense sequences are equally long.
  const PrefillProblem dense;
  const PrefillPlan dense_plan = planned(dense, {});
  CHECK(dense_plan.index(even) != dense_plan.index(skewed));
  CHECK(dense_plan.cell(even).scan == dense_plan.cell(skewed).scan);
}

TEST_CASE("EverySizeHasACell", "[cpu]") {
  const PrefillPlan plan = planned(PrefillProblem{.varlen = true}, {});
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (const std::int64_t tokens : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{7}, kHuge}) {
    for (const std::int64_t sequences :
         {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3}, kHuge}) {
      for (const std::int64_t longest : {std::int64_t{-1}, std::int64_t{0}, kHuge}) {
        CHECK(PrefillPlan::index({tokens, sequences, longest}) < plan.cells.size());
      }
    }
  }
  for (const PrefillPlan::Cell& cell : plan.cells) {
    REQUIRE(cell.chunks < plan.chunks.size());
    REQUIRE(cell.scan < plan.scans.size());
    REQUIRE(cell.chosen < plan.choices.size());
  }
}

// Without a skew more sequences never make narrower blocks.
TEST_CASE("ModelledWidthsGrowWithTheSequences", "[cpu]") {
  for (const std::int64_t length : {64, 1024, 16384}) {
    const PrefillPlan plan = planned(PrefillProblem{.varlen = true}, {});
    CHECK(plan.pair({.tokens = length, .sequences = 1}).scan.warps <
          plan.pair({.tokens = length * 64, .sequences = 64}).scan.warps);
  }
}

std::set<std::string> canonicals(const std::vector<KernelSpec>& specs) {
  std::set<std::string> found;
  for (const KernelSpec& spec : specs) found.insert(spec.canonical);
  CHECK(found.size() == specs.size());
  return found;
}

// What prewarming makes without a GPU is enough for every GPU of the architecture.
TEST_CASE("KernelsAreEnoughForEveryGpuOfTheArchitecture", "[cpu]") {
  const DecodeProblem decode;
  const PrefillProblem prefill{.varlen = true};
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  TuningResult other_nvrtc = decode_result(decode, 64, wide_with(decode, {{"warps", "4"}}));
  other_nvrtc.setting.toolchain.nvrtc = "13.9.9";
  const std::vector<TuningResult> decoded = {
      decode_result(decode, 64, wide_with(decode, {{"warps", "2"}})),
      decode_result(decode, 64, wide_with(decode, {{"k_lanes", "16"}}), fake_gpu(66)), other_nvrtc};
  const std::vector<TuningResult> prefilled = {
      prefill_result(prefill, size, default_with(prefill, {{"chunk_size", "16"}}), fake_gpu(20)),
      prefill_result(prefill, size, default_with(prefill, {{"scan.stages", "4"}}))};
  const auto decode_kernels = canonicals(kernels(decode, "sm_90a", {decoded, "t1"}).value());
  const auto prefill_kernels = canonicals(kernels(prefill, "sm_90a", {prefilled, "t1"}).value());
  for (const int sms : {1, 14, 20, 66, 114, 132, 200}) {
    const GpuIdentity gpu = fake_gpu(sms);
    for (const std::string nvrtc : {"13.0.88", "13.9.9", ""}) {
      const Toolchain toolchain{nvrtc, "t1"};
      const Answers of_decode(decode_question(decode, gpu, toolchain), decoded);
      for (const auto& key : decode_plan(decode, rates_of(kArch, gpu), &of_decode).keys) {
        CHECK(decode_kernels.contains(canonical(key)));
      }
      const Answers of_prefill(prefill_question(prefill, gpu, toolchain, kLimit), prefilled);
      const PrefillPlan plan = prefill_plan(prefill, kLimit, rates_of(kArch, gpu), &of_prefill);
      for (const auto& key : plan.chunks) CHECK(prefill_kernels.contains(canonical(key)));
      for (const auto& key : plan.scans) CHECK(prefill_kernels.contains(canonical(key)));
    }
  }
  // Of other templates and architectures nothing is wanted.
  const std::size_t plain = kernels(decode, "sm_90a", {{}, "t1"})->size();
  CHECK(kernels(decode, "sm_90a", {decoded, "t2"})->size() == plain);
  CHECK(kernels(decode, "sm_100a", {decoded, "t1"})->size() == plain);
  CHECK(decode_kernels.size() == plain + 3);
}

TEST_CASE("DefaultKernelsAreTheSameOnEveryGpu", "[cpu]") {
  for (const std::string& name : known_architectures()) {
    const Arch arch = parse_arch(name).value();
    const int limit = max_shared_bytes(arch);
    const PrefillProblem problem{.varlen = true};
    const auto enough = canonicals(kernels(problem, name, {{}, "t1"}).value());
    for (const int sms : {1, 16, 48, 132, 400}) {
      GpuIdentity gpu = fake_gpu(sms);
      gpu.arch = name;
      const PrefillPlan plan = prefill_plan(problem, limit, rates_of(arch, gpu), nullptr, "why");
      for (const auto& key : plan.scans) CHECK(enough.contains(canonical(key)));
      CHECK(plan.chunk_size() == prefill_keys(problem, limit).chunks.chunk_size);
      CHECK(plan.choices.front().why == "why");
    }
  }
}

}  // namespace
}  // namespace cubinery::gdn
