// The decode operator: plans, launches.
#include "cubinery/gdn_decode.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/gdn/decode/paths.h"
#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/shared/tensors.h"
#include "runtime/operator/operator.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery {

const std::vector<const gdn::DecodePath*>& OperatorOf<gdn::DecodeProblem>::paths() {
  static const std::vector<const gdn::DecodePath*> kPaths = {&gdn::decode_portable()};
  return kPaths;
}

Sizes OperatorOf<gdn::DecodeProblem>::sizes(const gdn::DecodeProblem& problem) {
  return gdn::sizes_of_states(problem.heads, 32);
}

namespace gdn {

Status Decode::launch(Stream stream, const DecodeArgs& args) const {
  const bool convolves = state_->problem.conv.is_there();
  const Tensor& rows = convolves ? args.x : args.q;
  const std::int64_t batch = rows.rank > 0 ? rows.shape[0] : -1;
  if (batch < 0 || batch > kMaxBatch) {
    const TensorName name{kDecodeOp, convolves ? tensors::kX.info.name : tensors::kQ.info.name};
    CUBINERY_RETURN_IF_ERROR(check_data(name, rows, state_->problem.dtype));
    return invalid(name, fmt::format("has B = {}; accepted: 0 to {}", batch, kMaxBatch));
  }
  if (batch == 0) return {};
  return state_->runner(point_of(state_->problem, batch)).launch(stream, args, batch);
}

}  // namespace gdn

template class Operator<gdn::DecodeProblem, std::int64_t>;
template class OneKernelOperator<gdn::DecodeProblem, std::int64_t>;
template class Planner<gdn::DecodeProblem>;
template struct internal::ProblemMethods<gdn::DecodeProblem>;

}  // namespace cubinery
