#include "harness/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "results/shape.h"

namespace cubinery {
namespace {

constexpr std::string_view kHeads[] = {"q_heads", "k_heads", "v_heads"};

}  // namespace

Status refused_shape(std::string_view op, const Shape& shape, std::string_view why) {
  return Status(Code::kInvalidArgument,
                fmt::format("{}: shape \"{}\": {}", op, to_text(shape), why));
}

Status check_sizes(std::string_view op, std::span<const SizeInfo> sizes, const Shape& shape) {
  CUBINERY_RETURN_IF_ERROR(check_shape(op, shape));
  std::vector<std::string_view> accepted;
  for (const SizeInfo& size : sizes) {
    accepted.push_back(size.name);
    if (size.optional || size_in(shape, size.name)) continue;
    return refused_shape(op, shape, fmt::format("{} is missing", size.name));
  }
  accepted.insert(accepted.end(), std::begin(kHeads), std::end(kHeads));
  for (const ShapeSize& size : shape) {
    if (std::find(accepted.begin(), accepted.end(), size.name) != accepted.end()) continue;
    return refused_shape(
        op, shape,
        fmt::format("{} is not a size of it; accepted: {}", size.name, fmt::join(accepted, ", ")));
  }
  return {};
}

Status set_heads(std::string_view op, const Shape& shape, gdn::Heads* heads) {
  int* const counts[] = {&heads->q, &heads->k, &heads->v};
  for (std::size_t i = 0; i < std::size(kHeads); ++i) {
    const std::int64_t count = size_in(shape, kHeads[i]).value_or(*counts[i]);
    if (count > std::numeric_limits<int>::max()) return refused_shape(op, shape, "too many heads");
    *counts[i] = static_cast<int>(count);
  }
  return {};
}

}  // namespace cubinery
