// Plans: which kernels operators launch, on made-up results.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "gdn_commit/fields.h"
#include "gdn_decode/fields.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "results/shape.h"
#include "results/space.h"
#include "tests/catch.h"
#include "tests/runtime/made_up_results.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery::gdn::plan_test {
namespace {

using test::decode_key;
using test::decode_keys;
using test::decode_values;
using test::DecodeKeys;
using test::fake_gpu;
using test::planner_of;
using test::prefill_keys;
using test::prefill_pair;
using test::prefill_values;
using test::PrefillKeys;
using test::PrefillPair;
using test::sm_90;

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

template <class Problem, class Size>
TuningResult made_up(const Problem& problem, const Size& size,
                     const std::vector<TunedValue>& values, const GpuIdentity& gpu) {
  return test::made_up_result(planner_of(problem).space(),
                              features_at(problem, point_of(problem, size)), values, "13.0.88",
                              "t1", gpu);
}

TuningResult decode_result(const DecodeProblem& problem, std::int64_t states,
                           std::vector<TunedValue> values, const GpuIdentity& gpu = fake_gpu()) {
  return test::made_up_result(planner_of(problem).space(), {{"states", states}}, std::move(values),
                              "13.0.88", "t1", gpu);
}
TuningResult prefill_result(const PrefillProblem& problem, const PrefillSize& size,
                            const std::vector<TunedValue>& values,
                            const GpuIdentity& gpu = fake_gpu()) {
  return made_up(problem, size, values, gpu);
}

template <class Problem>
Plan planned(const Problem& problem, const std::vector<TuningResult>& results,
             const GpuIdentity& gpu = fake_gpu(), const std::string& nvrtc = "13.0.88") {
  const auto planner = planner_of(problem, target_of(kArch, gpu));
  Wanted wanted = planner.wanted();
  wanted.gpu = gpu;
  wanted.toolchain = {.nvrtc = nvrtc, .templates = {{"portable", "t1"}, {"hopper", "t1"}}};
  const Ladder ladder(std::move(wanted), results);
  return planner.plan(&ladder);
}

std::vector<TunedValue> default_with(
    const PrefillProblem& problem,
    const std::vector<std::pair<std::string, std::string>>& changes) {
  const PrefillKeys keys = prefill_keys(problem);
  return with(prefill_values(keys.chunks, keys.scans.front()), changes);
}

// What a plan has for so many states, or for a prefill of a size.
Point at(std::int64_t states) { return {states, 1, 1}; }
Point at(const PrefillSize& size) { return point_of(PrefillProblem{}, size); }
template <class Size>
const Choice& chosen(const Plan& plan, const Size& size) {
  return plan.choice(at(size));
}
GdnDecodeKey key(const Plan& plan, std::int64_t states, const DecodeProblem& problem = {}) {
  return decode_key(problem, plan.candidate(at(states)).values()).value();
}
PrefillPair pair(const Plan& plan, const PrefillSize& size, const PrefillProblem& problem) {
  return prefill_pair(problem, plan.candidate(at(size)).values()).value();
}
int chunk_size(const Plan& plan, const PrefillProblem& problem) {
  return prefill_pair(problem, plan.candidates.front()->values()).value().chunks.chunk_size;
}
constexpr std::size_t kDecodeCells = 32;

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
  CHECK(planned(DecodeProblem{}, {}).index(at(std::int64_t{1} << 62)) == kDecodeCells - 1);
}

TEST_CASE("CellsAreTheBucketsOfResults", "[cpu]") {
  const Plan plan = planned(DecodeProblem{}, {});
  for (std::int64_t states = 1; states < 5000; ++states) {
    const std::int64_t power = std::int64_t{1} << plan.index(at(states));
    if (bucket_of({{"states", states}}) != bucket_of({{"states", power}})) FAIL_CHECK(states);
  }
}

TEST_CASE("DecodeSpacesHoldTheirDefaults", "[cpu]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    const DecodeProblem problem{.states = {.layout = layout}};
    const TuningSpace space = planner_of(problem).space();
    CHECK(space.op == "gdn_decode");
    CHECK(space.configurations.size() > 10);
    const DecodeKeys keys = decode_keys(problem);
    for (const GdnDecodeKey& one : {keys.wide, keys.narrow}) {
      CHECK(index_of(space, decode_values(one)) < space.configurations.size());
    }
    for (const Configuration& configuration : space.configurations) {
      const auto found = decode_key(problem, configuration.values);
      REQUIRE(found);
      CHECK(configuration.kernels.at(0).canonical == canonical(*found));
    }
  }
}

