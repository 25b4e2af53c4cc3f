#include "tuner/measure/select.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "results/space.h"

namespace cubinery {
namespace {

// Configurations that agree in the fields that change bits.
struct Group {
  std::vector<TunedValue> bits;
  std::vector<std::size_t> members;  // ascending
};

std::vector<Group> groups_of(const std::vector<Configuration>& configurations) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < configurations.size(); ++i) {
    std::vector<TunedValue> bits = bits_of(configurations[i].values);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Group& group) { return group.bits == bits; });
    if (same == groups.end()) {
      groups.push_back({std::move(bits), {i}});
    } else {
      same->members.push_back(i);
    }
  }
  return groups;
}

std::optional<double> time_of(const ShapeTimes& shape, std::size_t configuration) {
  if (configuration >= shape.ms.size() || !(shape.ms[configuration] > 0.0)) return std::nullopt;
  return shape.ms[configuration];
}

// The lower index on ties; nullopt: none has a time.
std::optional<std::size_t> fastest(const ShapeTimes& shape, const std::vector<std::size_t>& among,
                                   std::optional<std::size_t> but = std::nullopt) {
  std::optional<std::size_t> best;
  for (const std::size_t i : among) {
    if (i == but || !time_of(shape, i)) continue;
    if (!best || *time_of(shape, i) < *time_of(shape, *best)) best = i;
  }
  return best;
}

// Mean of log(time), best of the group for each shape: against the mean over best times, which is
// the same for all groups.  nullopt: a shape has no time in the group.
std::optional<double> mean_log(const Group& group, const std::vector<ShapeTimes>& shapes) {
  double sum = 0;
  for (const ShapeTimes& shape : shapes) {
    const std::optional<std::size_t> best = fastest(shape, group.members);
    if (!best) return std::nullopt;
    sum += std::log(*time_of(shape, *best));
  }
  return sum / static_cast<double>(shapes.size());
}

bool has(const Group& group, std::size_t configuration) {
  return std::binary_search(group.members.begin(), group.members.end(), configuration);
}

// The group that the others are compared with: of the first shape's default.
const Group* usual_group(const std::vector<Group>& groups, const std::vector<ShapeTimes>& shapes) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
    return has(group, shapes[0].otherwise);
  });
  return found == groups.end() ? nullptr : &*found;
}

// Whether no shape loses by leaving the usual group for this one.
bool is_no_loss(const Group& group, const Group* usual, const std::vector<ShapeTimes>& shapes,
                double worth) {
  return std::all_of(shapes.begin(), shapes.end(), [&](const ShapeTimes& shape) {
    std::optional<std::size_t> before = shape.otherwise;
    if (usual != nullptr && !has(*usual, *before)) before = fastest(shape, usual->members);
    const std::optional<double> ms = before ? time_of(shape, *before) : std::nullopt;
    const std::optional<std::size_t> best = fastest(shape, group.members);
    return !ms || (best && *time_of(shape, *best) <= *ms * (1 + worth));
  });
}

// Whether it is of the path; of none all are.
bool is_of(const Group& group, std::string_view path) {
  return path.empty() || path_of(group.bits) == path;
}

// Of `path`, where that is not empty.
const Group* choose_group(const std::vector<Group>& groups, const std::vector<ShapeTimes>& shapes,
                          double worth, std::string_view path) {
  const Group* const usual = usual_group(groups, shapes);
  const Group* best = nullptr;
  double best_mean = 0;
  std::optional<double> usual_mean;
  for (const Group& group : groups) {
    const std::optional<double> mean = mean_log(group, shapes);
    if (!mean || !is_of(group, path)) continue;
    if (path.empty() && !is_no_loss(group, usual, shapes, worth)) continue;
    if (best == nullptr || *mean < best_mean) {
      best = &group;
      best_mean = *mean;
    }
    if (&group == usual) usual_mean = *mean;
  }
  return usual_mean && *usual_mean <= best_mean + std::log1p(worth) ? usual : best;
}

