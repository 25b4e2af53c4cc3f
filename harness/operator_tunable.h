// What the tunables of all operators have in common: HarnessOf says the rest, but for checks and
// operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "harness/gdn_shapes.h"
#include "runtime/operator/planner.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery {

template <class Problem>
class OperatorTunable : public Tunable {
 public:
  using Harness = HarnessOf<Problem>;
  using Operator = typename Harness::Operator;
  using Values = std::vector<TunedValue>;

  OperatorTunable(const Context& context, const Planner<Problem>& planner, const Problem& problem,
                  const Target& target, std::int64_t l2_bytes)
      : context_(context),
        problem_(problem),
        target_(target),
        l2_bytes_(l2_bytes),
        space_(planner.space()) {}

  const TuningSpace& space() const override { return space_; }

  Shape features(const Shape& shape) const override { return gdn_features(problem_, shape); }

  std::size_t default_configuration(const Shape& shape) const override {
    const auto made = gdn_shape(problem_, shape);
    const Problem& problem = made ? made->problem : problem_;
    const auto planner = Planner<Problem>::create(problem, target_, path_options(context_));
    if (!planner) return space_.configurations.size();
    const Point at = made ? point_of(*made) : Point{1, 1, 1};
    return index_of(space_, planner->plan(nullptr).candidate(at).values());
  }

  Status prepare(std::size_t configuration) override {
    Result<Operator> made = Harness::create(context_, problem_, target_, values(configuration));
    return made ? Status() : std::move(made).error();
  }

 protected:
  const Values& values(std::size_t configuration) const {
    return space_.configurations[configuration].values;
  }

  Context context_;
  Problem problem_;
  Target target_;
  std::int64_t l2_bytes_;
  TuningSpace space_;
};

}  // namespace cubinery
