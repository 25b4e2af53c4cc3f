#include "runtime/operator/plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "results/shape.h"
#include "results/space.h"

namespace cubinery {
namespace {

// A candidate must be this much cheaper than those before it: the model knows no better.
constexpr double kWorthAnother = 0.02;

// Where the model says that a neighbour's candidate is this much slower than another, it is right.
constexpr double kDoubt = 0.1;

Choice choice_of(const std::vector<TunedValue>& values, Rung rung, std::string why) {
  return {.path = std::string(path_of(values)),
          .configuration = to_text(values),
          .rung = rung,
          .why = std::move(why)};
}

// The size in the middle of cell `index`.
Point point_at(const std::vector<Axis>& axes, std::size_t index) {
  Point point{1, 1, 1};
  for (std::size_t i = axes.size(); i-- > 0; index /= axes[i].count) {
    point[i] = std::int64_t{1} << (axes[i].first + index % axes[i].count);
  }
  return point;
}

// Who picks a candidate for each cell.
class Chooser {
 public:
  Chooser(Alternatives alternatives, const Ladder* ladder, std::string_view why_not);

  // Everything that can be picked.
  const Candidates& candidates() const { return candidates_; }
  // What cells point to, which grows with them.
  const std::vector<Choice>& choices() const& { return choices_; }
  std::vector<Choice> choices() && { return std::move(choices_); }

  // For a launch of this size, whose features are known.
  Plan::Cell pick(const Shape& features, const Point& at);

 private:
  static Plan::Cell cell(std::size_t candidate, std::size_t choice) {
    return {static_cast<std::uint16_t>(candidate), static_cast<std::uint16_t>(choice)};
  }
  // A candidate's first choice, for another reason.
  Choice as_for(std::size_t candidate, Rung rung, std::string why) const;
  Plan::Cell cell_of(const Ladder::Nearest& nearest);
  struct Cheapest {
    std::size_t candidate;
    double us;
  };
  Cheapest cheapest(const Point& at) const;

  const Ladder* ladder_ = nullptr;  // null: none that can be taken
  Candidates candidates_;
  std::vector<std::vector<TunedValue>> values_;  // of candidates_
  std::size_t modelled_;  // the first of candidates_: what the cost model chooses from
  // For each candidate, by the model, then once more, where a result was passed over; then those of
  // from_results_.
  std::vector<Choice> choices_;
  std::vector<std::pair<Ladder::Nearest, Plan::Cell>> from_results_;
};

Chooser::Chooser(Alternatives alternatives, const Ladder* ladder, std::string_view why_not)
    : candidates_(std::move(alternatives.defaults)), modelled_(candidates_.size()) {
  for (const auto& candidate : candidates_) values_.push_back(candidate->values());
  std::string why_modelled(why_not);
  std::vector<std::vector<TunedValue>> measured;
  if (ladder != nullptr) {
    measured = ladder->configurations();
    why_modelled = ladder->why_none();
  }
  if (!measured.empty()) {
    ladder_ = ladder;
    if (alternatives.one_value_of_bits && bits_of(measured.front()) != bits_of(values_.front())) {
      candidates_.clear();
      values_.clear();
      modelled_ = measured.size();
    }
  }
  for (std::vector<TunedValue>& values : measured) {
    if (std::find(values_.begin(), values_.end(), values) != values_.end()) continue;
    candidates_.push_back(alternatives.find(values));
    values_.push_back(std::move(values));
  }
  for (const auto& values : values_) {
    choices_.push_back(choice_of(values, Rung::kDefault, why_modelled));
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    choices_.push_back(as_for(i, Rung::kDefault,
                              "what is fastest for the nearest measured shape would be slower "
                              "here, by the cost model"));
  }
}

Choice Chooser::as_for(std::size_t candidate, Rung rung, std::string why) const {
  Choice choice = choices_[candidate];
  choice.rung = rung;
  choice.why = std::move(why);
  return choice;
}

Plan::Cell Chooser::pick(const Shape& features, const Point& at) {
  std::optional<Ladder::Nearest> nearest;
  if (ladder_ != nullptr) nearest = ladder_->nearest(features);
  if (nearest && (nearest->rung == Rung::kExact || nearest->is_here)) return cell_of(*nearest);
  const auto [cheap, least_us] = cheapest(at);
  if (!nearest) return cell(cheap, cheap);
  const Plan::Cell known = cell_of(*nearest);
  if (candidates_[known.candidate]->us(at) <= least_us * (1 + kDoubt)) return known;
  return cell(cheap, candidates_.size() + cheap);
}

Plan::Cell Chooser::cell_of(const Ladder::Nearest& nearest) {
  const auto same = [&](const auto& known) { return known.first == nearest; };
  const auto known = std::find_if(from_results_.begin(), from_results_.end(), same);
  if (known != from_results_.end()) return known->second;
  const std::vector<TunedValue>& values = ladder_->configuration(nearest);
  const auto found = std::find(values_.begin(), values_.end(), values);
  const auto candidate = static_cast<std::size_t>(found - values_.begin());
  const Plan::Cell made = cell(candidate, choices_.size());
  choices_.push_back(as_for(candidate, nearest.rung, ladder_->why(nearest)));
  from_results_.emplace_back(nearest, made);
  return made;
}

Chooser::Cheapest Chooser::cheapest(const Point& at) const {
  Cheapest best{0, candidates_[0]->us(at)};
  for (std::size_t i = 1; i < modelled_; ++i) {
    const double us = candidates_[i]->us(at);
    if (us < best.us * (1 - kWorthAnother)) best = {i, us};
  }
  return best;
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

Plan make_plan(const Sizes& sizes, Alternatives alternatives, const Ladder* ladder,
               std::string_view why_not) {
  Chooser chooser(std::move(alternatives), ladder, why_not);
  Plan plan{.axes = sizes.axes, .cells = {}, .candidates = {}, .choices = {}};
  std::size_t count = 1;
  for (const Axis& axis : sizes.axes) count *= axis.count;
  plan.cells.resize(count);
  std::vector<std::optional<std::uint16_t>> places(chooser.candidates().size());
  std::vector<std::size_t> same(count);  // the cell that a launch of this one's size has
  for (std::size_t i = 0; i < count; ++i) {
    const Point at = sizes.possible(point_at(plan.axes, i));
    same[i] = plan.index(at);
    if (same[i] != i) continue;
    const Plan::Cell picked = chooser.pick(sizes.features(at), at);
    std::optional<std::uint16_t>& place = places[picked.candidate];
    if (!place) {
      place = static_cast<std::uint16_t>(plan.candidates.size());
      plan.candidates.push_back(chooser.candidates()[picked.candidate]);
    }
    plan.cells[i] = {*place, picked.choice};
    plan.uses_results |= chooser.choices()[picked.choice].rung != Rung::kDefault;
  }
  for (std::size_t i = 0; i < count; ++i) plan.cells[i] = plan.cells[same[i]];
  plan.choices = std::move(chooser).choices();
  return plan;
}

Plan one_choice_plan(std::shared_ptr<const Candidate> candidate) {
  Choice choice = choice_of(candidate->values(), Rung::kDefault, "chosen by the caller");
  return {.axes = {},
          .cells = {{}},
          .candidates = {std::move(candidate)},
          .choices = {std::move(choice)}};
}

}  // namespace cubinery
