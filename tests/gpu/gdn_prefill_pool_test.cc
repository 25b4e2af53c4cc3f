// GDN prefill and where its states are: pools, indices, padding, 64-bit offsets.
#include <cstdint>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/far_pool.h"
#include "tests/gpu/pool_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

PrefillProblem pool_problem() {
  PrefillProblem problem = small_varlen();
  problem.states.location = StateLocation::kPool;
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
        problem.states.index_dtype = index_dtype;
        problem.states.layout = layout;
        problem.states.dtype = varlen ? DType::kF32 : DType::kBF16;
        problem.varlen = varlen;
      }
    }
  }
  for (const PrefillProblem& problem : cover(problems)) {
    run_case(problem, problem.varlen ? kNine : uniform(3, 130));
  }
}

TEST_CASE("GdnPrefillPool.WritesOtherSlotsThanItReads", "[gpu][prefill]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    for (const Placement placement : {Placement::kContiguous, Placement::kUnaligned}) {
      PrefillProblem problem = pool_problem();
      problem.states.index_dtype = index_dtype;
      CaseOptions options;
      options.write_indices = true;
      options.placement = placement;  // unaligned: indices have gaps, too
      run_case(problem, kNine, options);
    }
  }
}
TEST_CASE("GdnPrefillPool.SeveralSequencesReadOneSlot", "[gpu][prefill]") {
  run_shared_slots(pool_problem(), first_of_nine);
}
TEST_CASE("GdnPrefillPool.WritesAnotherTensor", "[gpu][prefill]") {
  CaseOptions options;
  options.separate_out = true;
  options.out_slot_gap = 64;
  run_case(small_prefill(), uniform(3, 100), options);
  run_case(small_prefill(), uniform(3, 0), options);
  run_case(small_varlen(), kNine, options);
  run_other_tensors(pool_problem(), kNine);
}
TEST_CASE("GdnPrefillPool.PoolWithoutInitialStateOrStore", "[gpu][prefill]") {
  run_half_states(pool_problem(), kNine);
}

TEST_CASE("GdnPrefillPool.LeavesGapsAlone", "[gpu][prefill]") {
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    PrefillProblem problem = pool_problem();
    problem.states.dtype = state_dtype;
    CaseOptions options;
    options.slot_gap = 24;  // whole 16-byte units, but no power of two
    run_case(problem, kNine, options);
    options.head_gap = 8;
    run_case(problem, kNine, options);
  }
}
TEST_CASE("GdnPrefillPool.EveryPaddingPolicy", "[gpu][prefill][sanitize]") {
  run_padding_policies(pool_problem(), first_of_nine);
}

TEST_CASE("GdnPrefillPool.AllSequencesArePadding", "[gpu][prefill]") {
  for (const bool varlen : {false, true}) {
    PrefillProblem problem = pool_problem();
    problem.varlen = varlen;
    for (const Padding& padding : every_padding(2)) {
      if (!padding.slot_id) continue;
      CaseOptions options;
      options.slots = 4;
      options.padding = padding;
      options.read.assign(30, *padding.slot_id);
      run_case(problem, uniform(30, 40), options);
    }
  }
}
TEST_CASE("GdnPrefillPool.PaddingWithSeparateWriteIndices", "[gpu][prefill]") {
  run_padded_write_indices(pool_problem(), first_of_nine);
}
// Whatever their slots hold: NaN, too.  In place and elsewhere, of a pool and dense.
TEST_CASE("GdnPrefillPool.SequencesThatStartFromZero", "[gpu][prefill][sanitize]") {
  for (const bool pool : {false, true}) {
    for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
      PrefillProblem problem = pool ? pool_problem() : small_prefill();
      problem.states.dtype = state_dtype;
      problem.checkpoints = pool ? Checkpoints::kBefore : Checkpoints::kNone;
      for (const std::int64_t every : {1, 2, 3}) {
        CaseOptions options;
        options.fresh_every = every;
        if (pool) options.padding = {.slot_id = -1, .zero = true};
        options.padded = 4;
        run_case(problem, pool ? kNine : uniform(3, 100), options);
        options.separate_out = true;
        run_case(problem, pool ? kNine : uniform(3, 100), options);
      }
    }
  }
  PrefillProblem reader = pool_problem();
  reader.states.store = false;
  run_case(reader, kNine, {.seed = seed(), .fresh_every = 2});
}
// One slot is read by a sequence that starts from it and by one that does not.
TEST_CASE("GdnPrefillPool.SequencesThatStartFromZeroShareASlot", "[gpu][prefill]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {2, 2, 2, 5};
  options.write = {1, 3, 4, 5};
  options.fresh_every = 2;
  run_case(pool_problem(), first_of_nine(4), options);
}
TEST_CASE("GdnPrefillPool.WriteIndexOutsideThePool", "[gpu][prefill]") {
  run_outside_the_pool(pool_problem(), uniform(3, 70));
}

TEST_CASE("GdnPrefillPool.SlotsBeyond32BitOffsets", "[gpu][prefill][big]") {
  expect_far_pools_work<PrefillProblem>([](const PrefillProblem& problem) {
    return PrefillCase(problem, uniform(4, 70), near_options());
  });
}

}  // namespace
}  // namespace cubinery::test
