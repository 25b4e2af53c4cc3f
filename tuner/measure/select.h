// From measurements of several shapes to one configuration for each, which agree in the fields that
// change bits.  Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "cubinery/tuning.h"

namespace cubinery {

// Times of one shape, by configuration; nullopt: not measured, or rejected.
struct ShapeTimes {
  std::vector<std::optional<double>> ms;
  std::size_t otherwise = 0;  // the default
};

// What goes into the run-off of one shape.
struct Finalists {
  std::size_t best = 0;
  std::optional<std::size_t> runner_up{};  // the fastest of the others
  std::size_t otherwise = 0;               // the default
  std::size_t agreed = 0;                  // the best of those that have Selection::bits
};

struct Selection {
  std::vector<TunedValue> bits;      // what the agreed ones agree in
  std::vector<Finalists> finalists;  // by shape
};

// How few configurations are to serve all shapes.
struct Fewness {
  double worth = 0;  // another configuration must be faster by more than this (0.01 is 1 %)
  std::set<std::size_t> in_use{};  // those that must be had for other reasons
};

// Any configuration may be a shape's best; the agreed ones have one value of each bit-changing
// field for all shapes together: those with the least mean of log(time / best time of the shape),
// among those that every shape has a time for and that make no shape slower than its default by
// more than `worth` (0.01 is 1 %); the usual ones when these are not worse by more than `worth`.
// The usual ones are those of the first shape's default; a shape whose default has others is
// compared with its fastest configuration that has the usual ones.  Then fewer configurations
// are better than many: one that is within `few.worth` of a shape's best and already serves another
// shape, or is in use, is taken there too; a default that is within `few.worth` goes before all. On
// ties the lower index counts.
//
// `agreed_path`: the agreed ones are of this path, whatever the defaults are, unless no values of
// it have a time for every shape (a searched space measures few); empty: of any.
//
// nullopt: no shapes, or no values of the bit-changing fields that are possible for all.
std::optional<Selection> select(const std::vector<Configuration>& configurations,
                                const std::vector<ShapeTimes>& shapes, double worth,
                                const Fewness& few, std::string_view agreed_path = {});

}  // namespace cubinery
