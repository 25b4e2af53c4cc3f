#include "runtime/gdn/args_binding.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace cubinery::gdn {
namespace {

// State matrices are read and written in vectors of up to 16 bytes.
constexpr std::int64_t kStateAlignment = 16;

// Whole vectors between matrices, and no matrix on top of another.
Status check_gap(TensorName name, Dim dim, std::int64_t stride, DType dtype, std::int64_t matrix) {
  const std::int64_t unit = kStateAlignment / size_of(dtype);
  if (dim.extent <= 1 || (stride % unit == 0 && stride >= matrix)) return {};
  return invalid(name, fmt::format("has {} stride {}; accepted: multiples of {} from {} up",
                                   dim.name, stride, unit, matrix));
}

}  // namespace

Status check_states(TensorName name, const Tensor& x, Dim outer, const StateForm& form,
                    long long* outer_stride, long long* head_stride) {
  const Dim columns = form.columns;
  std::array<std::int64_t, 4> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, form.dtype));
  CUBINERY_RETURN_IF_ERROR(check_shape(name, x, {outer, form.heads, form.rows, columns},
                                       ExtraDim::kNone, strides.data()));
  if (reinterpret_cast<std::uintptr_t>(x.data) % kStateAlignment != 0) {
    return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                     fmt::ptr(x.data), kStateAlignment));
  }
  if (strides[3] != 1 || strides[2] != columns.extent) {
    return invalid(name,
                   fmt::format("has strides {}, {} in its matrices; accepted: {}, 1 (no gaps)",
                               strides[2], strides[3], columns.extent));
  }
  const std::int64_t matrix = form.rows.extent * columns.extent;
  const Dim head{"head", form.heads.extent};
  CUBINERY_RETURN_IF_ERROR(check_gap(name, head, strides[1], form.dtype, matrix));
  CUBINERY_RETURN_IF_ERROR(check_gap(name, outer, strides[0], form.dtype, matrix));
  *outer_stride = strides[0];
  *head_stride = strides[1];
  return {};
}

Status check_scratch(std::string_view op, Padding padding, std::int64_t slot, std::int64_t slots) {
  const bool uses_scratch = padding == Padding::kScratch;
  if (uses_scratch && (slot < 0 || slot >= slots)) {
    return invalid({op, "scratch_slot"}, fmt::format("is {}; accepted: 0 to {}", slot, slots - 1));
  }
  if (!uses_scratch && slot != 0) {
    return invalid({op, "scratch_slot"},
                   fmt::format("is {}; accepted: 0, padding is not scratch", slot));
  }
  return {};
}

Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale) {
  *scale = given.value_or(1.0f / std::sqrt(static_cast<float>(key_dim)));
  if (std::isfinite(*scale)) return {};
  return invalid({op, "scale"}, fmt::format("is {}; accepted: a finite number", *scale));
}

}  // namespace cubinery::gdn
