// The ways to compute an operator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/kernel.h"
#include "cubinery/tuning.h"
#include "results/target.h"

namespace cubinery {

// The size of a launch along the axes of its operator's table of choices: (states), or (sequences,
// tokens of a sequence, skew).  1 where there is no such axis.
using Point = std::array<std::int64_t, 3>;

// The cells of a table along one size: the powers of two from 2^first up, `count` of them.
struct Axis {
  std::size_t first = 0;
  std::size_t count = 1;
};

// One way to compute an operator: kernels that are launched together, the choices of their tuned
// fields (configurations), what these cost, and how they are launched.  Immutable; safe to use from
// any thread.
//
// `Runner` is what the operator launches: one configuration with its kernels loaded.
//
// All methods require problem.check() to be OK; all but why_not() also that the path computes the
// problem on the target.
template <class Problem, class Runner>
class Path {
 public:
  virtual ~Path() = default;

  // Persistent: results name it.
  virtual std::string_view name() const = 0;
  // Names of its kernels' templates.
  virtual std::vector<std::string> kernels() const = 0;
  // Why it does not compute the problem on such a GPU, in words; nullopt: it does.
  virtual std::optional<std::string> why_not(const Problem& problem,
                                             const Target& target) const = 0;

  // Everything that there is to choose from.
  virtual std::vector<Configuration> configurations(const Problem& problem,
                                                    const Target& target) const = 0;
  // Values of the few of them that the cost model chooses from, the same for every GPU of an
  // architecture.  They agree in the fields that change bits.
  virtual std::vector<std::vector<TunedValue>> defaults(const Problem& problem,
                                                        const Target& target) const = 0;
  // Whether these values are those of a configuration, and the configuration; requires that they
  // are.
  virtual bool has(const Problem& problem, const std::vector<TunedValue>& values,
                   const Target& target) const = 0;
  virtual Configuration find(const Problem& problem, const std::vector<TunedValue>& values,
                             const Target& target) const = 0;

  // Both of a configuration's values.  Microseconds of a launch, as modelled.
  virtual std::function<double(const Point&)> cost(const Problem& problem,
                                                   const std::vector<TunedValue>& values,
                                                   const Target& target) const = 0;
  // `kernels`: loaded, in the configuration's order.
  virtual std::unique_ptr<const Runner> runner(const Problem& problem,
                                               const std::vector<TunedValue>& values,
                                               const Target& target,
                                               std::vector<Kernel> kernels) const = 0;
};

}  // namespace cubinery
