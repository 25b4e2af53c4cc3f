// How far computed values may be from the reference, and how far they are.
#pragma once

#include <array>
#include <cstdint>

namespace cubinery {

// |a - b|; 0 when both are the same infinity or both NaN, infinite when only one is.
double distance(double a, double b);

// The worst element of a tensor, and the budget it is held to: twice the worst error of naive
// arithmetic in the operator's precision on the same data, plus a floor of 1e-6 of the largest
// value.
struct Deviation {
  // Request or sequence, head, token or checkpoint, and element: (d) of o, (i, j) of a state S.
  using Index = std::array<std::int64_t, 5>;

  double worst = 0;
  double actual = 0;
  double expected = 0;
  Index index{};
  double naive = 0;
  double magnitude = 0;

  // What naive arithmetic makes of an element.
  void add_naive(double naive_value, double expected_value);
  // What the operator made of it.
  void add_actual(double actual_value, double expected_value, const Index& at);
  void add(double actual_value, double naive_value, double expected_value, const Index& at) {
    add_naive(naive_value, expected_value);
    add_actual(actual_value, expected_value, at);
  }
  void merge(const Deviation& other);
  double budget() const { return 2 * naive + 1e-6 * magnitude; }
  // A naive result that is not finite where the reference is would make any budget: it never
  // passes.
  bool ok() const;
};

}  // namespace cubinery