TEST_CASE("VerifySpacesHoldBothPaths", "[cpu]") {
  const auto counts = [](const VerifyProblem& problem) {
    const TuningSpace space = planner_of(problem).space();
    CHECK(space.op == "gdn_verify");
    const test::VerifyKeys keys = test::verify_keys(problem);
    for (const GdnVerifyKey& one : keys.steps) {
      CHECK(index_of(space, verify_portable().values_of({one})) < space.configurations.size());
    }
    for (const GdnVerifyWyKey& one : keys.wy) {
      CHECK(index_of(space, verify_wy().values_of({one})) < space.configurations.size());
    }
    std::map<std::string, int> of_kernel;
    for (const Configuration& configuration : space.configurations) {
      REQUIRE(configuration.kernels.size() == 1);
      ++of_kernel[std::string(configuration.kernels.front().kernel)];
    }
    return of_kernel;
  };
  const auto both = counts({});
  CHECK(both.at("gdn_verify") > 10);
  CHECK(both.at("gdn_verify_wy") == 25);  // columns of a warp, held ones, warps of a block
  CHECK(counts({.draft_tokens = 16}) == both);
  CHECK(counts({.dtype = DType::kF32}).size() == 1);
}

TEST_CASE("CommitSpacesHoldTheDefaults", "[cpu]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const CommitProblem problem{.states = {.dtype = dtype}};
    const TuningSpace space = planner_of(problem).space();
    CHECK(space.op == "gdn_commit");
    CHECK(space.configurations.size() == (dtype == DType::kF32 ? 25 : 28));
    for (const GdnCommitKey& one : test::commit_keys(problem)) {
      CHECK(index_of(space, commit_wy().values_of({one})) < space.configurations.size());
    }
  }
}

TEST_CASE("SpacesDoNotDependOnHeadCounts", "[cpu]") {
  CHECK(planner_of(DecodeProblem{}).space().problem ==
        planner_of(DecodeProblem{.heads = {.q = 2, .k = 2, .v = 4}}).space().problem);
  CHECK(planner_of(PrefillProblem{}).space().problem ==
        planner_of(PrefillProblem{.heads = {.v = 64}}).space().problem);
  CHECK(planner_of(VerifyProblem{}).space().problem ==
        planner_of(VerifyProblem{.heads = {.v = 64}}).space().problem);
  CHECK(planner_of(CommitProblem{}).space().problem ==
        planner_of(CommitProblem{.heads = {.v = 64}}).space().problem);
}

TEST_CASE("OutlinesAreFieldsOfTheProblem", "[cpu]") {
  for (const TuningSpace& space :
       {planner_of(DecodeProblem{}).space(), planner_of(PrefillProblem{}).space(),
        planner_of(VerifyProblem{}).space(), planner_of(CommitProblem{}).space()}) {
    const std::string fixed = ";" + space.problem;
    for (const std::string& name : space.outline) {
      INFO(name);
      CHECK(fixed.find(";" + name + "=") != fixed.npos);
    }
    CHECK_FALSE(space.outline.empty());
  }
}

TEST_CASE("PrefillSpacesHaveOneChunkSize", "[cpu]") {
  const PrefillProblem problem{.segments = gdn::Segments::kNever};
  const TuningSpace space = planner_of(problem).space();
  CHECK(space.configurations.size() > 50);
  for (const Configuration& configuration : space.configurations) {
    const auto found = prefill_pair(problem, configuration.values);
    REQUIRE(found);
    CHECK(found->chunks.chunk_size == found->scan.chunk_size);
    CHECK(configuration.kernels.at(0).canonical == canonical(found->chunks));
    CHECK(configuration.kernels.at(1).canonical == canonical(found->scan));
    CHECK(prefill_values(found->chunks, found->scan) == configuration.values);
  }
  const PrefillKeys keys = prefill_keys(problem);
  for (const GdnPrefillScanKey& scan : keys.scans) {
    CHECK(index_of(space, prefill_values(keys.chunks, scan)) < space.configurations.size());
  }
}

