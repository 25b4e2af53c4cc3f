// Who picks a configuration for each cell of an operator's plan: measured answers, then the cost
// model.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/tuning.h"
#include "tuner/choose/choose.h"

namespace cubinery {

class Chooser {
 public:
  // `defaults`: the configurations that the cost model chooses from; they agree in the fields that
  // change bits.  Where answers disagree with them there, it chooses among the answers'
  // configurations instead, so that all options agree.  `answers` must outlive the chooser; null:
  // there are none, for the reason `why_not`.
  Chooser(std::vector<std::vector<TunedValue>> defaults, const Answers* answers,
          std::string_view why_not);

  // Everything that can be picked.
  const std::vector<std::vector<TunedValue>>& options() const { return options_; }

  // What picks point to; grows with them.
  const std::vector<Chosen>& choices() const { return choices_; }

  struct Pick {
    std::size_t option = 0;  // of options()
    std::size_t choice = 0;  // of choices()
  };
  // For the shape with these features; `cost` is asked where nobody measured, and what is about as
  // good goes to the first.  A result for another shape is not taken where its configuration costs
  // much more than the cheapest.
  Pick pick(const Shape& features, const std::function<double(std::size_t)>& cost);

 private:
  Pick answered(const Answers::Nearest& nearest);
  std::size_t cheapest(const std::function<double(std::size_t)>& cost) const;

  const Answers* answers_ = nullptr;  // null: none that can answer
  std::vector<std::vector<TunedValue>> options_;
  std::size_t modelled_ = 0;  // the first of options_: what the cost model chooses from
  std::string why_not_;
  // For each option, by the model, then once more, where a result was passed over; then those of
  // answered_.
  std::vector<Chosen> choices_;
  std::vector<std::pair<Answers::Nearest, Pick>> answered_;
};

// The configurations that results can give a question of an architecture, whatever the GPU and
// whatever version of NVRTC compiled them.
std::vector<std::vector<TunedValue>> possible_configurations(
    Question question, const std::vector<TuningResult>& results);

}  // namespace cubinery
