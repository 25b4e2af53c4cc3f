// What launches of an operator run, for every size, and why.  Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/operator/chooser.h"
#include "runtime/operator/path.h"

namespace cubinery {

// Immutable.  Cells lie at powers of two along the axes; sizes in between belong to the nearest (in
// the logarithm), sizes beyond the last cell to that.
struct Plan {
  struct Cell {
    std::uint16_t configuration = 0;  // of `configurations`
    std::uint16_t chosen = 0;         // of `choices`
  };

  std::vector<Axis> axes;
  std::vector<Cell> cells;
  std::vector<std::vector<TunedValue>> configurations;  // those that some cell has
  std::vector<Chosen> choices;
  bool uses_results = false;  // some cell was measured

  // Of `cells`, for any size.
  std::size_t index(const Point& at) const;
  const Cell& cell(const Point& at) const { return cells[index(at)]; }
  const std::vector<TunedValue>& values(const Point& at) const {
    return configurations[cell(at).configuration];
  }
  const Chosen& chosen(const Point& at) const { return choices[cell(at).chosen]; }
};

// What an operator says of its sizes, for one problem.
struct Sizes {
  std::vector<Axis> axes;
  // The nearest size that a launch can have: no more work is skewed than there is, say.  It has
  // what no axis says.
  std::function<Point(const Point&)> possible;
  std::function<Shape(const Point&)> features;
};

Plan make_plan(const Sizes& sizes, Chooser chooser);
// One configuration for all sizes, chosen by the caller.
Plan one_choice_plan(std::vector<TunedValue> values);

}  // namespace cubinery