TEST_CASE("PrefillFeaturesCountSequencesLengthAndSkew", "[cpu]") {
  const PrefillProblem problem{.heads = {.k = 8}};
  CHECK(features_at(problem, point_of(problem, PrefillSize{.tokens = 1001, .sequences = 4})) ==
        Shape{{"states", 128}, {"length", 251}, {"skew", 1}, {"group", 4}});
  CHECK(features_at(
            problem,
            point_of(problem, PrefillSize{.tokens = 1000, .sequences = 4, .max_seqlen = 300})) ==
        Shape{{"states", 128}, {"length", 250}, {"skew", 2}, {"group", 4}});
  CHECK(features_at(
            problem,
            point_of(problem, PrefillSize{.tokens = -1, .sequences = -1, .max_seqlen = -1})) ==
        Shape{{"states", 32}, {"length", 1}, {"skew", 1}, {"group", 4}});
}

TEST_CASE("ConfigurationsThatAreNotOfTheProblemAreNoKeys", "[cpu]") {
  const DecodeProblem decode;
  CHECK(decode_key(decode, wide_with(decode, {{"warps", "2"}}))->warps == 2);
  CHECK_FALSE(decode_key(decode, wide_with(decode, {{"warp_v", "3"}})));
  CHECK_FALSE(decode_key(decode, wide_with(decode, {{"warps", "two"}})));
  CHECK_FALSE(decode_key(decode, {}));
  const PrefillProblem kept{.checkpoints = Checkpoints::kAfter, .checkpoint_every = 48};
  CHECK(prefill_pair(kept, default_with(kept, {{"chunk_size", "16"}})));
  CHECK_FALSE(prefill_pair(kept, default_with(kept, {{"chunk_size", "32"}})));
  const auto deep = default_with({}, {{"scan.stages", "4"}});
  CHECK(prefill_pair({}, deep));
  CHECK_FALSE(prefill_pair({}, deep, 99 * 1024));
}

TEST_CASE("WithoutResultsTheModelChooses", "[cpu]") {
  const Plan plan = planned(DecodeProblem{}, {});
  CHECK_FALSE(plan.uses_results);
  const DecodeKeys keys = decode_keys({});
  CHECK(canonical(key(plan, 32)) == canonical(keys.narrow));
  CHECK(canonical(key(plan, 1 << 20)) == canonical(keys.wide));
  std::size_t changes = 0;
  REQUIRE(plan.cells.size() == kDecodeCells);
  for (std::size_t i = 1; i < kDecodeCells; ++i) {
    CHECK(plan.choices[plan.cells[i].choice].rung == Rung::kDefault);
    CHECK_FALSE(plan.choices[plan.cells[i].choice].why.empty());
    changes += plan.cells[i].candidate != plan.cells[i - 1].candidate;
  }
  CHECK(changes == 1);
}

