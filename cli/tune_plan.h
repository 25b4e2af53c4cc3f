// From problems and shapes to what is measured.  Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/left_out.h"
#include "cli/model_config.h"
#include "cli/shapes.h"
#include "cli/shard.h"
#include "cubinery/status.h"
#include "cubinery/tuning.h"

namespace cubinery {

// The shape that is measured for its bucket.
struct PlannedShape {
  Shape shape;  // head counts among its sizes
  std::string bucket;
  std::string origin;      // of the request that it came from
  std::size_t shapes = 1;  // that fall into the bucket, itself among them
};

// Problems whose kernels differ in nothing but tuned fields share measurements: what one call of
// tune() measures.
struct TuneSpace {
  std::string op;
  std::string text;  // TuningSpace::problem
  std::size_t configurations = 0;
  Problem problem{};         // the first of them
  std::size_t problems = 0;  // requests with this space
  std::vector<PlannedShape> buckets{};

  std::size_t shapes() const;  // of all buckets
  // At most: every configuration for every bucket.
  std::size_t measurements() const { return buckets.size() * configurations; }
};

// Spaces and buckets in the order in which requests and shapes name them first.  Of the shapes of
// one bucket the one nearest to its middle is measured, of those equally near the first.  Requests
// for another architecture than `arch` are left out, as are those in whose place another stands and
// that no path computes there: these go to *left_out.  `paths`: Options::paths.
//
// kInvalidArgument: `arch` is not known, or a problem has none of the grid's shapes.
Result<std::vector<TuneSpace>> plan_tuning(const std::vector<Request>& requests,
                                           const ShapeGrid& grid, std::string_view arch,
                                           const std::vector<std::string>& paths = {},
                                           LeftOuts* left_out = nullptr);

// The shard's share of the spaces, in their order: whole ones, whose settings must agree in what
// changes bits, of about the same number of measurements.  The shards of one list are disjoint and
// cover it, whatever order it is in; where there are more of them than spaces, some are empty.
std::vector<TuneSpace> select_shard(std::vector<TuneSpace> spaces, const Shard& shard);

// Of each result in the files its problem, at its shape: to measure again what other code of the
// kernels or another compiler has made stale, or on another GPU.  Shapes of one bucket as above.
//
// kInvalidArgument: `arch` is not known, a file has no result, or a result is of no problem that
// the library has; kIo: a file cannot be read.
Result<std::vector<TuneSpace>> plan_tuning_again(const std::vector<std::string>& files,
                                                 std::string_view arch,
                                                 const std::vector<std::string>& paths = {});

}  // namespace cubinery
