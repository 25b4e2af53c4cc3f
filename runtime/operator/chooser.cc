#include "runtime/operator/chooser.h"

#include <algorithm>

#include "results/space.h"

namespace cubinery {
namespace {

// An option must be this much cheaper than those before it: the model knows no better.
constexpr double kWorthAnother = 0.02;

// Where the model says that a neighbour's configuration is this much slower than another, it is
// right.
constexpr double kDoubt = 0.1;

Chosen chosen(const std::vector<TunedValue>& values, Rung rung, std::string why) {
  return {std::string(path_of(values)), to_text(values), rung, std::move(why)};
}

}  // namespace

Chooser::Chooser(
    std::vector<Option> defaults, bool one_value_of_bits, const Answers* answers,
    std::string_view why_not,
    const std::function<std::function<double(const Point&)>(const std::vector<TunedValue>&)>& cost)
    : options_(std::move(defaults)), modelled_(options_.size()) {
  std::string why_modelled(why_not);
  std::vector<std::vector<TunedValue>> measured;
  if (answers != nullptr) {
    measured = answers->configurations();
    why_modelled = answers->unanswered();
  }
  if (!measured.empty()) {
    answers_ = answers;
    if (one_value_of_bits && bits_of(measured.front()) != bits_of(options_.front().values)) {
      options_.clear();
      modelled_ = measured.size();
    }
  }
  for (std::vector<TunedValue>& values : measured) {
    const auto same = [&](const Option& option) { return option.values == values; };
    if (std::none_of(options_.begin(), options_.end(), same)) {
      options_.push_back({values, cost(values)});
    }
  }
  for (const Option& option : options_) {
    choices_.push_back(chosen(option.values, Rung::kDefault, why_modelled));
  }
  for (const Option& option : options_) {
    choices_.push_back(chosen(option.values, Rung::kDefault,
                              "what is fastest for the nearest measured shape would be slower "
                              "here, by the cost model"));
  }
}

Chooser::Pick Chooser::pick(const Shape& features, const Point& at) {
  std::optional<Answers::Nearest> nearest;
  if (answers_ != nullptr) nearest = answers_->nearest(features);
  if (nearest && (nearest->rung == Rung::kExact || nearest->is_here)) return answered(*nearest);
  const std::size_t option = cheapest(at);
  if (!nearest) return {.option = option, .choice = option};
  const Pick pick = answered(*nearest);
  if (options_[pick.option].us(at) <= options_[option].us(at) * (1 + kDoubt)) return pick;
  return {.option = option, .choice = options_.size() + option};
}

Chooser::Pick Chooser::answered(const Answers::Nearest& nearest) {
  const auto same = [&](const auto& known) { return known.first == nearest; };
  const auto known = std::find_if(answered_.begin(), answered_.end(), same);
  if (known != answered_.end()) return known->second;
  const std::vector<TunedValue>& values = answers_->configuration(nearest);
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& option) { return option.values == values; });
  const Pick pick{.option = static_cast<std::size_t>(found - options_.begin()),
                  .choice = choices_.size()};
  choices_.push_back(chosen(values, nearest.rung, answers_->why(nearest)));
  answered_.emplace_back(nearest, pick);
  return pick;
}

std::size_t Chooser::cheapest(const Point& at) const {
  std::size_t best = 0;
  double least = options_[0].us(at);
  for (std::size_t i = 1; i < modelled_; ++i) {
    const double here = options_[i].us(at);
    if (here < least * (1 - kWorthAnother)) best = i, least = here;
  }
  return best;
}

}  // namespace cubinery
