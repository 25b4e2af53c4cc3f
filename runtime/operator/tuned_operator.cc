#include "runtime/operator/tuned_operator.h"

#include <fmt/format.h>

#include "runtime/jit/context_state.h"
#include "runtime/operator/tuning_context.h"
#include "runtime/registry/known_results.h"

namespace cubinery {

Arch arch_of(const Context& context) { return parse_arch(context.arch()).value_or(Arch{}); }

TuningKnowledge tuning_knowledge(const Context& context, const Question& asked) {
  TuningKnowledge known;
  Result<GpuIdentity> gpu = gpu_identity(context);
  if (gpu) {
    known.gpu = *std::move(gpu);
    known.results = tuning_results(context, asked);
  } else {
    known.gpu.arch = context.arch();
    known.gpu.sm_count = context.sm_count();
  }
  // What it takes to tell stale results is read for nothing where there are none.
  if (!known.results.empty()) known.toolchain = toolchain_of(context, kernel_names(asked.op));
  known.rates = rates_of(arch_of(context), known.gpu);
  return known;
}

std::string without_results(const Context& context, std::string_view op, const Status& error) {
  std::string why = fmt::format("the kernels that tuning chose cannot be had: {}", error.message());
  const auto& log = context.state().options.log;
  if (log) log(LogLevel::kWarning, fmt::format("{}: {}; taking those of the cost model", op, why));
  return why;
}

}  // namespace cubinery
