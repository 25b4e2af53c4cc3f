// Checks the arguments that the Gated DeltaNet operators have in common, and fills their parts of
// the kernels' parameters (common/params.h): what all parts share.  binder.h binds by the tables;
// states are in bind_states.h.
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

Status bad_count(const TensorName& name, std::string_view dim, std::int64_t count,
                 std::int64_t limit);
// 0 to `limit`; `dim` is what the tensor's number counts: "T".
inline Status check_count(const TensorName& name, std::string_view dim, std::int64_t count,
                          std::int64_t limit) {
  if (count >= 0 && count <= limit) return {};
  return bad_count(name, dim, count, limit);
}
Status wrong_rank(const TensorName& name, int rank, std::string_view accepted);

inline Status bind_vector(const TensorName& name, const Tensor& x, DType dtype, const Dim& dim,
                          StridedVector* vector) {
  *vector = {.data = x.data, .stride = x.strides[0]};
  return check_vector(name, x, dtype, dim);
}
// A row for each of `dim`, of elements next to each other.
Status bind_rows_of(const TensorName& name, const Tensor& x, DType dtype, const Dim& dim,
                    const Dim& row, StridedVector* rows);

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
    case Axis::kDecayDim:
      return {"key_dim", problem.key_dim};
    case Axis::kValueDim:
      return {"value_dim", problem.value_dim};
    default:
      return {"heads", problem.heads.count()};
  }
}

// Whether tensors of the problem have such a dimension.
template <class Problem>
constexpr bool has_axis(const Problem& problem, Axis axis) {
  return axis != Axis::kNone &&
         (axis != Axis::kDecayDim || problem.inputs.decay == Decay::kChannel);
}

// The caller's scale, or key_dim^-1/2.
Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale);

// Of GateMode::kLowerBound.
Status bind_lower_bound(std::string_view op, GateMode mode, std::optional<float> given,
                        float* lower_bound);

}  // namespace cubinery::gdn
