#include "runtime/operator/chooser.h"

#include <algorithm>

#include "tuner/choose/space.h"

namespace cubinery {
namespace {

// An option must be this much cheaper than those before it: the model knows no better.
constexpr double kWorthAnother = 0.02;

// Where the model says that a neighbour's configuration is this much slower than another, it is
// right.
constexpr double kDoubt = 0.1;

}  // namespace

Chooser::Chooser(std::vector<std::vector<TunedValue>> defaults, const Answers* answers,
                 std::string_view why_not)
    : options_(std::move(defaults)), modelled_(options_.size()), why_not_(why_not) {
  std::vector<std::vector<TunedValue>> measured;
  if (answers != nullptr) {
    measured = answers->configurations();
    why_not_ = answers->unanswered();
  }
  if (!measured.empty()) {
    answers_ = answers;
    if (bits_of(measured.front()) != bits_of(options_.front())) {
      options_.clear();
      modelled_ = measured.size();
    }
  }
  for (std::vector<TunedValue>& values : measured) {
    if (std::find(options_.begin(), options_.end(), values) == options_.end()) {
      options_.push_back(std::move(values));
    }
  }
  for (const std::vector<TunedValue>& values : options_) {
    choices_.push_back({to_text(values), Rung::kDefault, why_not_});
  }
  for (std::size_t option = 0; option < options_.size(); ++option) {
    choices_.push_back({choices_[option].configuration, Rung::kDefault,
                        "what is fastest for the nearest measured shape would be slower here, by "
                        "the cost model"});
  }
}

Chooser::Pick Chooser::pick(const Shape& features, const std::function<double(std::size_t)>& cost) {
  std::optional<Answers::Nearest> nearest;
  if (answers_ != nullptr) nearest = answers_->nearest(features);
  if (nearest && (nearest->rung == Rung::kExact || nearest->is_here)) return answered(*nearest);
  const std::size_t option = cheapest(cost);
  if (!nearest) return {.option = option, .choice = option};
  const Pick pick = answered(*nearest);
  if (cost(pick.option) <= cost(option) * (1 + kDoubt)) return pick;
  return {.option = option, .choice = options_.size() + option};
}

Chooser::Pick Chooser::answered(const Answers::Nearest& nearest) {
  const auto same = [&](const auto& known) { return known.first == nearest; };
  const auto known = std::find_if(answered_.begin(), answered_.end(), same);
  if (known != answered_.end()) return known->second;
  const std::vector<TunedValue>& values = nearest.result->configuration;
  const auto found = std::find(options_.begin(), options_.end(), values);
  const Pick pick{.option = static_cast<std::size_t>(found - options_.begin()),
                  .choice = choices_.size()};
  choices_.push_back({to_text(values), nearest.rung, answers_->why(nearest)});
  answered_.emplace_back(nearest, pick);
  return pick;
}

std::size_t Chooser::cheapest(const std::function<double(std::size_t)>& cost) const {
  std::size_t best = 0;
  double least = cost(0);
  for (std::size_t i = 1; i < modelled_; ++i) {
    const double here = cost(i);
    if (here < least * (1 - kWorthAnother)) best = i, least = here;
  }
  return best;
}

std::vector<std::vector<TunedValue>> possible_configurations(
    Question question, const std::vector<TuningResult>& results) {
  question.toolchain.nvrtc.clear();
  std::vector<std::vector<TunedValue>> found;
  for (const TuningResult& result : results) {
    if (result.setting.op != question.op) continue;
    // Each alone: which of those that disagree counts depends on the GPU.
    const std::vector<TuningResult> alone{result};
    for (std::vector<TunedValue>& values : Answers(question, alone).configurations()) {
      if (std::find(found.begin(), found.end(), values) == found.end()) {
        found.push_back(std::move(values));
      }
    }
  }
  return found;
}

}  // namespace cubinery
