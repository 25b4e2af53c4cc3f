// Where a run of several tune() calls is, on stderr.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include "cli/progress.h"
#include "cubinery/tuning.h"

namespace cubinery {

// "37/108 timing 142.1 us (-3.2 %) states=256: warps=4;stages=2": of a shape so far, the time of
// its best, how that compares with the default, and which it is.
std::string describe(const TuneProgress& at);

// A line that redraws itself on a terminal; one line per finished bucket elsewhere.
class TuneProgressLine {
 public:
  // As Progress; `buckets`: of all calls together.
  TuneProgressLine(std::FILE* out, bool is_terminal, std::size_t buckets)
      : progress_(out, is_terminal, buckets) {}

  // In front of every call of tune().
  void start_call();
  void update(const TuneProgress& at);

 private:
  Progress progress_;
  std::size_t done_ = 0;  // buckets of this call
  std::string last_;
};

}  // namespace cubinery
