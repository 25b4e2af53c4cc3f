// Changes to problems of any operator, and whether they reach the code.
#pragma once

#include <functional>
#include <vector>

#include "cubinery/gdn.h"
#include "tests/catch.h"

namespace cubinery::test {

template <class Problem>
using Change = std::function<void(Problem&)>;

template <class Problem>
Problem changed(Problem problem, const Change<Problem>& change) {
  change(problem);
  REQUIRE(problem.check().ok());
  return problem;
}

// Of fields that every problem has, each to other code than all others and none.
template <class Problem>
std::vector<Change<Problem>> shared_changes() {
  return {
      [](auto&) {},
      [](auto& p) { p.key_dim = 64; },
      [](auto& p) { p.value_dim = 64; },
      [](auto& p) { p.dtype = DType::kF16; },
      [](auto& p) { p.states.dtype = DType::kF16; },
      [](auto& p) { p.states.layout = gdn::StateLayout::kKV; },
      [](auto& p) { p.states.location = gdn::StateLocation::kPool; },
      [](auto& p) { p.inputs.gate_mode = gdn::GateMode::kAlpha; },
      [](auto& p) { p.inputs.beta_mode = gdn::BetaMode::kLogit; },
      [](auto& p) { p.inputs.use_qk_l2norm = true; },
  };
}

// And of those that every problem with outputs has.
template <class Problem>
std::vector<Change<Problem>> compiled_in_changes() {
  std::vector<Change<Problem>> changes = shared_changes<Problem>();
  changes.emplace_back([](auto& p) { p.output_dtype = DType::kF16; });
  changes.emplace_back([](auto& p) { p.states.has_initial = false; });
  changes.emplace_back([](auto& p) { p.states.store = false; });
  return changes;
}

}  // namespace cubinery::test