TEST_CASE("EachRungAppearsInAPlan", "[cpu]") {
  const DecodeProblem problem;
  const DecodeProblem other_gate{.inputs = {.gate_mode = GateMode::kAlpha}};
  const auto values = wide_with(problem, {{"warps", "2"}});
  const auto rung = [&](const TuningResult& result, std::int64_t states) {
    const Plan plan = planned(problem, {result});
    const Choice& here = chosen(plan, states);
    if (here.rung != Rung::kDefault) {
      CHECK(plan.uses_results);
      CHECK(here.path == "portable");
      CHECK(here.configuration == to_text(values));
      CHECK(key(plan, states).warps == 2);
    }
    return here.rung;
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
  problem.dtype = DType::kF32;  // no wgmma
  problem.heads.v = 16;
  problem.varlen = true;
  // One warp per block is right for one sequence; for eight times as many blocks it is not.
  const PrefillSize one{.tokens = 8192, .sequences = 1};
  const PrefillSize eight{.tokens = 8 * 8192, .sequences = 8};
  const auto narrow = default_with(problem, {{"scan.warps", "1"}});
  const Plan plan = planned(problem, {prefill_result(problem, one, narrow)});
  CHECK(chosen(plan, one).rung == Rung::kExact);
  CHECK(pair(plan, one, problem).scan.warps == 1);
  CHECK(chosen(plan, eight).rung == Rung::kDefault);
  CHECK(pair(plan, eight, problem).scan.warps > 1);
  CHECK(chosen(plan, eight).why.find("slower here") != std::string::npos);
  // A wide block is taken there from a neighbour.
  const auto wide = default_with(problem, {{"scan.warps", "4"}, {"chunks.warps", "4"}});
  const PrefillSize four{.tokens = 4 * 8192, .sequences = 4};
  const Plan near = planned(problem, {prefill_result(problem, four, wide)});
  CHECK(chosen(near, eight).rung == Rung::kNearestShape);
  CHECK(pair(near, eight, problem).scan.warps == 4);
}

TEST_CASE("WithBatchInvariantAllCellsAgreeInBits", "[cpu]") {
  const DecodeProblem problem{.batch_invariant = true};
  // Sixteen lanes along key_dim sum in another order than the default's eight.
  const auto values = wide_with(problem, {{"k_lanes", "16"}, {"warps", "2"}});
  const Plan plan = planned(problem, {decode_result(problem, 64, values)});
  CHECK(chosen(plan, 64).rung == Rung::kExact);
  CHECK(chosen(plan, 1 << 20).rung == Rung::kDefault);
  for (const auto& one : plan.candidates) CHECK(decode_key(problem, one->values())->k_lanes == 16);

  // wgmma takes no f32.
  const PrefillProblem prefill{.dtype = DType::kF32, .varlen = true, .batch_invariant = true};
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  const auto small = default_with(prefill, {{"chunk_size", "16"}});
  const Plan prefill_cells = planned(prefill, {prefill_result(prefill, size, small)});
  CHECK(chosen(prefill_cells, size).rung == Rung::kExact);
  CHECK(chunk_size(prefill_cells, prefill) == 16);
  for (const auto& one : prefill_cells.candidates) {
    CHECK(prefill_pair(prefill, one->values())->chunks.chunk_size == 16);
    CHECK(prefill_pair(prefill, one->values())->scan.chunk_size == 16);
  }
}

// The paths of all sizes of a plan, tiny and huge ones.
std::set<std::string> paths_of(const Plan& plan) {
  std::set<std::string> paths;
  for (const std::int64_t sequences : {1, 4, 1024, 100000}) {
    for (const std::int64_t length : {1, 64, 4096, 1 << 20}) {
      paths.insert(
          chosen(plan, PrefillSize{.tokens = sequences * length, .sequences = sequences}).path);
    }
  }
  return paths;
}

TEST_CASE("BatchInvariantPrefillHasThePathOfTheArchitecture", "[cpu]") {
  struct Expected {
    PrefillProblem problem;
    std::string_view on_hopper, elsewhere;
  };
  const std::vector<Expected> all = {
      {{}, "hopper", "portable"},
      {{.varlen = true}, "hopper", "portable"},
      {{.dtype = DType::kF16, .checkpoints = Checkpoints::kAfter}, "hopper", "portable"},
      {{.segments = Segments::kNever}, "hopper", "portable"},
      {{.varlen = true, .segments = Segments::kAlways}, "hopper_segments", "segments"},
      // What wgmma does not take.
      {{.dtype = DType::kF32}, "portable", "portable"},
      {{.value_dim = 48}, "portable", "portable"}};
  for (const Expected& expected : all) {
    PrefillProblem problem = expected.problem;
    problem.batch_invariant = true;
    INFO(problem.to_json());
    for (const Arch arch :
         {Arch{9, 0, 'a'}, Arch{8, 0, '\0'}, Arch{9, 0, '\0'}, Arch{10, 0, 'a'}}) {
      const auto planner = planner_of(problem, typical_target(arch));
      const Plan plan = planner.plan(nullptr);
      const std::string path(has_wgmma(arch) ? expected.on_hopper : expected.elsewhere);
      CHECK(paths_of(plan) == std::set{path});
      for (const auto& one : plan.candidates) {
        CHECK(bits_of(one->values()) == bits_of(plan.candidates.front()->values()));
      }
      // Tuning measures what is launched, and results for other problems agree on it.
      for (const Configuration& one : planner.space().configurations) {
        CHECK(path_of(one.values) == path);
      }
      if (problem.segments == Segments::kAlways) continue;
      problem.batch_invariant = false;
      CHECK(planner_of(problem, typical_target(arch)).space().agreed_path == path);
      problem.batch_invariant = true;
    }
  }
}

// Whatever was the best for the shapes that were measured.
TEST_CASE("ResultsDoNotChangeThePathOfBatchInvariantPrefill", "[cpu]") {
  const PrefillProblem problem{.varlen = true};
  PrefillProblem invariant = problem;
  invariant.batch_invariant = true;
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  const auto by_hopper = [&](const char* chunk_size) {
    const auto keys = prefill_hopper().default_keys(problem, sm_90());
    return with(prefill_hopper().values_of(keys.front()), {{"chunk_size", chunk_size}});
  };
  TuningResult result = prefill_result(problem, size, default_with(problem, {}));
  const Plan agreed_on_another = planned(invariant, {result});
  CHECK(paths_of(agreed_on_another) == std::set<std::string>{"hopper"});
  CHECK(chosen(agreed_on_another, size).why ==
        "1 result is of configurations that cannot be used here");
  // What they say of the path is taken, for all sizes.
  result.agreed = by_hopper("64");
  result.agreed_ms = result.ms;
  result.agreed_templates = result.templates;
  const Plan agreed = planned(invariant, {result});
  CHECK(chosen(agreed, size).rung == Rung::kExact);
  CHECK(paths_of(agreed) == std::set<std::string>{"hopper"});
  for (const auto& one : agreed.candidates) {
    CHECK(bits_of(one->values()) == bits_of(by_hopper("64")));
  }
}

TEST_CASE("WithoutBatchInvariantEachSizeHasItsFastest", "[cpu]") {
  const DecodeProblem problem;
  const auto few = wide_with(problem, {{"k_lanes", "16"}, {"warps", "2"}});
  const auto many = wide_with(problem, {{"warps", "4"}});
  const Plan plan =
      planned(problem, {decode_result(problem, 64, few), decode_result(problem, 1 << 20, many)});
  CHECK(chosen(plan, 64).rung == Rung::kExact);
  CHECK(key(plan, 64).k_lanes == 16);
  CHECK(chosen(plan, 1 << 20).rung == Rung::kExact);
  CHECK(key(plan, 1 << 20).k_lanes == 8);
  // The same results with what all of them agree on.
  const DecodeProblem invariant{.batch_invariant = true};
  std::vector<TuningResult> results = {decode_result(problem, 64, few),
                                       decode_result(problem, 1 << 20, many)};
  results[0].agreed = wide_with(problem, {{"warps", "2"}});
  results[0].agreed_ms = results[0].ms;
  results[0].agreed_templates = results[0].templates;
  const Plan agreed = planned(invariant, results);
  CHECK(chosen(agreed, 64).rung == Rung::kExact);
  CHECK(key(agreed, 64).warps == 2);
  CHECK(key(agreed, 1 << 20).warps == 4);
  for (const auto& one : agreed.candidates)
    CHECK(decode_key(invariant, one->values())->k_lanes == 8);
}

// With rows along value_dim a vector holds columns, which are summed apart.
TEST_CASE("VectorsOfColumnsDoNotChangeBits", "[cpu]") {
  const DecodeProblem problem{.states = {.layout = StateLayout::kKV}, .batch_invariant = true};
  const DecodeKeys keys = decode_keys(problem);
  const auto narrow = decode_values(keys.narrow);
  const Plan plan = planned(problem, {decode_result(problem, 64, narrow)});
  CHECK(chosen(plan, 64).rung == Rung::kExact);
  CHECK(canonical(key(plan, 1 << 20, problem)) == canonical(keys.wide));
}

TEST_CASE("ResultsThatCannotBeUsedAreLeftOut", "[cpu]") {
  const DecodeProblem problem;
  TuningResult stale = decode_result(problem, 64, wide_with(problem, {{"warps", "99"}}));
  stale.templates = "t0";
  const TuningResult invalid = decode_result(problem, 64, wide_with(problem, {{"warps", "99"}}));
  const Plan plan = planned(problem, {stale, invalid});
  CHECK_FALSE(plan.uses_results);
  CHECK(chosen(plan, 64).why == "2 results are of configurations that cannot be used here");

  const PrefillProblem kept{
      .varlen = true, .checkpoints = Checkpoints::kBefore, .checkpoint_every = 48};
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  const Plan prefill =
      planned(kept, {prefill_result(kept, size, default_with(kept, {{"chunk_size", "32"}}))});
  CHECK_FALSE(prefill.uses_results);
  CHECK(chunk_size(prefill, kept) == 16);
}

TEST_CASE("ResultsOfOtherCodeAreBetterThanTheModel", "[cpu]") {
  const DecodeProblem problem;
  const auto values = wide_with(problem, {{"warps", "2"}});
  TuningResult stale = decode_result(problem, 64, values);
  stale.templates = "t0";
  const Plan plan = planned(problem, {stale});
  CHECK(plan.uses_results);
  CHECK(chosen(plan, 64).rung == Rung::kStale);
  CHECK(key(plan, 64).warps == 2);
  CHECK(chosen(plan, 64).why.ends_with("; stale: the kernels' templates have changed"));
  CHECK(chosen(plan, 1 << 20).rung == Rung::kDefault);
  CHECK(chosen(plan, 1 << 20).why.find("stale") != std::string::npos);
  // Whoever prewarms has it.
  const auto kernels = [&](const std::vector<TuningResult>& results) {
    return planner_of(problem, target_of(kArch, fake_gpu()))
        .kernels({.results = results, .templates = {{"portable", "t1"}}});
  };
  const auto is_it = [&](const KernelSpec& spec) {
    return spec.canonical == canonical(key(plan, 64));
  };
  const std::vector<KernelSpec> with_it = kernels({stale}), without = kernels({});
  CHECK(std::any_of(with_it.begin(), with_it.end(), is_it));
  CHECK(std::none_of(without.begin(), without.end(), is_it));
}

TEST_CASE("CellsThatNoBatchReachesNeedNoKernels", "[cpu]") {
  const DecodeProblem problem{.heads = {.q = 1024, .k = 1024, .v = 1024}};
  const Plan plan =
      planned(problem, {decode_result(problem, 32, wide_with(problem, {{"warps", "2"}}))});
  CHECK_FALSE(plan.uses_results);
  CHECK(plan.candidates.size() == 1);
  CHECK(plan.cell(at(1)).candidate == plan.cell(at(1024)).candidate);
}

TEST_CASE("ALongSequenceAmongShortOnesMayHaveKernelsOfItsOwn", "[cpu]") {
  const PrefillProblem problem{.varlen = true};
  const PrefillSize even{.tokens = 8192, .sequences = 8, .max_seqlen = 1024};
  const PrefillSize skewed{.tokens = 8192, .sequences = 8, .max_seqlen = 8000};
  const auto narrow = default_with(problem, {{"scan.warps", "1"}});
  const auto wide = default_with(problem, {{"scan.warps", "4"}});
  const Plan plan = planned(
      problem, {prefill_result(problem, even, wide), prefill_result(problem, skewed, narrow)});
  CHECK(pair(plan, even, problem).scan.warps == 4);
  CHECK(pair(plan, skewed, problem).scan.warps == 1);
  CHECK(chosen(plan, skewed).rung == Rung::kExact);
  CHECK(pair(plan, {.tokens = 8192, .sequences = 8}, problem).scan.warps == 4);  // not known: even
  // Dense sequences are equally long.
  const PrefillProblem dense;
  const Plan dense_plan = planned(dense, {});
  CHECK(dense_plan.index(at(even)) != dense_plan.index(at(skewed)));
  CHECK(dense_plan.cell(at(even)).candidate == dense_plan.cell(at(skewed)).candidate);
}

TEST_CASE("EverySizeHasACell", "[cpu]") {
  const Plan plan = planned(PrefillProblem{.varlen = true}, {});
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (const std::int64_t tokens : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{7}, kHuge}) {
    for (const std::int64_t sequences :
         {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3}, kHuge}) {
      for (const std::int64_t longest : {std::int64_t{-1}, std::int64_t{0}, kHuge}) {
        CHECK(plan.index(at(PrefillSize{tokens, sequences, longest})) < plan.cells.size());
      }
    }
  }
  for (const Plan::Cell& cell : plan.cells) {
    REQUIRE(cell.candidate < plan.candidates.size());
    REQUIRE(cell.choice < plan.choices.size());
  }
}

