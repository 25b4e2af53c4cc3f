// Prefill with sequences cut into segments: exact, whatever the gates, and the same bits every
// time.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness/data.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillProblem;
using gdn::Segments;
using gdn::StateLocation;

PrefillProblem segments_varlen() {
  PrefillProblem problem = small_varlen();
  problem.segments = Segments::kAlways;
  return problem;
}

// Parts of small problems have 64 tokens.
TEST_CASE("GdnPrefillSegments.LengthsAroundEverySegment", "[gpu][prefill]") {
  for (const std::int64_t length : {63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 640}) {
    PrefillProblem dense = small_prefill();
    dense.segments = Segments::kAlways;
    run_case(dense, uniform(2, length));
    run_case(segments_varlen(), {.lengths = {length, 1, length + 1, 0, 70}, .lead = 65, .tail = 3});
  }
}

TEST_CASE("GdnPrefillSegments.EveryGateDistribution", "[gpu][prefill]") {
  PrefillProblem problem = segments_varlen();
  problem.inputs.use_qk_l2norm = true;
  run_every_gate(problem, {.lengths = {1000, 333}});
}

TEST_CASE("GdnPrefillSegments.CheckpointsInsideSegments", "[gpu][prefill][sanitize]") {
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAfter}) {
    for (const int every : {16, 64, 160}) {
      PrefillProblem problem = segments_varlen();
      problem.checkpoints = checkpoints;
      problem.checkpoint_every = every;
      run_case(problem, {.lengths = {700, 64, 0, 129}});
    }
  }
}

// New states over the initial ones, which other segments may still read.
TEST_CASE("GdnPrefillSegments.StatesInPlace", "[gpu][prefill][sanitize]") {
  PrefillProblem problem = segments_varlen();
  problem.states.location = StateLocation::kPool;
  for (const GateDistribution gates : kGateDistributions) {
    run_case(problem, {.lengths = {900, 70, 400}},
             {.seed = seed(), .gates = gates, .padding = {.slot_id = -1}, .padded = 1});
  }
  for (const std::int64_t every : {1, 2}) {
    for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
      run_case(problem, {.lengths = {900, 70, 400, 300}},
               {.seed = seed(), .gates = gates, .fresh_every = every});
    }
  }
  problem.states.store = false;
  run_case(problem, {.lengths = {900, 70, 400}}, {.seed = seed(), .fresh_every = 2});
  run_case(problem, {.lengths = {900, 70, 400}},
           {.seed = seed(), .padding = {.slot_id = 0}, .padded = 1});
}

// Heads of dense f32 results, one after the other.
std::vector<float> outputs(const PrefillCase& c, const GdnMemory& memory, std::int64_t n) {
  std::vector<float> all;
  for (std::int64_t t = 0; t < c.length(n); ++t) {
    for (std::int64_t h = 0; h < c.problem().heads.count(); ++h) {
      const std::vector<float> row =
          c.row_values(memory, TensorId::kO, n, t, h, c.problem().value_dim);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  return all;
}

// What is forgotten is below fp32's last bit: gates that forget within a chunk.
TEST_CASE("GdnPrefillSegments.WhatIsForgottenChangesNothing", "[gpu][prefill]") {
  PrefillProblem problem = small_prefill();
  problem.dtype = problem.output_dtype = DType::kF32;
  problem.inputs.use_qk_l2norm = true;
  const CaseOptions options{.seed = seed(), .gates = GateDistribution::kExtreme};
  const PrefillCase c(problem, uniform(1, 1000), options);
  problem.segments = Segments::kNever;
  const std::vector<float> whole = outputs(c, run(c, prepare(problem, {c.size(c.args())})), 0);
  problem.segments = Segments::kAlways;
  const std::vector<float> cut = outputs(c, run(c, prepare(problem, {c.size(c.args())})), 0);
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    largest = std::max(largest, std::abs(whole[i]));
    difference = std::max(difference, std::abs(whole[i] - cut[i]));
  }
  CHECK(difference <= 0x1p-23f * largest);
}

// Parts are cut by a sequence's own length alone: of 4096 tokens.
TEST_CASE("GdnPrefillSegments.BatchInvariantBitsDoNotDependOnTheBatch", "[gpu][prefill][slow]") {
  PrefillProblem problem = segments_varlen();
  problem.batch_invariant = true;
  const PrefillCase c(problem, {.lengths = {9000, 100, 4097, 4096}}, {.seed = seed()});
  const gdn::Prefill prefill = prepare(problem);
  const GdnMemory all = run(c, prefill);
  for (std::int64_t n = 0; n < c.sequences(); ++n) {
    CHECK(same_sequence(c, n, all, run(c, prefill, c.args(n, 1))));
  }
}

// More than 32 segments, the states of which are not all carried in one go.
TEST_CASE("GdnPrefillSegments.MoreThan32Segments", "[gpu][prefill][big][slow]") {
  PrefillProblem problem = segments_varlen();
  problem.batch_invariant = true;
  for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
    run_case(problem, {.lengths = {100, 70 * 4096}}, {.seed = seed(), .gates = gates});
  }
}

void run_same_bits(PrefillProblem problem, const CaseShape& shape, int threads, int launches) {
  problem.inputs.use_qk_l2norm = true;
  expect_same_bits(problem, prepare(problem, {size_of(shape)}), shape, threads, launches);
}

TEST_CASE("GdnPrefillSegments.SameBitsEveryTime", "[gpu][prefill]") {
  run_same_bits(segments_varlen(), {.lengths = {1000, 64, 333}}, 2, 500);
}
TEST_CASE("GdnPrefillSegments.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  run_same_bits(segments_varlen(), {.lengths = {1000, 64, 333}}, 8, 100000);
}

// The same in one piece: copies, records and products meet in many ways there too.
TEST_CASE("GdnPrefillVarlen.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  PrefillProblem problem = small_varlen();
  problem.key_dim = problem.value_dim = 128;
  problem.segments = Segments::kNever;
  run_same_bits(problem, {.lengths = {300, 1, 70}}, 8, 100000);
}

// With a decay for each channel, whose WY factors TMA brings as rows.
TEST_CASE("ChannelDecaySegments.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  PrefillProblem problem = with_channels(segments_varlen());
  problem.key_dim = problem.value_dim = 128;
  run_same_bits(problem, {.lengths = {300, 64, 133}}, 8, 100000);
}
TEST_CASE("ChannelDecayPrefill.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  PrefillProblem problem = with_channels(small_varlen());
  problem.key_dim = problem.value_dim = 128;
  problem.segments = Segments::kNever;
  run_same_bits(problem, {.lengths = {300, 1, 70}}, 8, 100000);
}

// In the three launches of a prefill on ranks.
PrefillProblem on_ranks(PrefillProblem problem) {
  problem.key_dim = problem.value_dim = 128;
  problem.context_parallel = true;
  problem.segment_tokens = 128;
  return problem;
}
TEST_CASE("GdnPrefillRanks.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  run_same_bits(on_ranks(small_varlen()), {.lengths = {300, 64, 133}}, 8, 100000);
}
TEST_CASE("ChannelDecayRanks.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  run_same_bits(on_ranks(with_channels(small_varlen())), {.lengths = {300, 64, 133}}, 8, 100000);
}

}  // namespace
}  // namespace cubinery::test
