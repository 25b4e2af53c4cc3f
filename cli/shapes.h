// Which sizes of launches are tuned, on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/status.h"
#include "cubinery/tuning.h"
#include "harness/operators.h"
#include "runtime/registry/operators.h"

namespace cubinery {

// "1,3,8:64": numbers and ranges, a:b standing for a, 2a, 4a and so on up to b.  In order, each
// once.  nullopt: anything else, and numbers outside 1 to 2^30.
std::optional<std::vector<std::int64_t>> parse_sizes(std::string_view text);

// "90s", "10m", "2h"; nullopt: anything else, and what is not positive.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// The grid's shapes that a problem can have.
std::vector<Shape> shapes_of(const Problem& problem, const ShapeGrid& grid);

// An option for each size of the operators' shapes.
class ShapeOptions {
 public:
  // Requires: this object outlives the parse and does not move.
  void add_to(CLI::App& app);

  bool is_empty() const;  // none is given

  // kInvalidArgument: a value that cannot be read, or sizes of an operator that no problem is of.
  Result<ShapeGrid> grid(const std::vector<Problem>& problems) const;

 private:
  std::map<std::string, std::string, std::less<>> texts_;  // by size; empty: not given
};

}  // namespace cubinery
