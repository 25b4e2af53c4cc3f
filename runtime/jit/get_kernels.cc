#include "runtime/jit/get_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <thread>

#include "runtime/jit/context_state.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {

Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs) {
  std::vector<std::optional<Result<Kernel>>> found(specs.size());
  std::vector<std::size_t> missing;
  std::vector<Recipe> recipes;  // of those
  const Names::Moment since = context.state().now();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Result<Recipe> recipe = context.state().recipe(specs[i], /*to_load=*/true);
    if (!recipe) {
      found[i].emplace(std::move(recipe).error());
      continue;
    }
    Result<std::optional<Kernel>> cached = context.state().get_cached(*recipe);
    if (!cached) {
      found[i].emplace(std::move(cached).error());
    } else if (*cached) {
      found[i].emplace(**std::move(cached));
    } else {
      missing.push_back(i);
      recipes.push_back(*std::move(recipe));
    }
  }
  WaitBudget waits(context.state().options.lock_wait);
  on_threads(missing.size(), missing.size(), [&](std::size_t i) {
    found[missing[i]].emplace(context.state().get(recipes[i], since, &waits));
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
  const Context::State& state = context.state();
  WaitBudget waits(state.options.lock_wait);
  std::vector<std::optional<Result<CompiledKernel>>> made(specs.size());
  std::atomic<std::size_t> done = 0;
  std::atomic<bool> failed = false;
  // Offline there is nothing to do side by side.
  const std::size_t threads =
      state.options.offline ? 1 : std::max(1u, std::thread::hardware_concurrency());
  on_threads(specs.size(), threads, [&](std::size_t i) {
    if (failed) return;
    const Result<Recipe> recipe = state.recipe(specs[i]);
    const Result<CompiledKernel>& one = made[i].emplace(
        recipe ? state.compile(*recipe, &waits) : Result<CompiledKernel>(recipe.error().clone()));
    if (!one) failed = true;
    const std::size_t count = ++done;
    if (!one || one->source != Source::kCompiled || !state.options.log) return;
    state.options.log(
        LogLevel::kInfo,
        fmt::format("compiled {} for {} in {:.0f} ms: {} of {} are there", specs[i].kernel,
                    context.arch(), one->info.compile_ms, count, specs.size()));
  });
  std::vector<CompiledKernel> compiled;
  for (std::optional<Result<CompiledKernel>>& kernel : made) {
    if (!kernel) continue;  // behind one that failed
    if (!*kernel) return std::move(*kernel).error();
    compiled.push_back(**std::move(kernel));
  }
  return compiled;
}

}  // namespace cubinery
