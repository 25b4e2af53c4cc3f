// Operands of the benchmarks: made on the host, compared on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "benchmarks/bench.h"
#include "harness/gdn_operands.h"

namespace cubinery::bench {

// The tuner's operands on this device.
GdnOperands make_operands(const Gpu& gpu, const GdnProblem& problem, GdnOperands::Options options);

// `count` elements of a tensor of set 0, from element `first` on.
std::vector<double> values(const GdnOperands& operands, GdnTensor tensor, std::int64_t first,
                           std::int64_t count);

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

// Of one launch, against the double reference.
struct Errors {
  RelativeRms o;
  RelativeRms state;  // may be empty
};

}  // namespace cubinery::bench
