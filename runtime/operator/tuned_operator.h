// How operators become: from what a context knows of tuning to a plan and its kernels.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/context.h"
#include "cubinery/tuning.h"
#include "tuner/choose/choose.h"
#include "tuner/choose/model.h"

namespace cubinery {

// The architecture of a context, which is a known one.
Arch arch_of(const Context& context);

struct TuningKnowledge {
  GpuIdentity gpu;
  GpuRates rates;
  Toolchain toolchain;
  std::vector<TuningResult> results;  // none without a device
};
// Of the problem that `asked` names; its GPU and toolchain are not looked at.
TuningKnowledge tuning_knowledge(const Context& context, const Question& asked);

// Says in Options::log that tuned kernels cannot be had.  Returns the reason as Chosen::why has it.
std::string without_results(const Context& context, std::string_view op, const Status& error);

// make_plan(answers, why_not) and load(plan) -> Result<Operator>; a plan with results whose kernels
// cannot be had is made again without them.
template <class Operator, class MakePlan, class Load>
Result<Operator> create_tuned(const Context& context, std::string_view op, const Answers& answers,
                              MakePlan&& make_plan, Load&& load) {
  auto plan = make_plan(&answers, std::string_view());
  const bool uses_results = plan.uses_results;
  Result<Operator> made = load(std::move(plan));
  if (made || !uses_results) return made;
  const std::string why_not = without_results(context, op, made.error());
  return load(make_plan(nullptr, why_not));
}

}  // namespace cubinery
