// What a library knows of the toy operator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/operator/planner.h"
#include "tests/toy/scale.h"

namespace cubinery {

// Persistent: names are those of manifests and results.
template <>
struct Fields<toy::ScaleProblem> {
  static constexpr const char* kName = "toy_scale";
  using P = toy::ScaleProblem;
  static constexpr auto kList = field_table(fixed<&P::dtype>(), fixed<&P::batch_invariant>());
  static constexpr std::string_view kOutline[] = {"dtype"};
  static constexpr std::string_view kNotForSpeed[] = {"batch_invariant"};
};

namespace toy {

// All fields have a meaning whatever the others say.
inline ScaleProblem normalised(const ScaleProblem& problem) { return problem; }

// One configuration of the operator, loaded.
class ScaleRunner {
 public:
  virtual ~ScaleRunner() = default;
  virtual Status launch(Stream stream, const ScaleArgs& args, std::int64_t elements) const = 0;
};

using ScalePath = Path<ScaleProblem, ScaleRunner>;

const ScalePath& scale_portable();
const ScalePath& scale_wide();

inline Point point_of(const ScaleProblem&, std::int64_t elements) {
  return {std::max<std::int64_t>(elements, 1), 1, 1};
}

}  // namespace toy

template <>
struct OperatorOf<toy::ScaleProblem> {
  using Runner = toy::ScaleRunner;
  static const std::vector<const toy::ScalePath*>& paths();
  static Sizes sizes(const toy::ScaleProblem& problem);
};

}  // namespace cubinery
