// What holds of a decode step whatever stands in front of it or behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/gdn/decode/operator.h"
#include "tests/gpu/launches.h"

namespace cubinery::test {

// Each value of an option with each of these batches: a cover of pairs.
inline void run_batches(const std::vector<gdn::DecodeProblem>& problems,
                        const std::vector<std::int64_t>& batches, const CaseOptions& options = {}) {
  std::vector<std::vector<std::string>> rows;
  for (const gdn::DecodeProblem& problem : problems) {
    for (const std::int64_t batch : batches) {
      rows.push_back(row_of(problem.to_json(), {std::to_string(batch)}));
    }
  }
  for (const std::size_t i : cover(rows)) {
    run_case(problems[i / batches.size()], batches[i % batches.size()], options);
  }
}

inline void run_only_padding(const gdn::DecodeProblem& pool) {
  for (const bool zero : {false, true}) {
    CaseOptions options;
    options.padding = {.slot_id = -1, .zero = zero};
    options.slots = 4;
    options.read.assign(130, -1);
    run_case(pool, 3, options);
    run_case(pool, 130, options);
  }
}

inline void expect_bits_without_the_batch(gdn::DecodeProblem problem) {
  problem.key_dim = problem.value_dim = 128;
  problem.batch_invariant = true;
  expect_same_in_parts(DecodeCase(problem, 257, {.seed = seed()}), prepare(problem),
                       {{100, 1}, {100, 2}, {100, 16}, {100, 64}});
}

inline void expect_same_in_graphs_and_with_pdl(const gdn::DecodeProblem& problem) {
  const gdn::Decode decode = prepare(problem);
  for (const std::int64_t batch : {2, 130}) {
    expect_same_in_graph(DecodeCase(problem, batch, {.seed = seed()}), decode, 1, 3);
    const DecodeCase overlapping(problem, batch, {.seed = seed(), .enable_pdl = true});
    if (can_enable_pdl(overlapping, decode)) expect_same_with_pdl(overlapping, decode, 40);
  }
}

}  // namespace cubinery::test
