#include "runtime/jit/get_kernels.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <thread>

#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

// make(spec) of every spec.
template <class Made, class Make>
Result<std::vector<Made>> made_of(const std::vector<KernelSpec>& specs, std::size_t threads,
                                  const Make& make) {
  std::vector<std::optional<Result<Made>>> found(specs.size());
  on_threads(specs.size(), threads, [&](std::size_t i) { found[i].emplace(make(specs[i])); });
  std::vector<Made> made;
  for (std::optional<Result<Made>>& one : found) {
    if (!*one) return std::move(*one).error();
    made.push_back(**std::move(one));
  }
  return made;
}

}  // namespace

Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs) {
  return made_of<Kernel>(specs, specs.size(),
                         [&](const KernelSpec& spec) { return context.get(spec); });
}

Result<std::vector<CompiledKernel>> compile_kernels(const Context& context,
                                                    const std::vector<KernelSpec>& specs) {
  // What results can choose is more than an operator launches: as many at a time as processors.
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  return made_of<CompiledKernel>(specs, threads,
                                 [&](const KernelSpec& spec) { return context.compile(spec); });
}

}  // namespace cubinery
