// Cases of pools of either operator.  `size_of_first(n)` is the size of a launch of n requests or
// sequences, as run_case() takes it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/gpu/cases.h"

namespace cubinery::test {

template <class Problem, class SizeOfFirst>
void run_shared_slots(const Problem& pool, const SizeOfFirst& size_of_first) {
  CaseOptions options;
  options.slots = 8;
  options.read = {2, 2, 2, 5};
  options.write = {1, 3, 4, 5};
  run_case(pool, size_of_first(4), options);
}

template <class Problem, class Size>
void run_other_tensors(const Problem& pool, const Size& size) {
  CaseOptions options;
  options.separate_out = true;
  options.out_slot_gap = 64;
  run_case(pool, size, options);
  options.write_indices = true;
  run_case(pool, size, options);
  Problem fresh = pool;
  fresh.states.has_initial = false;
  run_case(fresh, size, options);
}

template <class Problem, class Size>
void run_half_states(const Problem& pool, const Size& size) {
  Problem fresh = pool;
  fresh.states.has_initial = false;
  run_case(fresh, size);
  Problem read_only = pool;
  read_only.states.store = false;
  run_case(read_only, size);
}

// The same batch under every policy, a cover of pairs of its fields.  -5 is padding where negative
// indices are, else no slot; 0 likewise is padding or a slot; 16 and up are no slots; 2^32 + 3 must
// not be taken for 3.
template <class Problem, class SizeOfFirst>
void run_padding_policies(const Problem& pool, const SizeOfFirst& size_of_first) {
  using gdn::Padding;
  std::vector<Problem> problems;
  for (const Padding padding :
       {Padding::kNone, Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const gdn::PadIndex pad_index : {gdn::PadIndex::kNegative, gdn::PadIndex::kZero}) {
      for (const DType index_dtype : {DType::kI32, DType::kI64}) {
        Problem& problem = problems.emplace_back(pool);
        problem.states.padding = padding;
        problem.states.pad_index = pad_index;
        problem.states.index_dtype = index_dtype;
        if constexpr (requires { problem.checkpoints; }) {
          if (index_dtype == DType::kI64) problem.checkpoints = gdn::Checkpoints::kBefore;
        }
      }
    }
  }
  for (const Problem& problem : cover(problems)) {
    const std::int64_t huge = problem.states.index_dtype == DType::kI64
                                  ? (std::int64_t{1} << 32) + 3
                                  : std::numeric_limits<std::int32_t>::max();
    CaseOptions options;
    options.slots = 16;
    options.scratch_slot = problem.states.padding == Padding::kScratch ? 15 : 0;
    options.read = {5, -1, 7, 0, huge, 9, 16, 2, -5};
    run_case(problem, size_of_first(9), options);
    // One padding row only: on a scratch slot its values are as certain as any.
    options.read = {5, problem.states.pad_index == gdn::PadIndex::kNegative ? -1 : 0, 7};
    run_case(problem, size_of_first(3), options);
  }
}

template <class Problem, class SizeOfFirst>
void run_padded_write_indices(Problem problem, const SizeOfFirst& size_of_first) {
  using gdn::Padding;
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    problem.states.padding = padding;
    CaseOptions options;
    options.slots = 16;
    options.scratch_slot = padding == Padding::kScratch ? 15 : 0;
    options.read = {5, -1, 7};
    options.write = {1, -1, 2};
    run_case(problem, size_of_first(3), options);
    // Only the write index is padding: the output is computed, the new state dropped (or
    // scratched).
    options.read = {5, 6, -1};
    options.write = {1, -1, -1};
    if (padding != Padding::kScratch) run_case(problem, size_of_first(3), options);
    options.read = {5, 6};
    options.write = {-1, 6};
    run_case(problem, size_of_first(2), options);
  }
}

template <class Problem, class Size>
void run_outside_the_pool(const Problem& pool, const Size& size_of_three) {
  CaseOptions options;
  options.slots = 8;
  options.read = {1, 2, 3};
  options.write = {1, 8, -1};
  run_case(pool, size_of_three, options);
}

}  // namespace cubinery::test
