// Checks the arguments that the Gated DeltaNet operators have in common, and fills their parts of
// the kernels' parameters (common/params.h): what all parts share.  Rows of tokens, gates and
// states are in bind_rows.h, bind_gates.h and bind_states.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "common/params.h"
#include "cubinery/gdn_types.h"
#include "runtime/gdn/shared/tensors.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery::gdn {

// The most that a kernel counts in an int.
inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

// 0 to `limit`; `dim` is what the tensor's number counts: "T".
Status check_count(const TensorName& name, std::string_view dim, std::int64_t count,
                   std::int64_t limit);
Status wrong_rank(const TensorName& name, int rank, std::string_view accepted);

// Rows of `dim` elements, of q, k or v, for an operator of so many heads.
Status bind_vector(const TensorName& name, const Tensor& x, DType dtype, const Dim& dim,
                   StridedVector* vector);

// A dimension by its axis, of those that the problem alone has.
template <class Problem>
constexpr Dim dim_of(const Problem& problem, Axis axis) {
  switch (axis) {
    case Axis::kQHeads:
      return {"q_heads", problem.heads.q};
    case Axis::kKHeads:
      return {"k_heads", problem.heads.k};
    case Axis::kVHeads:
      return {"v_heads", problem.heads.v};
    case Axis::kKeyDim:
      return {"key_dim", problem.key_dim};
    case Axis::kValueDim:
      return {"value_dim", problem.value_dim};
    default:
      return {"heads", problem.heads.count()};
  }
}

// Whether the tensor is to be bound: the problem has it, and it is there or must be.
template <class Spec, class Problem>
bool is_due(const Spec& spec, const Problem& problem, const Tensor& x) {
  return spec.why_absent(problem).empty() && (x.present() || !spec.info.optional);
}

// That it is absent where the problem has no such tensor.
template <class Spec, class Problem>
Status check_absent(std::string_view op, const Spec& spec, const Problem& problem,
                    const Tensor& x) {
  const std::string_view why = spec.why_absent(problem);
  return why.empty() ? Status() : cubinery::check_absent({op, spec.info.name}, x, why);
}

// A vector of the table.
template <class Spec, class Problem>
Status bind_vector(std::string_view op, const Spec& spec, const Problem& problem, const Tensor& x,
                   const Dim& dim, StridedVector* vector) {
  if (!is_due(spec, problem, x)) return check_absent(op, spec, problem, x);
  return bind_vector({op, spec.info.name}, x, spec.type(problem), dim, vector);
}

// The caller's scale, or key_dim^-1/2.
Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale);

}  // namespace cubinery::gdn
