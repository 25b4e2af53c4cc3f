// What the operators of all problems have: gdn::Decode and its like derive from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/kernel.h"
#include "cubinery/rung.h"
#include "cubinery/status.h"

namespace cubinery {

struct Target;      // for the library itself
struct TunedValue;  // cubinery/tuning.h
template <class Problem>
struct OperatorState;  // for the library itself

// An operator for one problem on one device.  Immutable; copies share it, all methods are safe to
// call from any thread.  `Size`: of a launch, as far as its kernels depend on it.
template <class Problem, class Size>
class Operator {
 public:
  // Chooses kernels by the context's tuning results, or by the cost model, and loads or compiles
  // them.  When one that tuning chose cannot be had (an offline context that was never given it),
  // the cost model chooses, and Options::log has a warning.  kInvalidArgument from
  // Problem::check(); else as Context::get().
  static Result<typename Problem::Operator> create(const Context& context, const Problem& problem);
  // For the library itself: with one configuration of the caller's choice for all sizes, launched
  // as on `target`.  kInvalidKey: the problem has no such configuration.
  static Result<typename Problem::Operator> create(const Context& context, const Problem& problem,
                                                   const Target& target,
                                                   const std::vector<TunedValue>& values);
  // Fills the cache with every kernel that create() may choose on any GPU of the context's
  // architecture, by the context's results or by the cost model.  Needs no GPU.  Errors as above.
  static Result<std::vector<CompiledKernel>> compile(const Context& context,
                                                     const Problem& problem);

  const Problem& problem() const&;
  Problem problem() && { return std::as_const(*this).problem(); }
  // What a launch of this size runs, and why.  Numbers below the least are taken as that.
  Choice choice(const Size& size) const;

  explicit Operator(std::shared_ptr<const OperatorState<Problem>> state)
      : state_(std::move(state)) {}

 protected:
  std::shared_ptr<const OperatorState<Problem>> state_;
};

// One whose launches run one kernel.
template <class Problem, class Size>
class OneKernelOperator : public Operator<Problem, Size> {
 public:
  using Operator<Problem, Size>::Operator;

  // That of a launch of this size.  Numbers below the least are taken as that.
  const Kernel& kernel(const Size& size) const&;
  Kernel kernel(const Size& size) && { return std::as_const(*this).kernel(size); }
};

namespace internal {

// The methods of the same names of every problem.
template <class Problem>
struct ProblemMethods {
  // The kernels that the operator may launch on any GPU of an architecture by the cost model, and
  // on every one that is known by the results inside the library, for pre-warming.  `paths`:
  // Options::paths of the contexts that will launch them.  Errors as for check() and prepare().
  static Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                                 const std::vector<std::string>& paths);
  // As flat JSON, and back.  Missing fields keep their default.
  // kInvalidArgument: malformed, an unknown field or value.
  static std::string to_json(const Problem& problem);
  static Result<Problem> from_json(std::string_view json);
};

}  // namespace internal
}  // namespace cubinery
