// The kernels of many problems in the cache.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "runtime/gdn/operators.h"
#include "runtime/jit/get_kernels.h"
#include "runtime/registry/operators.h"

namespace cubinery::gdn {

Result<std::vector<CompiledKernel>> compile(const Context& context,
                                            std::span<const AnyProblem> problems) {
  std::map<std::string, KnownResults> known;  // by operator: to read them is what takes time
  std::set<std::string> names;                // of specs
  std::vector<KernelSpec> specs;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::string op = operator_of(problems[i]);
    const auto [results, is_new] = known.try_emplace(op);
    if (is_new) results->second = known_results(context, op);
    Result<std::vector<KernelSpec>> wanted =
        std::visit([&, &known_of_op = results->second](
                       const auto& problem) { return kernels_in(context, problem, known_of_op); },
                   problems[i]);
    if (!wanted) {
      return Status(wanted.error().code(),
                    fmt::format("problems[{}]: {}", i, wanted.error().message()));
    }
    for (KernelSpec& spec : *wanted) {
      if (names.insert(spec.canonical).second) specs.push_back(std::move(spec));
    }
  }
  Result<std::vector<CompiledKernel>> made = compile_kernels(context, specs);
  for (const AnyProblem& problem : problems) {
    std::visit([&](const auto& one) { record(context, one, made); }, problem);
  }
  return made;
}

}  // namespace cubinery::gdn
