// Who picks a configuration for each cell of an operator's table: measured answers, then the cost
// model.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/tuning.h"
#include "results/choose.h"
#include "runtime/operator/path.h"

namespace cubinery {

// What may be picked, and what a launch of it would cost in microseconds.
struct Option {
  std::vector<TunedValue> values;
  std::function<double(const Point&)> us;
};

class Chooser {
 public:
  // `defaults`: what the cost model chooses from.  `answers` must outlive the chooser; null: there
  // are none, for the reason `why_not`.  `cost`: of a configuration that answers have.
  //
  // With `one_value_of_bits` the defaults agree in the fields that change bits, and so do the
  // answers; where these disagree with those, the model chooses among the answers' configurations
  // instead, so that all options agree.
  Chooser(std::vector<Option> defaults, bool one_value_of_bits, const Answers* answers,
          std::string_view why_not,
          const std::function<std::function<double(const Point&)>(const std::vector<TunedValue>&)>&
              cost);

  // Everything that can be picked.
  const std::vector<Option>& options() const { return options_; }

  // What picks point to; grows with them.
  const std::vector<Chosen>& choices() const { return choices_; }

  struct Pick {
    std::size_t option = 0;  // of options()
    std::size_t choice = 0;  // of choices()
  };
  // For a launch of this size, whose features are known.  The model is asked where nobody measured;
  // what is about as good goes to the first.  A result for another shape is not taken where its
  // configuration costs much more than the cheapest.
  Pick pick(const Shape& features, const Point& at);

 private:
  Pick answered(const Answers::Nearest& nearest);
  std::size_t cheapest(const Point& at) const;

  const Answers* answers_ = nullptr;  // null: none that can answer
  std::vector<Option> options_;
  std::size_t modelled_ = 0;  // the first of options_: what the cost model chooses from
  // For each option, by the model, then once more, where a result was passed over; then those of
  // answered_.
  std::vector<Chosen> choices_;
  std::vector<std::pair<Answers::Nearest, Pick>> answered_;
};

}  // namespace cubinery
