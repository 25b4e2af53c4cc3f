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

// Microseconds of a launch of any size, as modelled.
using Cost = std::function<double(const Point&)>;

// One choice of the tuned fields of a path's kernels, for one problem and target.  Immutable.
class Candidate {
 public:
  virtual ~Candidate() = default;
  // As results and messages name it.  Made anew by each call.
  virtual std::vector<TunedValue> values() const = 0;
  // In the order in which a runner takes them.
  virtual std::vector<KernelSpec> kernels() const = 0;
  // Microseconds of a launch, as modelled.
  virtual double us(const Point& at) const = 0;
};

template <class Runner>
class CandidateOf : public Candidate {
 public:
  // `kernels`: loaded, in the order of kernels().
  virtual std::unique_ptr<const Runner> runner(std::vector<Kernel> kernels) const = 0;
};

// One way to compute an operator: kernels that are launched together, and the choices of their
// tuned fields.  Immutable; safe to use from any thread.
//
// `Runner` is what the operator launches: one candidate with its kernels loaded.
//
// All methods require problem.check() to be OK; all but why_not() also that the path computes the
// problem on the target.
template <class Problem, class Runner>
class Path {
 public:
  using CandidatePtr = std::shared_ptr<const CandidateOf<Runner>>;

  virtual ~Path() = default;

  // Persistent: results name it.
  virtual std::string_view name() const = 0;
  // Names of its kernels' templates.
  virtual std::vector<std::string> kernels() const = 0;
  // Why it does not compute the problem on such a GPU, in words; nullopt: it does.
  virtual std::optional<std::string> why_not(const Problem& problem,
                                             const Target& target) const = 0;

  // Everything that there is to choose from.
  virtual std::vector<CandidatePtr> candidates(const Problem& problem,
                                               const Target& target) const = 0;
  // The few of them that the cost model chooses from, the same for every GPU of an architecture.
  // They agree in the fields that change bits.
  virtual std::vector<CandidatePtr> defaults(const Problem& problem,
                                             const Target& target) const = 0;
  // The one that has these values, which a result has; nullptr: none.
  virtual CandidatePtr find(const Problem& problem, const std::vector<TunedValue>& values,
                            const Target& target) const = 0;
};

}  // namespace cubinery