// Members of the group within `worth` of the shape's best in it.
std::set<std::size_t> acceptable(const Group& group, const ShapeTimes& shape, double worth) {
  std::set<std::size_t> found;
  const double limit = *time_of(shape, *fastest(shape, group.members)) * (1 + worth);
  for (const std::size_t i : group.members) {
    if (time_of(shape, i) && *time_of(shape, i) <= limit) found.insert(i);
  }
  return found;
}

// The configuration that most of the open shapes accept, on ties the one with the least sum of
// log(time / best time) over them.
std::size_t most_accepted(const Group& group, const std::vector<ShapeTimes>& shapes,
                          const std::vector<std::set<std::size_t>>& accepted,
                          const std::vector<std::size_t>& open) {
  std::size_t best = 0;
  int best_count = 0;
  double best_sum = 0;
  for (const std::size_t i : group.members) {
    int count = 0;
    double sum = 0;
    for (const std::size_t shape : open) {
      if (!accepted[shape].contains(i)) continue;
      ++count;
      const std::size_t quickest = *fastest(shapes[shape], group.members);
      sum += std::log(*time_of(shapes[shape], i) / *time_of(shapes[shape], quickest));
    }
    if (count > best_count || (count == best_count && count > 0 && sum < best_sum)) {
      best = i;
      best_count = count;
      best_sum = sum;
    }
  }
  return best;
}

// One configuration for each shape, few in all (greedy):
// shapes whose default is within few.worth keep it; those that accept one which is in use, thereby
// or already, take it, the fastest if there are several; then again and again the configuration
// that most of the remaining shapes accept serves all of these.
std::vector<std::size_t> assign(const Group& group, const std::vector<ShapeTimes>& shapes,
                                const Fewness& few) {
  std::vector<std::size_t> assigned(shapes.size());
  std::vector<std::set<std::size_t>> accepted;
  std::vector<std::size_t> used(few.in_use.begin(), few.in_use.end());
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    accepted.push_back(acceptable(group, shapes[i], few.worth));
    assigned[i] = shapes[i].otherwise;
    const bool keeps = accepted[i].contains(shapes[i].otherwise);
    (keeps ? used : open).push_back(keeps ? shapes[i].otherwise : i);
  }
  while (!open.empty()) {
    std::sort(used.begin(), used.end());
    std::erase_if(open, [&](std::size_t shape) {
      std::vector<std::size_t> both;
      std::set_intersection(used.begin(), used.end(), accepted[shape].begin(),
                            accepted[shape].end(), std::back_inserter(both));
      if (both.empty()) return false;
      assigned[shape] = *fastest(shapes[shape], both);
      return true;
    });
    if (!open.empty()) used = {most_accepted(group, shapes, accepted, open)};
  }
  return assigned;
}

}  // namespace

std::optional<Selection> select(const std::vector<Configuration>& configurations,
                                const std::vector<ShapeTimes>& shapes, double worth,
                                const Fewness& few, std::string_view agreed_path) {
  if (shapes.empty()) return std::nullopt;
  const std::vector<Group> groups = groups_of(configurations);
  const Group* group = choose_group(groups, shapes, worth, agreed_path);
  if (group == nullptr && !agreed_path.empty()) group = choose_group(groups, shapes, worth, {});
  if (group == nullptr) return std::nullopt;
  Group everything;
  everything.members.resize(configurations.size());
  std::iota(everything.members.begin(), everything.members.end(), std::size_t{0});
  Selection selection{.bits = group->bits, .finalists = {}};
  const std::vector<std::size_t> best = assign(everything, shapes, few);
  const std::vector<std::size_t> agreed = assign(*group, shapes, few);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    selection.finalists.push_back({.best = best[i],
                                   .runner_up = fastest(shapes[i], everything.members, best[i]),
                                   .otherwise = shapes[i].otherwise,
                                   .agreed = agreed[i]});
  }
  return selection;
}

}  // namespace cubinery
