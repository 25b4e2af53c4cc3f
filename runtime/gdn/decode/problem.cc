#include "runtime/gdn/decode/operator.h"

#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {

Status DecodeProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  if (!conv.is_there() || (conv.width >= 2 && conv.width <= 4)) return {};
  return bad_field(kDecodeOp, "conv_width", value_text(conv.width), "0, 2, 3, 4");
}

DecodeProblem normalised(DecodeProblem problem) {
  problem = normalised_shared(problem);
  if (!problem.conv.is_there()) problem.conv = {};
  if (!problem.states.has_initial && !problem.states.store) {
    problem.conv.state_dtype = DecodeConv().state_dtype;
    problem.conv.state_layout = DecodeConv().state_layout;
    problem.conv.whole_window = DecodeConv().whole_window;
  }
  return problem;
}

ConvProblem conv_in_front(const DecodeProblem& problem) {
  const DecodeConv& conv = problem.conv;
  const States& states = problem.states;
  return {.heads = problem.heads,
          .key_dim = problem.key_dim,
          .value_dim = problem.value_dim,
          .dtype = problem.dtype,
          .weight_dtype = conv.weight_dtype,
          .width = conv.width,
          .activation = conv.activation,
          .has_bias = conv.has_bias,
          .split_qkv = true,
          .states = {.dtype = conv.state_dtype,
                     .index_dtype = states.index_dtype,
                     .layout = conv.state_layout,
                     .location = states.location,
                     .has_initial = states.has_initial,
                     .store = states.store,
                     .whole_window = conv.whole_window}};
}

}  // namespace cubinery::gdn
