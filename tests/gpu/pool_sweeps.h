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

// The same batch under every policy.  -5 is padding where negative indices are, else no slot; 0
// likewise is padding or a slot; 16 and up are no slots; 2^32 + 3 must not be taken for 3.
template <class Problem, class SizeOfFirst>
void run_padding_policies(const Problem& pool, const SizeOfFirst& size_of_first) {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    Problem problem = pool;
    problem.states.index_dtype = index_dtype;
    if constexpr (requires { problem.checkpoints; }) {
      if (index_dtype == DType::kI64) problem.checkpoints = gdn::Checkpoints::kBefore;
    }
    const bool is_wide = index_dtype == DType::kI64;
    const std::int64_t huge =
        is_wide ? (std::int64_t{1} << 32) + 3 : std::numeric_limits<std::int32_t>::max();
    for (const Padding& padding : every_padding(15)) {
      CaseOptions options;
      options.slots = 16;
      options.padding = padding;
      options.read = {5, -1, 7, 0, huge, 9, 16, 2, -5};
      run_case(problem, size_of_first(9), options);
      // One padding row only: on a scratch slot its values are as certain as any.
      options.read = {5, padding.slot_id.value_or(-1), 7};
      run_case(problem, size_of_first(3), options);
    }
    // The largest index is no slot, whether or not there is padding.
    CaseOptions options;
    options.slots = 16;
    options.read = {5, is_wide ? std::numeric_limits<std::int64_t>::max() : huge, 7};
    run_case(problem, size_of_first(3), options);
  }
}

template <class Problem, class SizeOfFirst>
void run_padded_write_indices(const Problem& problem, const SizeOfFirst& size_of_first) {
  for (const Padding& padding : every_padding(15)) {
    if (!padding.slot_id) continue;
    const std::int64_t pad = *padding.slot_id;
    CaseOptions options;
    options.slots = 16;
    options.padding = padding;
    options.read = {5, pad, 7};
    options.write = {1, pad, 2};
    run_case(problem, size_of_first(3), options);
    // Only the write index is padding: the output is computed, the new state dropped (or
    // scratched).
    options.read = {5, 6, pad};
    options.write = {1, pad, pad};
    if (!padding.is_computed()) run_case(problem, size_of_first(3), options);
    options.read = {5, 6};
    options.write = {pad, 6};
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
