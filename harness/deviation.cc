#include "harness/deviation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cubinery {

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
}

void Deviation::add_naive(double naive_value, double expected_value) {
  naive = std::max(naive, distance(naive_value, expected_value));
  if (std::isfinite(expected_value)) magnitude = std::max(magnitude, std::abs(expected_value));
}

void Deviation::add_actual(double actual_value, double expected_value, const Index& at) {
  const double error = distance(actual_value, expected_value);
  if (error <= worst) return;
  worst = error;
  actual = actual_value;
  expected = expected_value;
  index = at;
}

void Deviation::merge(const Deviation& other) {
  naive = std::max(naive, other.naive);
  magnitude = std::max(magnitude, other.magnitude);
  if (other.worst <= worst) return;
  worst = other.worst;
  actual = other.actual;
  expected = other.expected;
  index = other.index;
}

bool Deviation::ok() const { return std::isfinite(naive) && worst <= budget(); }

}  // namespace cubinery
