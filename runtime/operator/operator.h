// What cubinery/operator.h declares, for the file of an operator to instantiate:
//
//   template class Operator<gdn::DecodeProblem, std::int64_t>;
//   template class OneKernelOperator<gdn::DecodeProblem, std::int64_t>;
//   template struct internal::ProblemMethods<gdn::DecodeProblem>;
//
// The problem's namespace has point_of(problem, size).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/operator.h"
#include "runtime/operator/planner.h"

namespace cubinery {

template <class Problem>
Result<typename Problem::Operator> made(Result<Loaded<Problem>> loaded) {
  using State = OperatorState<Problem>;
  if (!loaded) return std::move(loaded).error();
  return typename Problem::Operator(std::make_shared<const State>(State{*std::move(loaded)}));
}

template <class Problem, class Size>
Result<typename Problem::Operator> Operator<Problem, Size>::create(const Context& context,
                                                                   const Problem& problem) {
  return made(load_operator(context, problem));
}

template <class Problem, class Size>
Result<typename Problem::Operator> Operator<Problem, Size>::create(
    const Context& context, const Problem& problem, const Target& target,
    const std::vector<TunedValue>& values) {
  return made(load_configuration(context, problem, target, values));
}

template <class Problem, class Size>
Result<std::vector<CompiledKernel>> Operator<Problem, Size>::compile(const Context& context,
                                                                     const Problem& problem) {
  return compile_operator(context, problem);
}

template <class Problem, class Size>
const Problem& Operator<Problem, Size>::problem() const& {
  return state_->problem;
}

template <class Problem, class Size>
Choice Operator<Problem, Size>::choice(const Size& size) const {
  return state_->plan.choice(point_of(state_->problem, size));
}

template <class Problem, class Size>
const Kernel& OneKernelOperator<Problem, Size>::kernel(const Size& size) const& {
  return this->state_->runner(point_of(this->state_->problem, size)).kernel();
}

template <class Problem>
Result<std::vector<KernelSpec>> internal::ProblemMethods<Problem>::kernels(
    const Problem& problem, std::string_view arch, const std::vector<std::string>& paths) {
  return kernels_for(problem, arch, embedded_known_results<Problem>(), paths);
}

template <class Problem>
std::string internal::ProblemMethods<Problem>::to_json(const Problem& problem) {
  return cubinery::to_json(problem);
}

// The errors of from_json() name a key.
template <class Problem>
Result<Problem> internal::ProblemMethods<Problem>::from_json(std::string_view json) {
  Result<Problem> problem = cubinery::from_json<Problem>(json);
  if (problem) return problem;
  return Status(Code::kInvalidArgument, std::string(problem.error().message()));
}

}  // namespace cubinery
