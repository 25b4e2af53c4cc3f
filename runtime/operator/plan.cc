#include "runtime/operator/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "results/shape.h"
#include "results/space.h"

namespace cubinery {
namespace {

// The size in the middle of cell `index`.
Point point_at(const std::vector<Axis>& axes, std::size_t index) {
  Point point{1, 1, 1};
  for (std::size_t i = axes.size(); i-- > 0; index /= axes[i].count) {
    point[i] = std::int64_t{1} << (axes[i].first + index % axes[i].count);
  }
  return point;
}

}  // namespace

std::size_t Plan::index(const Point& at) const {
  std::size_t index = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t exponent = std::max(nearest_log2(at[i]), axes[i].first) - axes[i].first;
    index = index * axes[i].count + std::min(exponent, axes[i].count - 1);
  }
  return index;
}

Plan make_plan(const Sizes& sizes, Chooser chooser) {
  Plan plan{.axes = sizes.axes, .cells = {}, .configurations = {}, .choices = {}};
  std::size_t count = 1;
  for (const Axis& axis : sizes.axes) count *= axis.count;
  plan.cells.resize(count);
  std::vector<std::optional<std::uint16_t>> places(chooser.options().size());
  const auto is_possible = [&](std::size_t i) {
    return plan.index(sizes.possible(point_at(plan.axes, i))) == i;
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_possible(i)) continue;
    const Point at = sizes.possible(point_at(plan.axes, i));
    const Chooser::Pick pick = chooser.pick(sizes.features(at), at);
    std::optional<std::uint16_t>& place = places[pick.option];
    if (!place) {
      place = static_cast<std::uint16_t>(plan.configurations.size());
      plan.configurations.push_back(chooser.options()[pick.option].values);
    }
    plan.cells[i] = {*place, static_cast<std::uint16_t>(pick.choice)};
    plan.uses_results |= chooser.choices()[pick.choice].rung != Rung::kDefault;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_possible(i)) {
      plan.cells[i] = plan.cells[plan.index(sizes.possible(point_at(plan.axes, i)))];
    }
  }
  plan.choices = chooser.choices();
  return plan;
}

Plan one_choice_plan(std::vector<TunedValue> values) {
  Plan plan{.axes = {}, .cells = {{}}, .configurations = {}, .choices = {}};
  plan.choices.push_back(
      {std::string(path_of(values)), to_text(values), Rung::kDefault, "chosen by the caller"});
  plan.configurations.push_back(std::move(values));
  return plan;
}

}  // namespace cubinery
