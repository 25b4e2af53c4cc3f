// What launches of an operator run, for every size, and why: measured results, then the cost model.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "cubinery/rung.h"
#include "results/choose.h"
#include "runtime/operator/path.h"

namespace cubinery {

using Candidates = std::vector<std::shared_ptr<const Candidate>>;

// Immutable.  Cells lie at powers of two along the axes; sizes in between belong to the nearest (in
// the logarithm), sizes beyond the last cell to that.
struct Plan {
  struct Cell {
    std::uint16_t candidate = 0;  // of `candidates`
    std::uint16_t choice = 0;     // of `choices`
  };

  std::vector<Axis> axes;
  std::vector<Cell> cells;
  Candidates candidates;  // those that some cell has
  std::vector<Choice> choices;
  bool uses_results = false;  // some cell was measured

  // Of `cells`, for any size.
  std::size_t index(const Point& at) const;
  const Cell& cell(const Point& at) const { return cells[index(at)]; }
  const Candidate& candidate(const Point& at) const { return *candidates[cell(at).candidate]; }
  const Choice& choice(const Point& at) const { return choices[cell(at).choice]; }
};

// What an operator says of its sizes, for one problem.
struct Sizes {
  std::vector<Axis> axes;
  // The nearest size that a launch can have: no more work is skewed than there is, say.  It has
  // what no axis says.
  std::function<Point(const Point&)> possible;
  std::function<Shape(const Point&)> features;
};

// What there is to choose from for one problem.
struct Alternatives {
  Candidates defaults{};  // what the cost model chooses from
  // The defaults agree in the fields that change bits, and so do the results; where these disagree
  // with those, the model chooses among the results' candidates instead, so that all cells agree.
  bool one_value_of_bits = false;
  // Of values that a result has.
  std::function<std::shared_ptr<const Candidate>(const std::vector<TunedValue>&)> find{};
};

// For each cell what a result says, and the model where nobody measured: what is about as good
// goes to the first.  A result for another shape is not taken where it costs much more than the
// cheapest.  `ladder`: null: there are none, for the reason `why_not`.
Plan make_plan(const Sizes& sizes, Alternatives alternatives, const Ladder* ladder,
               std::string_view why_not);
// One candidate for all sizes, chosen by the caller.
Plan one_choice_plan(std::shared_ptr<const Candidate> candidate);

}  // namespace cubinery
