// Which configurations are measured, and in which order.  Pure: knows no clock and no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cubinery/tuning.h"

namespace cubinery {

// Deterministic: the same calls give the same order.
class Search {
 public:
  // `first`, the default, comes first.  Spaces of at most `exhaustive_up_to` configurations are
  // gone through in their order.  Of larger ones, seeded random ones come first (kRandomShare of
  // what exhaustive_up_to allows), then neighbours of the best so far (one tuned field moved to the
  // next value that the space has), and random ones again where there are none left.
  //
  // Requires: first is an index of configurations.
  Search(const std::vector<Configuration>& configurations, std::size_t first,
         std::size_t exhaustive_up_to, std::uint64_t seed);

  // The next configuration to measure, each once; nullopt: all have been.  What tell() has heard of
  // before it was asked for (a time of an earlier run) is not asked for.
  std::optional<std::size_t> next();
  // Its time; nullopt: rejected.
  void tell(std::size_t configuration, std::optional<double> ms);

 private:
  static constexpr double kRandomShare = 0.25;
  // How many of the best have neighbours looked at: one alone may be walled in by rejected ones.
  static constexpr std::size_t kStarts = 3;

  // For each field, in the order of the configuration, the place of its value among those that the
  // space has for it.
  using Point = std::vector<int>;

  std::size_t take(std::size_t configuration);
  std::optional<std::size_t> neighbour_of(std::size_t configuration) const;

  std::vector<Point> points_;                           // by configuration; empty when exhaustive
  std::map<Point, std::size_t> configurations_;         // the way back
  std::vector<std::size_t> order_;                      // all of them: by number, or at random
  std::size_t in_order_ = 0;                            // how much of it was gone through
  std::size_t at_random_;                               // how many come before any neighbour
  std::vector<bool> taken_;                             // by configuration: asked for or told
  std::vector<std::pair<double, std::size_t>> best_{};  // the kStarts best, by time
};

}  // namespace cubinery
