#include "runtime/gdn/decode_problem.h"

#include <algorithm>

#include "runtime/gdn/decode_operator.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery::gdn {

int DecodeProblem::heads() const { return std::max({q_heads, k_heads, v_heads}); }

Status DecodeProblem::check() const { return check_shared_fields(*this); }

Result<std::vector<KernelSpec>> DecodeProblem::kernels(std::string_view arch) const {
  return kernels_for(*this, arch, embedded_known_results<DecodeProblem>());
}

std::string DecodeProblem::to_json() const { return cubinery::to_json(*this); }

Result<DecodeProblem> DecodeProblem::from_json(std::string_view json) {
  return problem_from_json<DecodeProblem>(json);
}

DecodeProblem normalised(DecodeProblem problem) {
  normalise_shared_fields(&problem);
  return problem;
}

}  // namespace cubinery::gdn
