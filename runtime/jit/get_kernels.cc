#include "runtime/jit/get_kernels.h"

#include <optional>

#include "runtime/jit/on_threads.h"

namespace cubinery {

Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs) {
  std::vector<std::optional<Result<Kernel>>> found(specs.size());
  on_threads(specs.size(), specs.size(),
             [&](std::size_t i) { found[i].emplace(context.get(specs[i])); });
  std::vector<Kernel> kernels;
  for (std::optional<Result<Kernel>>& kernel : found) {
    if (!*kernel) return std::move(*kernel).error();
    kernels.push_back(**kernel);
  }
  return kernels;
}

}  // namespace cubinery
