// GDN prefill of cut sequences by the kernel that makes its WY factors itself, and whose blocks go
// from one unit to another by tickets.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "harness/data.h"
#include "tests/gpu/prefill_path.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

constexpr const char* kFusedSegmentsPath = "hopper_fused_segments";

PrefillProblem fused_segments() {
  PrefillProblem problem = small_varlen();
  problem.key_dim = problem.value_dim = 128;
  problem.heads = {.q = 2, .k = 2, .v = 4};
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

void run_fused(const PrefillProblem& problem, const CaseShape& shape, CaseOptions options = {}) {
  run_by_path(problem, kFusedSegmentsPath, shape, std::move(options));
}

// Gates that forget, and such that states are carried; norms decide how bounds are found.
TEST_CASE("GdnPrefillFusedSegments.EveryGateDistribution", "[gpu][prefill]") {
  PrefillProblem problem = fused_segments();
  for (const bool norms : {true, false}) {
    problem.inputs.use_qk_l2norm = norms;
    for (const GateDistribution gates : kGateDistributions) {
      run_fused(problem, {.lengths = {3000, 100, 0, 1333}, .lead = 3, .tail = 2}, {.gates = gates});
    }
  }
}

// Segments of small problems have 64 tokens.
TEST_CASE("GdnPrefillFusedSegments.LengthsAroundEverySegment", "[gpu][prefill]") {
  for (const std::int64_t length : {1, 63, 64, 65, 127, 128, 129, 191, 193, 640}) {
    PrefillProblem problem = fused_segments();
    run_fused(problem, {.lengths = {length, 1, length + 1, 0, 70}, .lead = 65, .tail = 3},
              {.gates = GateDistribution::kUndecayed});
    problem.varlen = false;
    run_fused(problem, uniform(2, length));
  }
}

// More units than blocks, so that each takes several, and chains that some of them end with.
TEST_CASE("GdnPrefillFusedSegments.MoreUnitsThanBlocks", "[gpu][prefill]") {
  PrefillProblem problem = fused_segments();
  problem.heads = {.q = 8, .k = 8, .v = 32};
  for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
    run_fused(problem, {.lengths = {4000, 70, 3000, 1}}, {.gates = gates});
  }
}

// New states over the initial ones, which other units may still read; some sequences start from
// zero, and one is padding.
TEST_CASE("GdnPrefillFusedSegments.StatesInPlace", "[gpu][prefill][sanitize]") {
  PrefillProblem problem = fused_segments();
  problem.states.location = StateLocation::kPool;
  const CaseShape shape{.lengths = {900, 70, 700, 0}};
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    problem.states.layout = layout;
    for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
      for (const std::int64_t padded : {0, 2}) {
        run_fused(problem, shape, {.gates = gates, .padding = {.slot_id = -1}, .padded = padded});
      }
      run_fused(problem, shape, {.gates = gates, .fresh_every = 2});
    }
  }
  problem.states.store = false;
  run_fused(problem, shape);
  problem.states.store = true;
  problem.states.has_initial = false;
  run_fused(problem, shape);
}

TEST_CASE("GdnPrefillFusedSegments.CheckpointsAtOffsets", "[gpu][prefill][sanitize]") {
  PrefillProblem problem = fused_segments();
  problem.checkpoints = Checkpoints::kAt;
  problem.checkpoint_every = 32;
  run_fused(problem, {.lengths = {1000, 64, 0, 129}});
}

// Outputs by threads, two blocks to a head, and gates that the kernels compute.
TEST_CASE("GdnPrefillFusedSegments.OtherDimsAndDtypes", "[gpu][prefill]") {
  PrefillProblem problem = fused_segments();
  const CaseShape shape{.lengths = {1500, 333}};
  problem.value_dim = 256;
  problem.output_dtype = DType::kF32;
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.beta_mode = gdn::BetaMode::kDoubledLogit;
  run_fused(problem, shape);
  problem.value_dim = 128;
  problem.dtype = DType::kF16;
  problem.states.dtype = DType::kF16;
  problem.inputs.use_qk_l2norm = false;
  for (const double rho : {0.0, 0.99}) run_fused(problem, shape, {.key_correlation = rho});
  problem.inputs.gate_mode = gdn::GateMode::kNone;
  problem.inputs.beta_mode = gdn::BetaMode::kOne;
  run_fused(problem, shape);
}

TEST_CASE("GdnPrefillFusedSegments.MalformedCuSeqlens", "[gpu][prefill]") {
  run_malformed(fused_segments(), kFusedSegmentsPath, {.lengths = {900, 70, 400}}, 2);
}

void run_same_fused_bits(int threads, int launches) {
  PrefillProblem problem = fused_segments();
  const std::optional<gdn::Prefill> prefill = by_path(problem, kFusedSegmentsPath);
  if (prefill) expect_same_bits(problem, *prefill, {.lengths = {700, 64, 333}}, threads, launches);
}
TEST_CASE("GdnPrefillFusedSegments.SameBitsEveryTime", "[gpu][prefill]") {
  run_same_fused_bits(2, 500);
}
TEST_CASE("GdnPrefillFusedSegments.SameBitsInAHundredThousandLaunches",
          "[gpu][prefill][big][slow]") {
  run_same_fused_bits(8, 100000);
}

}  // namespace
}  // namespace cubinery::test
