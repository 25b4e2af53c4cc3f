#include "tests/toy/scale.h"

#include "runtime/operator/operator.h"
#include "runtime/operator/tensor_check.h"
#include "tests/toy/scale_operator.h"

namespace cubinery {

const std::vector<const toy::ScalePath*>& OperatorOf<toy::ScaleProblem>::paths() {
  static const std::vector<const toy::ScalePath*> kPaths = {&toy::scale_portable(),
                                                            &toy::scale_wide()};
  return kPaths;
}

Sizes OperatorOf<toy::ScaleProblem>::sizes(const toy::ScaleProblem&) {
  return {.axes = {{.first = 0, .count = 32}},
          .possible = [](const Point& at) { return at; },
          .features =
              [](const Point& at) {
                return Shape{{"elements", at[0]}};
              }};
}

namespace toy {

Status ScaleProblem::check() const {
  if (is_float(dtype)) return {};
  return Status(Code::kInvalidArgument, "toy_scale: dtype; accepted: f32, bf16, f16");
}

Status Scale::launch(Stream stream, const ScaleArgs& args) const {
  const TensorName name{"toy_scale", "x"};
  CUBINERY_RETURN_IF_ERROR(check_data(name, args.x, state_->problem.dtype));
  if (args.x.rank != 2) return invalid(name, "accepted: 2 dimensions");
  const std::int64_t elements = args.x.shape[0] * args.x.shape[1];
  if (elements == 0) return {};
  return state_->runner(point_of(state_->problem, elements)).launch(stream, args, elements);
}

}  // namespace toy

template class Operator<toy::ScaleProblem, std::int64_t>;

}  // namespace cubinery
