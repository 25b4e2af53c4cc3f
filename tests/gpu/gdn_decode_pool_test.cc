// GDN decode and where its states are: pools, indices, padding, gaps, 64-bit offsets.
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/far_pool.h"

namespace cubinery::test {
namespace {

using gdn::DecodeProblem;
using gdn::Padding;
using gdn::PadIndex;
using gdn::StateLayout;
using gdn::StateLocation;

DecodeProblem pool_problem() {
  DecodeProblem problem = small_problem();
  problem.state_location = StateLocation::kPool;
  return problem;
}

TEST_CASE("GdnDecodePool.ReadsAndWritesOneSlot", "[gpu]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      for (const DType state_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        DecodeProblem problem = pool_problem();
        problem.index_dtype = index_dtype;
        problem.state_dtype = state_dtype;
        problem.state_layout = layout;
        run_case(problem, 3);
        run_case(problem, 130);
      }
    }
  }
}

TEST_CASE("GdnDecodePool.WritesOtherSlotsThanItReads", "[gpu]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    DecodeProblem problem = pool_problem();
    problem.index_dtype = index_dtype;
    CaseOptions options;
    options.write_indices = true;
    run_case(problem, 5, options);
    run_case(problem, 130, options);
  }
}

TEST_CASE("GdnDecodePool.SeveralRequestsReadOneSlot", "[gpu]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {2, 2, 2, 5};
  options.write = {1, 3, 4, 5};
  run_case(pool_problem(), 4, options);
}

TEST_CASE("GdnDecodePool.WritesAnotherTensor", "[gpu]") {
  CaseOptions options;
  options.separate_out = true;
  options.out_slot_gap = 64;
  run_case(small_problem(), 5, options);
  run_case(pool_problem(), 5, options);
  options.write_indices = true;
  run_case(pool_problem(), 5, options);
  DecodeProblem fresh = pool_problem();
  fresh.has_initial_state = false;
  run_case(fresh, 5, options);
}

TEST_CASE("GdnDecodePool.PoolWithoutInitialStateOrStore", "[gpu]") {
  DecodeProblem fresh = pool_problem();
  fresh.has_initial_state = false;
  run_case(fresh, 5);
  DecodeProblem read_only = pool_problem();
  read_only.store_state = false;
  run_case(read_only, 5);
}

TEST_CASE("GdnDecodePool.LeavesGapsAlone", "[gpu]") {
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    for (const StateLocation location : {StateLocation::kDense, StateLocation::kPool}) {
      for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
        DecodeProblem problem = small_problem();
        problem.state_dtype = state_dtype;
        problem.state_location = location;
        problem.state_layout = layout;
        CaseOptions options;
        options.slot_gap = 24;  // whole 16-byte units, but no power of two
        run_case(problem, 5, options);
        options.head_gap = 8;
        run_case(problem, 5, options);
        run_case(problem, 130, options);
      }
    }
  }
}

// The same batch under every policy.  -5 is padding where negative indices are, else no slot; 0
// likewise is padding or a slot; 16 and up are no slots; 2^32 + 3 must not be taken for 3.
TEST_CASE("GdnDecodePool.EveryPaddingPolicy", "[gpu]") {
  for (const Padding padding :
       {Padding::kNone, Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const PadIndex pad_index : {PadIndex::kNegative, PadIndex::kZero}) {
      for (const DType index_dtype : {DType::kI32, DType::kI64}) {
        DecodeProblem problem = pool_problem();
        problem.padding = padding;
        problem.pad_index = pad_index;
        problem.index_dtype = index_dtype;
        const std::int64_t huge = index_dtype == DType::kI64
                                      ? (std::int64_t{1} << 32) + 3
                                      : std::numeric_limits<std::int32_t>::max();
        CaseOptions options;
        options.slots = 16;
        options.scratch_slot = padding == Padding::kScratch ? 15 : 0;
        options.read = {5, -1, 7, 0, huge, 9, 16, 2, -5};
        run_case(problem, 9, options);
        // One padding row only: on a scratch slot its values are as certain as any.
        options.read = {5, pad_index == PadIndex::kNegative ? -1 : 0, 7};
        run_case(problem, 3, options);
      }
    }
  }
}

TEST_CASE("GdnDecodePool.AllRowsArePadding", "[gpu]") {
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const PadIndex pad_index : {PadIndex::kNegative, PadIndex::kZero}) {
      DecodeProblem problem = pool_problem();
      problem.padding = padding;
      problem.pad_index = pad_index;
      CaseOptions options;
      options.slots = 4;
      options.scratch_slot = padding == Padding::kScratch ? 2 : 0;
      options.read.assign(130, pad_index == PadIndex::kNegative ? -1 : 0);
      run_case(problem, 3, options);
      run_case(problem, 130, options);
    }
  }
}

TEST_CASE("GdnDecodePool.PaddingWithSeparateWriteIndices", "[gpu]") {
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    DecodeProblem problem = pool_problem();
    problem.padding = padding;
    CaseOptions options;
    options.slots = 16;
    options.scratch_slot = padding == Padding::kScratch ? 15 : 0;
    options.read = {5, -1, 7};
    options.write = {1, -1, 2};
    run_case(problem, 3, options);
    // Only the write index is padding: the output is computed, the new state dropped (or
    // scratched).
    options.write = {1, -1, -1};
    options.read = {5, 6, -1};
    if (padding != Padding::kScratch) run_case(problem, 3, options);
    options.read = {5, 6};
    options.write = {-1, 6};
    run_case(problem, 2, options);
  }
}

TEST_CASE("GdnDecodePool.WriteIndexOutsideThePool", "[gpu]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {1, 2, 3};
  options.write = {1, 8, -1};
  run_case(pool_problem(), 3, options);
}

TEST_CASE("GdnDecodePool.SlotsBeyond32BitOffsets", "[gpu][big]") {
  expect_far_pools_work<DecodeProblem>(
      [](const DecodeProblem& problem) { return DecodeCase(problem, 4, near_options()); });
}

}  // namespace
}  // namespace cubinery::test
