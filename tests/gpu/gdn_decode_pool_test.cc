// GDN decode and where its states are: pools, indices, padding, gaps, 64-bit offsets.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/decode_sweeps.h"
#include "tests/gpu/far_pool.h"
#include "tests/gpu/pool_sweeps.h"

namespace cubinery::test::gdn_decode_pool_test {
namespace {

using gdn::DecodeProblem;
using gdn::StateLayout;
using gdn::StateLocation;

DecodeProblem pool_problem() {
  DecodeProblem problem = small_problem();
  problem.states.location = StateLocation::kPool;
  return problem;
}

std::int64_t first(std::int64_t requests) { return requests; }

TEST_CASE("GdnDecodePool.ReadsAndWritesOneSlot", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      for (const DType state_dtype : decode_state_dtypes()) {
        DecodeProblem& problem = problems.emplace_back(pool_problem());
        problem.states.index_dtype = index_dtype;
        problem.states.dtype = state_dtype;
        problem.states.layout = layout;
      }
    }
  }
  run_batches(problems, {3, 130});
}

TEST_CASE("GdnDecodePool.WritesOtherSlotsThanItReads", "[gpu]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    DecodeProblem problem = pool_problem();
    problem.states.index_dtype = index_dtype;
    CaseOptions options;
    options.write_indices = true;
    run_case(problem, 5, options);
    run_case(problem, 130, options);
  }
}
TEST_CASE("GdnDecodePool.SeveralRequestsReadOneSlot", "[gpu]") {
  run_shared_slots(pool_problem(), first);
}
TEST_CASE("GdnDecodePool.WritesAnotherTensor", "[gpu]") {
  CaseOptions options;
  options.separate_out = true;
  options.out_slot_gap = 64;
  run_case(small_problem(), 5, options);
  run_other_tensors(pool_problem(), 5);
}
TEST_CASE("GdnDecodePool.PoolWithoutInitialStateOrStore", "[gpu]") {
  run_half_states(pool_problem(), 5);
}

TEST_CASE("GdnDecodePool.LeavesGapsAlone", "[gpu]") {
  for (const DType state_dtype : decode_state_dtypes()) {
    const int unit = 16 / size_of(state_dtype);
    std::vector<DecodeProblem> problems;
    for (const StateLocation location : {StateLocation::kDense, StateLocation::kPool}) {
      for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
        DecodeProblem& problem = problems.emplace_back(small_problem());
        problem.states.dtype = state_dtype;
        problem.states.location = location;
        problem.states.layout = layout;
      }
    }
    CaseOptions options;
    options.slot_gap = 3 * std::max(unit, 8);  // whole 16-byte units, but no power of two
    run_batches(problems, {5, 130}, options);
    options.head_gap = std::max(unit, 8);
    run_batches(problems, {5, 130}, options);
  }
}
TEST_CASE("GdnDecodePool.EveryPaddingPolicy", "[gpu][sanitize]") {
  run_padding_policies(pool_problem(), first);
}

TEST_CASE("GdnDecodePool.AllRowsArePadding", "[gpu]") {
  for (const Padding& padding : every_padding(2)) {
    if (!padding.slot_id) continue;
    CaseOptions options;
    options.slots = 4;
    options.padding = padding;
    options.read.assign(130, *padding.slot_id);
    run_case(pool_problem(), 3, options);
    run_case(pool_problem(), 130, options);
  }
}
TEST_CASE("GdnDecodePool.PaddingWithSeparateWriteIndices", "[gpu][sanitize]") {
  run_padded_write_indices(pool_problem(), first);
}
TEST_CASE("GdnDecodePool.WriteIndexOutsideThePool", "[gpu]") {
  run_outside_the_pool(pool_problem(), 3);
}

TEST_CASE("GdnDecodePool.SlotsBeyond32BitOffsets", "[gpu][big]") {
  expect_far_pools_work<DecodeProblem>(
      [](const DecodeProblem& problem) { return DecodeCase(problem, 4, near_options()); },
      decode_state_dtypes());
}

}  // namespace
}  // namespace cubinery::test::gdn_decode_pool_test