// Without a skew more sequences never make narrower blocks.
TEST_CASE("ModelledWidthsGrowWithTheSequences", "[cpu]") {
  for (const std::int64_t length : {64, 1024, 16384}) {
    const PrefillProblem problem{.varlen = true, .segments = gdn::Segments::kNever};
    const Plan plan = planned(problem, {});
    CHECK(pair(plan, {.tokens = length, .sequences = 1}, problem).scan.warps <
          pair(plan, {.tokens = length * 64, .sequences = 64}, problem).scan.warps);
  }
}

std::set<std::string> canonicals(const std::vector<KernelSpec>& specs) {
  std::set<std::string> found;
  for (const KernelSpec& spec : specs) found.insert(spec.canonical);
  CHECK(found.size() == specs.size());
  return found;
}

// Whether prewarming made the kernels of every configuration of a plan.
void check_enough(const std::set<std::string>& enough, const Plan& plan) {
  for (const auto& candidate : plan.candidates) {
    for (const KernelSpec& spec : candidate->kernels()) {
      CHECK(enough.contains(spec.canonical));
    }
  }
}

// What prewarming makes without a GPU is enough for every GPU of the architecture.
TEST_CASE("KernelsAreEnoughForEveryGpuOfTheArchitecture", "[cpu]") {
  const bool invariant = GENERATE(false, true);
  const DecodeProblem decode{.batch_invariant = invariant};
  // wgmma takes no f32.
  const PrefillProblem prefill{.dtype = DType::kF32, .varlen = true, .batch_invariant = invariant};
  const PrefillSize size{.tokens = 4096, .sequences = 4};
  TuningResult other_nvrtc = decode_result(decode, 64, wide_with(decode, {{"warps", "4"}}));
  other_nvrtc.setting.nvrtc = "13.9.9";
  TuningResult other_code =
      decode_result(decode, 1 << 14, wide_with(decode, {{"k_lanes", "16"}, {"warps", "2"}}));
  other_code.templates = "t0";
  const std::vector<TuningResult> decoded = {
      decode_result(decode, 64, wide_with(decode, {{"warps", "2"}})),
      decode_result(decode, 64, wide_with(decode, {{"k_lanes", "16"}}), fake_gpu(66)), other_nvrtc,
      other_code};
  const std::vector<TuningResult> prefilled = {
      prefill_result(prefill, size, default_with(prefill, {{"chunk_size", "16"}}), fake_gpu(20)),
      prefill_result(prefill, size, default_with(prefill, {{"scan.stages", "4"}}))};
  const auto kernels = [](const auto& problem, const char* arch, const auto& results,
                          const char* templates) {
    return canonicals(kernels_for(problem, arch, {results, {{"portable", templates}}}).value());
  };
  const auto decode_kernels = kernels(decode, "sm_90a", decoded, "t1");
  const auto prefill_kernels = kernels(prefill, "sm_90a", prefilled, "t1");
  for (const int sms : {1, 14, 20, 66, 114, 132, 200}) {
    const GpuIdentity gpu = fake_gpu(sms);
    for (const std::string nvrtc : {"13.0.88", "13.9.9", ""}) {
      check_enough(decode_kernels, planned(decode, decoded, gpu, nvrtc));
      check_enough(prefill_kernels, planned(prefill, prefilled, gpu, nvrtc));
    }
  }
  // Stale results are wanted too, of other architectures none.
  const std::vector<TuningResult> none;
  const std::size_t plain = kernels(decode, "sm_90a", none, "t1").size();
  CHECK(kernels(decode, "sm_90a", decoded, "t2").size() > plain);
  CHECK(kernels(decode, "sm_100a", decoded, "t1").size() == plain);
  CHECK(decode_kernels.size() == plain + 4);
}

