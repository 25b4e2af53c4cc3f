// GDN prefill and where its states are: pools, indices, padding, 64-bit offsets.
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/far_pool.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::Padding;
using gdn::PadIndex;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

PrefillProblem pool_problem() {
  PrefillProblem problem = small_varlen();
  problem.state_location = StateLocation::kPool;
  return problem;
}

// Nine sequences of any kind; those of no tokens keep their state.
const CaseShape kNine{.lengths = {70, 20, 0, 64, 33, 100, 1, 0, 16}, .lead = 2, .tail = 3};

CaseShape first_of_nine(std::size_t count) {
  CaseShape shape = kNine;
  shape.lengths.resize(count);
  return shape;
}

TEST_CASE("GdnPrefillPool.ReadsAndWritesOneSlot", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      for (const bool varlen : {false, true}) {
        PrefillProblem& problem = problems.emplace_back(pool_problem());
        problem.index_dtype = index_dtype;
        problem.state_layout = layout;
        problem.state_dtype = varlen ? DType::kF32 : DType::kBF16;
        problem.varlen = varlen;
      }
    }
  }
  prewarm(problems);
  for (const PrefillProblem& problem : problems) {
    run_case(problem, problem.varlen ? kNine : uniform(3, 130));
  }
}

TEST_CASE("GdnPrefillPool.WritesOtherSlotsThanItReads", "[gpu][prefill]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    for (const Placement placement : {Placement::kContiguous, Placement::kUnaligned}) {
      PrefillProblem problem = pool_problem();
      problem.index_dtype = index_dtype;
      CaseOptions options;
      options.write_indices = true;
      options.placement = placement;  // unaligned: indices have gaps, too
      run_case(problem, kNine, options);
    }
  }
}

TEST_CASE("GdnPrefillPool.SeveralSequencesReadOneSlot", "[gpu][prefill]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {2, 2, 2, 5};
  options.write = {1, 3, 4, 5};
  run_case(pool_problem(), first_of_nine(4), options);
}

TEST_CASE("GdnPrefillPool.WritesAnotherTensor", "[gpu][prefill]") {
  CaseOptions options;
  options.separate_out = true;
  options.out_slot_gap = 64;
  run_case(small_prefill(), uniform(3, 100), options);
  run_case(small_prefill(), uniform(3, 0), options);
  run_case(small_varlen(), kNine, options);
  run_case(pool_problem(), kNine, options);
  options.write_indices = true;
  run_case(pool_problem(), kNine, options);
  PrefillProblem fresh = pool_problem();
  fresh.has_initial_state = false;
  run_case(fresh, kNine, options);
}

TEST_CASE("GdnPrefillPool.PoolWithoutInitialStateOrStore", "[gpu][prefill]") {
  PrefillProblem fresh = pool_problem();
  fresh.has_initial_state = false;
  run_case(fresh, kNine);
  PrefillProblem read_only = pool_problem();
  read_only.store_state = false;
  run_case(read_only, kNine);
}

TEST_CASE("GdnPrefillPool.LeavesGapsAlone", "[gpu][prefill]") {
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    PrefillProblem problem = pool_problem();
    problem.state_dtype = state_dtype;
    CaseOptions options;
    options.slot_gap = 24;  // whole 16-byte units, but no power of two
    run_case(problem, kNine, options);
    options.head_gap = 8;
    run_case(problem, kNine, options);
  }
}

// The same batch under every policy.  -5 is padding where negative indices are, else no slot; 0
// likewise is padding or a slot; 16 and up are no slots; 2^32 + 3 must not be taken for 3.
TEST_CASE("GdnPrefillPool.EveryPaddingPolicy", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const Padding padding :
       {Padding::kNone, Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const PadIndex pad_index : {PadIndex::kNegative, PadIndex::kZero}) {
      for (const DType index_dtype : {DType::kI32, DType::kI64}) {
        PrefillProblem& problem = problems.emplace_back(pool_problem());
        problem.padding = padding;
        problem.pad_index = pad_index;
        problem.index_dtype = index_dtype;
        if (index_dtype == DType::kI64) problem.checkpoints = Checkpoints::kBefore;
      }
    }
  }
  prewarm(problems);
  for (const PrefillProblem& problem : problems) {
    const std::int64_t huge = problem.index_dtype == DType::kI64
                                  ? (std::int64_t{1} << 32) + 3
                                  : std::numeric_limits<std::int32_t>::max();
    CaseOptions options;
    options.slots = 16;
    options.scratch_slot = problem.padding == Padding::kScratch ? 15 : 0;
    options.read = {5, -1, 7, 0, huge, 9, 16, 2, -5};
    run_case(problem, kNine, options);
    // One padding sequence only: on a scratch slot its values are as certain as any.
    options.read = {5, problem.pad_index == PadIndex::kNegative ? -1 : 0, 7};
    run_case(problem, first_of_nine(3), options);
  }
}

TEST_CASE("GdnPrefillPool.AllSequencesArePadding", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const bool varlen : {false, true}) {
      PrefillProblem& problem = problems.emplace_back(pool_problem());
      problem.padding = padding;
      problem.varlen = varlen;
    }
  }
  prewarm(problems);
  for (const PrefillProblem& problem : problems) {
    CaseOptions options;
    options.slots = 4;
    options.scratch_slot = problem.padding == Padding::kScratch ? 2 : 0;
    options.read.assign(30, -1);
    run_case(problem, uniform(30, 40), options);
  }
}

TEST_CASE("GdnPrefillPool.PaddingWithSeparateWriteIndices", "[gpu][prefill]") {
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    PrefillProblem problem = pool_problem();
    problem.padding = padding;
    CaseOptions options;
    options.slots = 16;
    options.scratch_slot = padding == Padding::kScratch ? 15 : 0;
    options.read = {5, -1, 7};
    options.write = {1, -1, 2};
    run_case(problem, first_of_nine(3), options);
    // Only the write index is padding: the output is computed, the final state dropped (or
    // scratched).
    options.read = {5, 6, -1};
    options.write = {1, -1, -1};
    if (padding != Padding::kScratch) run_case(problem, first_of_nine(3), options);
    options.read = {5, 6};
    options.write = {-1, 6};
    run_case(problem, first_of_nine(2), options);
  }
}

TEST_CASE("GdnPrefillPool.WriteIndexOutsideThePool", "[gpu][prefill]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {1, 2, 3};
  options.write = {1, 8, -1};
  run_case(pool_problem(), uniform(3, 70), options);
}

TEST_CASE("GdnPrefillPool.SlotsBeyond32BitOffsets", "[gpu][prefill][big]") {
  expect_far_pools_work<PrefillProblem>([](const PrefillProblem& problem) {
    return PrefillCase(problem, uniform(4, 70), near_options());
  });
}

}  // namespace
}  // namespace cubinery::test
