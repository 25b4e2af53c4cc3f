#include "runtime/jit/get_kernels.h"

#include <cstddef>
#include <optional>

#include "runtime/jit/context_state.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {

Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs) {
  std::vector<std::optional<Result<Kernel>>> found(specs.size());
  std::vector<std::size_t> missing;
  const Names::Moment since = context.state().now();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Result<std::optional<Kernel>> cached = context.state().get_cached(specs[i]);
    if (!cached) {
      found[i].emplace(std::move(cached).error());
    } else if (*cached) {
      found[i].emplace(**std::move(cached));
    } else {
      missing.push_back(i);
    }
  }
  WaitBudget waits(context.state().options.lock_wait);
  on_threads(missing.size(), missing.size(), [&](std::size_t i) {
    found[missing[i]].emplace(context.state().get(specs[missing[i]], since, &waits));
  });
  std::vector<Kernel> kernels;
  for (std::optional<Result<Kernel>>& kernel : found) {
    if (!*kernel) return std::move(*kernel).error();
    kernels.push_back(**kernel);
  }
  return kernels;
}

Result<std::vector<CompiledKernel>> compile_kernels(const Context& context,
                                                    const std::vector<KernelSpec>& specs) {
  WaitBudget waits(context.state().options.lock_wait);
  std::vector<CompiledKernel> compiled;
  for (const KernelSpec& spec : specs) {
    Result<CompiledKernel> kernel = context.state().compile(spec, &waits);
    if (!kernel) return std::move(kernel).error();
    compiled.push_back(*std::move(kernel));
  }
  return compiled;
}

}  // namespace cubinery
