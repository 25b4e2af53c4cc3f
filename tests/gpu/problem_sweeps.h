// Problems of either operator that take an option through all of its values.
#pragma once

#include <initializer_list>
#include <span>
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

// `problem` with its requests one behind the other, and with its states in a pool too.
template <class Problem>
Problem as_packed(Problem problem) {
  problem.varlen = true;
  return problem;
}
template <class Problem>
Problem as_packed_pool(Problem problem) {
  problem = as_packed(problem);
  problem.states.location = gdn::StateLocation::kPool;
  return problem;
}

template <class Problem>
std::vector<Problem> state_dtypes_and_layouts(const Problem& base,
                                              std::span<const DType> dtypes = kFloats) {
  std::vector<Problem> problems;
  for (const DType dtype : dtypes) {
    for (const gdn::StateLayout layout : kLayouts) {
      Problem& problem = problems.emplace_back(base);
      problem.key_dim = 64;
      problem.value_dim = 128;  // not square: a swapped layout cannot pass
      problem.states.dtype = dtype;
      problem.states.layout = layout;
    }
  }
  return problems;
}

// Every key_dim with as large a value_dim, and with one that is large where it is small.
template <class Problem>
std::vector<Problem> every_dim(const Problem& base) {
  std::vector<Problem> problems;
  for (int dim = 16; dim <= 256; dim += 16) {
    for (const gdn::StateLayout layout : kLayouts) {
      for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
        for (const int value_dim : {272 - dim, dim}) {
          Problem& problem = problems.emplace_back(base);
          problem.states.layout = layout;
          problem.states.dtype = state_dtype;
          problem.key_dim = dim;
          problem.value_dim = value_dim;
        }
      }
    }
  }
  return problems;
}

// With `more` behind the modes that every kernel takes.
template <class Problem>
std::vector<Problem> gate_modes_and_dtypes(const Problem& base,
                                           std::initializer_list<gdn::GateMode> more = {}) {
  using gdn::GateMode;
  std::vector<GateMode> modes{GateMode::kNone, GateMode::kLog, GateMode::kAlpha,
                              GateMode::kComputed};
  modes.insert(modes.end(), more);
  std::vector<Problem> problems;
  for (const DType dtype : kFloats) {
    for (const GateMode mode : modes) {
      Problem& problem = problems.emplace_back(base);
      problem.inputs.gate_mode = mode;
      problem.inputs.gate_dtype = dtype;
    }
  }
  for (const DType dtype : kFloats) {
    Problem& a_log = problems.emplace_back(base);
    a_log.inputs.gate_mode = GateMode::kComputed;
    a_log.inputs.a_log_dtype = dtype;
    Problem& dt_bias = problems.emplace_back(base);
    dt_bias.inputs.gate_mode = GateMode::kComputed;
    dt_bias.inputs.dt_bias_dtype = dtype;
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
      problem.inputs.beta_mode = mode;
      problem.inputs.beta_dtype = dtype;
      problem.inputs.use_qk_l2norm = true;
    }
  }
  return problems;
}

template <class Problem>
std::vector<Problem> head_ratios(const Problem& base) {
  constexpr gdn::Heads kHeads[] = {{1, 1, 1}, {3, 3, 3},  {2, 2, 4},  {2, 2, 6},
                                   {2, 2, 8}, {2, 2, 16}, {1, 1, 16}, {1, 1, 11},  // grouped values
                                   {4, 2, 2}, {6, 2, 2},  {8, 1, 1},   // grouped queries
                                   {6, 6, 2}, {2, 6, 3},  {1, 4, 2}};  // any other divisors
  std::vector<Problem> problems;
  for (const gdn::Heads& heads : kHeads) problems.emplace_back(base).heads = heads;
  return problems;
}

// `problem` with a decay for each channel of k.
template <class Problem>
Problem with_channels(Problem problem, gdn::GateMode mode = gdn::GateMode::kLowerBound) {
  problem.inputs.decay = gdn::Decay::kChannel;
  problem.inputs.gate_mode = mode;
  return problem;
}

// What engines run: Qwen3-Next's heads, gates from logits, a bf16 or f32 pool.
template <class Problem>
Problem engine_problem(DType state_dtype, gdn::StateLayout layout) {
  Problem problem;
  problem.states.dtype = state_dtype;
  problem.states.layout = layout;
  problem.states.location = gdn::StateLocation::kPool;
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
  problem.inputs.dt_bias_dtype = DType::kBF16;
  problem.inputs.beta_mode = gdn::BetaMode::kLogit;
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

}  // namespace cubinery::test
