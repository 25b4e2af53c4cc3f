// The configurations of an operator that the command line asks for, one or all of them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "harness/operators.h"
#include "runtime/jit/get_kernels.h"
#include "runtime/operator/planner.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery::bench {

// What --config warps=4,warp_v=8, --sweep and --all-configs say.
struct Wanted {
  explicit Wanted(const Arguments& arguments);

  bool sweeps() const { return printed != 0; }

  std::vector<std::string> values;  // "warps=4": what configurations must have
  std::size_t printed = 0;          // of a sweep; 0: no sweep
};

// Those that have all `values`.  Throws std::runtime_error where there is none.
std::vector<Configuration> with_values(const std::vector<Configuration>& all,
                                       const std::vector<std::string>& values);

// One line for each of the fastest, from the fastest on, and for the slowest; "*": what the
// operator chooses.
void print_sweep(const std::vector<Configuration>& all, const std::vector<Timing>& times,
                 const std::string& chosen, double floor_us, std::size_t printed);

template <class Problem>
std::vector<Configuration> configurations(const Gpu& gpu, const Problem& problem,
                                          const Wanted& wanted) {
  const auto planner = Planner<Problem>::create(problem, target_of(gpu.context())).value();
  return with_values(planner.space().configurations, wanted.values);
}

// As the problem's own choice, or the one configuration that --config names.
template <class Problem>
typename Problem::Operator prepared(const Gpu& gpu, const Problem& problem, const Wanted& wanted) {
  if (wanted.values.empty()) return gpu.context().prepare(problem).value();
  const std::vector<Configuration> found = configurations(gpu, problem, wanted);
  if (found.size() == 1) {
    return HarnessOf<Problem>::create(gpu.context(), problem, target_of(gpu.context()),
                                      found.front().values)
        .value();
  }
  throw std::runtime_error(std::to_string(found.size()) +
                           " configurations have the values of --config; name more, or --sweep");
}

// Compiled side by side.
template <class Problem>
std::vector<typename Problem::Operator> loaded(const Gpu& gpu, const Problem& problem,
                                               const std::vector<Configuration>& all) {
  std::vector<KernelSpec> specs;
  for (const Configuration& configuration : all) {
    specs.insert(specs.end(), configuration.kernels.begin(), configuration.kernels.end());
  }
  const std::vector<Kernel> kernels = get_kernels(gpu.context(), specs).value();
  std::vector<typename Problem::Operator> operators;
  for (const Configuration& configuration : all) {
    operators.push_back(HarnessOf<Problem>::create(gpu.context(), problem, target_of(gpu.context()),
                                                   configuration.values)
                            .value());
  }
  return operators;
}

}  // namespace cubinery::bench
