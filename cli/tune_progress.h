// Where a run of several tune() calls is, on stderr.
#pragma once

#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "cubinery/tuning.h"

namespace cubinery {

// "37/108 timing 142.1 us (-3.2 %) states=256: warps=4;stages=2": of a shape so far, the time of
// its best, how that compares with the default, and which it is.
std::string describe(const TuneProgress& at);

// A line that redraws itself on a terminal; one line per finished bucket elsewhere.
class TuneProgressLine {
 public:
  // As Progress; `buckets`: of every space.
  TuneProgressLine(std::FILE* out, bool is_terminal, const std::vector<std::size_t>& buckets)
      : progress_(out, is_terminal,
                  std::accumulate(buckets.begin(), buckets.end(), std::size_t{0})),
        done_(buckets.size()) {}

  // In front of every call of tune(), be it a second one for this space.
  void start_call(std::size_t space);
  void update(const TuneProgress& at);

 private:
  Progress progress_;
  std::vector<std::size_t> done_;  // buckets, by space
  std::size_t space_ = 0;          // of this call
  std::string last_;
};

}  // namespace cubinery
