// Problems of either operator that take an option through all of its values.
#pragma once

#include <vector>

#include "cubinery/gdn.h"

namespace cubinery::test {

inline constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
inline constexpr gdn::StateLayout kLayouts[] = {gdn::StateLayout::kVK, gdn::StateLayout::kKV};

template <class Problem>
std::vector<Problem> operand_and_output_dtypes(const Problem& base) {
  std::vector<Problem> problems;
  for (const DType dtype : kFloats) {
    for (const DType output_dtype : kFloats) {
      Problem& problem = problems.emplace_back(base);
      problem.dtype = dtype;
      problem.output_dtype = output_dtype;
    }
  }
  return problems;
}

template <class Problem>
std::vector<Problem> state_dtypes_and_layouts(const Problem& base) {
  std::vector<Problem> problems;
  for (const DType dtype : kFloats) {
    for (const gdn::StateLayout layout : kLayouts) {
      Problem& problem = problems.emplace_back(base);
      problem.key_dim = 64;
      problem.value_dim = 128;  // not square: a swapped layout cannot pass
      problem.state_dtype = dtype;
      problem.state_layout = layout;
    }
  }
  return problems;
}

template <class Problem>
std::vector<Problem> gate_modes_and_dtypes(const Problem& base) {
  using gdn::GateMode;
  std::vector<Problem> problems;
  for (const DType dtype : kFloats) {
    for (const GateMode mode :
         {GateMode::kNone, GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
      Problem& problem = problems.emplace_back(base);
      problem.gate_mode = mode;
      problem.gate_dtype = dtype;
    }
  }
  for (const DType dtype : kFloats) {
    Problem& a_log = problems.emplace_back(base);
    a_log.gate_mode = GateMode::kComputed;
    a_log.a_log_dtype = dtype;
    Problem& dt_bias = problems.emplace_back(base);
    dt_bias.gate_mode = GateMode::kComputed;
    dt_bias.dt_bias_dtype = dtype;
  }
  return problems;
}

template <class Problem>
std::vector<Problem> beta_modes_and_dtypes(const Problem& base) {
  using gdn::BetaMode;
  std::vector<Problem> problems;
  for (const DType dtype : kFloats) {
    for (const BetaMode mode :
         {BetaMode::kOne, BetaMode::kGiven, BetaMode::kLogit, BetaMode::kDoubledLogit}) {
      Problem& problem = problems.emplace_back(base);
      problem.beta_mode = mode;
      problem.beta_dtype = dtype;
      problem.use_qk_l2norm = true;
    }
  }
  return problems;
}

}  // namespace cubinery::test
