// Seeded random numbers that are the same everywhere (the standard library's distributions are
// not).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace cubinery {

class Random {
 public:
  // Streams with the same seed and another `stream` are independent.
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(seed * 0x9e3779b97f4a7c15u + stream * 0xd1b54a32d192ed03u) {
    next();
  }

  // splitmix64
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [low, high).
  double uniform(double low = 0, double high = 1) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
  }

  // Mean 0, variance 1, near normal: the sum of four uniform numbers.  Cheap enough for whole
  // states.
  float normal() {
    const std::uint64_t bits = next();
    const std::uint64_t sum =
        (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
    return (static_cast<float>(sum) * 0x1p-16f - 2.0f) * std::sqrt(3.0f);
  }

  // Uniform in [0, count).
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }

  // The numbers first, first + 1, ... in random order.
  std::vector<std::int64_t> permutation(std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), first);
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
    }
    return order;
  }

  // So many numbers up to `most` in ascending order, 0 in place of those that were drawn before.
  std::vector<std::int64_t> ascending(std::int64_t count, std::int64_t most) {
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(count));
    for (std::int64_t& number : drawn) number = below(most + 1);
    std::sort(drawn.begin(), drawn.end());
    for (std::size_t i = drawn.size(); i > 1; --i) {
      if (drawn[i - 1] == drawn[i - 2]) drawn[i - 1] = 0;
    }
    return drawn;
  }

 private:
  std::uint64_t state_;
};

}  // namespace cubinery