// What no GPU that is known would launch is not compiled.
TEST_CASE("KernelsThatNoPlanHasAreLeftOut", "[cpu]") {
  const DecodeProblem problem;
  const auto chosen = wide_with(problem, {{"warps", "2"}});
  const auto passed_over = wide_with(problem, {{"warps", "4"}});
  // Of a bucket that this problem's heads never come to: one request has 32 states.
  TuningResult out_of_reach = decode_result(problem, 64, passed_over);
  out_of_reach.setting.features = {{"states", 1}};
  const std::vector<TuningResult> results = {decode_result(problem, 64, chosen), out_of_reach};
  const auto kernels = [&](const std::vector<TuningResult>& known) {
    return canonicals(kernels_for(problem, "sm_90a", {known, {{"portable", "t1"}}}).value());
  };
  const auto canonical_of = [&](const std::vector<TunedValue>& values) {
    return planner_of(problem, target_of(kArch, fake_gpu())).find(values)->kernels()[0].canonical;
  };
  CHECK(kernels(results).contains(canonical_of(chosen)));
  CHECK_FALSE(kernels(results).contains(canonical_of(passed_over)));
  CHECK(kernels({out_of_reach}).size() == kernels({}).size());
}

TEST_CASE("VerifyKernelsAreEnoughForEveryGpuOfTheArchitecture", "[cpu]") {
  const VerifyProblem problem{.draft_tokens = 8, .batch_invariant = GENERATE(false, true)};
  const auto values_of = [](GdnVerifyWyKey key, int warps) {
    key.warps = warps;
    return verify_wy().values_of({key});
  };
  const GdnVerifyWyKey key = test::verify_keys(problem).wy.front();
  const auto result = [&](std::int64_t requests, int warps) {
    return made_up(problem, VerifySize{.requests = requests, .tokens = 4 * requests},
                   values_of(key, warps), fake_gpu());
  };
  const std::vector<TuningResult> results = {result(1, 8), result(64, 2)};
  const auto enough = canonicals(kernels_for(problem, "sm_90a", {results, {{"wy", "t1"}}}).value());
  for (const int sms : {1, 20, 132, 200}) {
    const GpuIdentity gpu = fake_gpu(sms);
    const Target target = target_of(kArch, gpu);
    const auto planner = planner_of(problem, target);
    Wanted wanted = planner.wanted();
    wanted.gpu = gpu;
    wanted.toolchain = {.nvrtc = "13.0.88", .templates = {{"wy", "t1"}}};
    const Ladder ladder(std::move(wanted), results);
    check_enough(enough, planner.plan(&ladder));
    check_enough(enough, planner.plan(nullptr));
  }
}

