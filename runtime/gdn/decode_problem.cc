#include "runtime/gdn/decode_problem.h"

#include "runtime/gdn/decode_operator.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery::gdn {

Status DecodeProblem::check() const { return check_shared_fields(*this); }

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
  return problem;
}

}  // namespace cubinery::gdn
