#include "runtime/gdn/decode_problem.h"

#include "runtime/gdn/decode_operator.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery::gdn {

Status DecodeProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  if (!conv.is_there() || (conv.width >= 2 && conv.width <= 4)) return {};
  return bad_field(kDecodeOp, "conv_width", value_text(conv.width), "0, 2, 3, 4");
}

Result<std::vector<KernelSpec>> DecodeProblem::kernels(
    std::string_view arch, const std::vector<std::string>& paths) const {
  return kernels_for(*this, arch, embedded_known_results<DecodeProblem>(), paths);
}

std::string DecodeProblem::to_json() const { return cubinery::to_json(*this); }

Result<DecodeProblem> DecodeProblem::from_json(std::string_view json) {
  return problem_from_json<DecodeProblem>(json);
}

DecodeProblem normalised(DecodeProblem problem) {
  problem.inputs = normalised(problem.inputs);
  problem.states = normalised(problem.states);
  if (problem.output_norm == OutputNorm::kNone) {
    problem.norm_weight_dtype = DecodeProblem{}.norm_weight_dtype;
  }
  if (!problem.conv.is_there()) problem.conv = {};
  if (!problem.states.has_initial && !problem.states.store) {
    problem.conv.state_dtype = DecodeConv().state_dtype;
    problem.conv.state_layout = DecodeConv().state_layout;
    problem.conv.whole_window = DecodeConv().whole_window;
  }
  return problem;
}

}  // namespace cubinery::gdn