TEST_CASE("CommitKernelsAreEnoughForEveryGpuOfTheArchitecture", "[cpu]") {
  const CommitProblem problem{.batch_invariant = GENERATE(false, true)};
  GdnCommitKey key = test::commit_keys(problem).front();
  key.warps = 1;
  const std::vector<TuningResult> results = {made_up(
      problem, CommitSize{.layers = 8, .requests = 16}, commit_wy().values_of({key}), fake_gpu())};
  const auto enough = canonicals(kernels_for(problem, "sm_90a", {results, {{"wy", "t1"}}}).value());
  CHECK(enough.contains(canonical(key)));
  for (const int sms : {1, 20, 132, 200}) {
    const GpuIdentity gpu = fake_gpu(sms);
    const Target target = target_of(kArch, gpu);
    const auto planner = planner_of(problem, target);
    Wanted wanted = planner.wanted();
    wanted.gpu = gpu;
    wanted.toolchain = {.nvrtc = "13.0.88", .templates = {{"wy", "t1"}}};
    const Ladder ladder(std::move(wanted), results);
    check_enough(enough, planner.plan(&ladder));
    check_enough(enough, planner.plan(nullptr));
  }
}

TEST_CASE("DefaultKernelsAreTheSameOnEveryGpu", "[cpu]") {
  for (const std::string& name : known_architectures()) {
    const Arch arch = parse_arch(name).value();
    const int limit = max_shared_bytes(arch);
    const PrefillProblem problem{.varlen = true};
    const auto enough = canonicals(kernels_for(problem, name, {}).value());
    for (const int sms : {1, 16, 48, 132, 400}) {
      GpuIdentity gpu = fake_gpu(sms);
      gpu.arch = name;
      const Target target = target_of(arch, gpu);
      const Plan plan = planner_of(problem, target).plan(nullptr, "why");
      check_enough(enough, plan);
      CHECK(chunk_size(plan, problem) == prefill_keys(problem, limit).chunks.chunk_size);
      CHECK(plan.choices.front().why == "why");
    }
  }
}

}  // namespace
}  // namespace cubinery::gdn::plan_test
