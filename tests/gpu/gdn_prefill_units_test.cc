// GDN prefill by the kernel whose blocks go from one sequence and head to another, where there are
// more of them than multiprocessors.
#include <optional>
#include <utility>
#include <vector>

#include "harness/random.h"
#include "tests/gpu/prefill_path.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

PrefillProblem units_problem() {
  PrefillProblem problem = small_varlen();
  problem.key_dim = problem.value_dim = 128;
  problem.heads = {.q = 2, .k = 2, .v = 4};
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

constexpr const char* kUnitsPath = "hopper_fused";

// Sequences of random lengths up to `longest`, some of them without tokens.
CaseShape many(int count, std::int64_t longest) {
  Random random(seed(), 57);
  CaseShape shape{.lead = 3, .tail = 2};
  for (int n = 0; n < count; ++n) shape.lengths.push_back(random.below(longest + 1));
  return shape;
}

void run_units(const PrefillProblem& problem, const CaseShape& shape, CaseOptions options = {}) {
  run_by_path(problem, kUnitsPath, shape, std::move(options));
}

// More sequences than are sorted by length, too.
TEST_CASE("GdnPrefillUnits.ManySequences", "[gpu][prefill]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const bool norms : {false, true}) {
      PrefillProblem problem = units_problem();
      problem.states.layout = layout;
      problem.inputs.use_qk_l2norm = norms;
      for (const auto& [count, longest] :
           std::vector<std::pair<int, std::int64_t>>{{100, 1}, {67, 40}, {100, 200}, {300, 9}}) {
        run_units(problem, many(count, longest));
      }
    }
  }
}

TEST_CASE("GdnPrefillUnits.OneIsLong", "[gpu][prefill]") {
  for (const std::size_t where : {0, 20, 59}) {
    CaseShape shape = many(60, 50);
    shape.lengths[where] = 1100;
    run_units(units_problem(), shape);
  }
}

// Some start from zero, one is padding, and new states go to other slots.
TEST_CASE("GdnPrefillUnits.StatesInAPool", "[gpu][prefill][sanitize]") {
  PrefillProblem problem = units_problem();
  problem.states.location = StateLocation::kPool;
  const CaseShape shape = many(70, 70);
  run_units(problem, shape, {.fresh_every = 3});
  run_units(problem, shape, {.write_indices = true, .fresh_every = 1});
  for (const Padding& padding : {Padding{.slot_id = -1}, Padding{.slot_id = 3}}) {
    run_units(problem, shape, {.padding = padding, .padded = 41});
  }
  problem.states.store = false;
  run_units(problem, shape);
  problem.states.store = true;
  problem.states.has_initial = false;
  run_units(problem, shape);
}

TEST_CASE("GdnPrefillUnits.Checkpoints", "[gpu][prefill][sanitize]") {
  for (const Checkpoints checkpoints : {Checkpoints::kAfter, Checkpoints::kAt}) {
    PrefillProblem problem = units_problem();
    problem.checkpoints = checkpoints;
    problem.checkpoint_every = 32;
    run_units(problem, many(70, 130));
  }
}

// Two blocks to a head, outputs by threads, and gates that the kernel computes.
TEST_CASE("GdnPrefillUnits.OtherDimsAndDtypes", "[gpu][prefill]") {
  PrefillProblem problem = units_problem();
  problem.value_dim = 256;
  problem.output_dtype = DType::kF32;
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.beta_mode = gdn::BetaMode::kLogit;
  run_units(problem, many(50, 70));
  problem.varlen = false;
  run_units(problem, uniform(50, 45));
  problem.value_dim = 128;
  problem.key_dim = 64;
  problem.dtype = DType::kF16;
  problem.states.dtype = DType::kF16;
  run_units(problem, uniform(50, 45));
}

TEST_CASE("GdnPrefillUnits.MalformedCuSeqlens", "[gpu][prefill]") {
  run_malformed(units_problem(), kUnitsPath, many(60, 40), 33);
}

// Without states, which are most of what is moved to and from the device.
TEST_CASE("GdnPrefillUnits.SameBitsInAHundredThousandLaunches", "[gpu][prefill][big][slow]") {
  PrefillProblem problem = units_problem();
  problem.states.has_initial = problem.states.store = false;
  const std::optional<gdn::Prefill> prefill = by_path(problem, kUnitsPath);
  if (prefill) expect_same_bits(problem, *prefill, many(40, 70), 8, 100000);
}

}  // namespace
}  // namespace cubinery::test
