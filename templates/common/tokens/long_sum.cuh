// Sums whose differences are as precise as fp32 is, however large the sums have become.
#pragma once

namespace cubinery::dev {

// high + low, and low is what high was rounded by.  Strong gates make sums of thousands; decays
// between neighbours, which are their differences, would otherwise be off by e^0.0001.
struct LongSum {
  float high = 0.0f, low = 0.0f;
};

// Knuth, The Art of Computer Programming 2, 4.2.2, theorem B: the rounding error of a sum.
__device__ inline LongSum operator+(LongSum a, LongSum b) {
  const float high = a.high + b.high;
  const float of_b = high - a.high;
  const float error = (a.high - (high - of_b)) + (b.high - of_b);
  return {high, a.low + b.low + error};
}

__device__ inline float operator-(LongSum a, LongSum b) {
  return (a.high - b.high) + (a.low - b.low);
}

__device__ inline LongSum shfl(LongSum x, int lane, int width = 32) {
  return {__shfl_sync(0xffffffffu, x.high, lane, width),
          __shfl_sync(0xffffffffu, x.low, lane, width)};
}

}  // namespace cubinery::dev
