#include "runtime/gdn/shared/args_binding.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/gdn/shared/bind_norm.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {

Status bad_count(const TensorName& name, std::string_view dim, std::int64_t count,
                 std::int64_t limit) {
  return invalid(name, fmt::format("has {} = {}; accepted: 0 to {}", dim, count, limit));
}

Status wrong_rank(const TensorName& name, int rank, std::string_view accepted) {
  return invalid(name, fmt::format("has {} dimensions; accepted: {}", rank, accepted));
}

Status bind_rows_of(const TensorName& name, const Tensor& x, DType dtype, const Dim& dim,
                    const Dim& row, StridedVector* rows) {
  std::array<std::int64_t, 2> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  if (x.rank == 1 && x.shape[0] == dim.extent * row.extent) {
    *rows = {.data = x.data, .stride = row.extent};
    return check_innermost(name, x.strides[0]);
  }
  CUBINERY_RETURN_IF_ERROR(check_shape(name, x, {dim, row}, ExtraDim::kNone, strides.data()));
  *rows = {.data = x.data, .stride = strides[0]};
  return check_innermost(name, strides[1]);
}

Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale) {
  *scale = given.value_or(1.0f / std::sqrt(static_cast<float>(key_dim)));
  if (std::isfinite(*scale)) return {};
  return invalid({op, "scale"}, fmt::format("is {}; accepted: a finite number", *scale));
}

Status bind_lower_bound(std::string_view op, GateMode mode, std::optional<float> given,
                        float* lower_bound) {
  const TensorName name{op, "lower_bound"};
  if (mode == GateMode::kLowerBound) {
    *lower_bound = given.value_or(0.0f);
    if (!given) return invalid(name, fmt::format("is missing; accepted: {}", kLowerBounds));
    if (is_lower_bound(*given)) return {};
    return invalid(name, fmt::format("is {}; accepted: {}", *given, kLowerBounds));
  }
  if (!given) return {};
  return invalid(name, fmt::format("is {}; accepted: none, gate_mode is not lower_bound", *given));
}

Status bind_norm_eps(std::string_view op, std::optional<float> given, std::string_view why,
                     float* eps) {
  const TensorName name{op, "norm_eps"};
  if (!why.empty()) {
    if (!given) return {};
    return invalid(name, fmt::format("is {}; accepted: none, {}", *given, why));
  }
  *eps = given.value_or(1e-6f);
  if (std::isfinite(*eps) && *eps >= 0) return {};
  return invalid(name, fmt::format("is {}; accepted: finite numbers from 0 up", *eps));
}

}  // namespace cubinery::gdn
