#include "harness/operator.h"

#include <fmt/format.h>

#include "harness/shapes.h"
#include "results/shape.h"

namespace cubinery {

Lengths values_in(const ShapeGrid& grid, std::string_view size) {
  const auto found = grid.find(size);
  return found == grid.end() ? Lengths() : found->second;
}

std::vector<Shape> batches(const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  for (const std::int64_t batch : values_in(grid, "batch")) shapes.push_back({{"batch", batch}});
  return shapes;
}

Status check_most(std::string_view op, const Shape& shape, std::string_view size,
                  std::int64_t most) {
  if (*size_in(shape, size) <= most) return {};
  return refused_shape(op, shape, fmt::format("{} must be at most {}", size, most));
}

Result<Lengths> lengths_of_requests(std::string_view op, const Shape& shape, std::int64_t tokens) {
  CUBINERY_RETURN_IF_ERROR(check_most(op, shape, "batch", kMostSequences));
  return Lengths(idx(*size_in(shape, "batch")), tokens);
}

}  // namespace cubinery
