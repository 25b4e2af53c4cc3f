// Whether a launch on the tuner's operands computes what it should: part of it against the double
// reference.
#pragma once

#include <cmath>
#include <cstdint>

#include "benchmarks/bench.h"
#include "cubinery/gdn.h"
#include "harness/operands.h"

namespace cubinery::bench {

// Error of many values: root of the sum of squares, relative to that of the expected ones.
class RelativeRms {
 public:
  void add(double actual, double expected) {
    ++count_;
    square_ += (actual - expected) * (actual - expected);
    norm_ += expected * expected;
  }
  bool empty() const { return count_ == 0; }
  double value() const { return std::sqrt(square_ / norm_); }

 private:
  std::int64_t count_ = 0;
  double square_ = 0;
  double norm_ = 0;
};

// Of one launch, against the double reference; either may be empty.
struct Errors {
  RelativeRms o{};
  RelativeRms state{};
};

// Ten times what rounding costs with any distribution of the gates; a wrong kernel is further off.
inline constexpr double kLargestError = 0.05;

// Launch once on set 0, whose states must be as they were made, and compare: a few requests of a
// decode, a verification or a commit of one layer (of this its states alone; and the states after
// their last tokens, where only these are kept); two heads of the shortest and of the longest
// sequence of a prefill, their first 4096 tokens, and their final state where that is the whole
// sequence.
template <class Operator>
Errors launch_errors(const Operator& prepared, const Gpu& gpu, const GdnOperands& operands);

}  // namespace cubinery::bench
