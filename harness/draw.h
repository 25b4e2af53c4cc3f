// What numbers the tensors of a launch get.  Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/data.h"
#include "harness/random.h"
#include "harness/tensors.h"

namespace cubinery {

// What a tensor's numbers are drawn for: `rows` rows of sequence n (of states: matrix n) and head
// h, behind each other.
struct GdnDraw {
  const GdnProblem& problem;
  const DataOptions& data;
  std::int64_t n = 0;
  std::int64_t h = 0;
  std::int64_t rows = 1;
};

// Outputs and integers are not drawn.
bool is_drawn(TensorId tensor);
// Requires: is_drawn().
std::vector<float> drawn(const GdnDraw& draw, TensorId tensor);
// The gates as they are given.
std::vector<float> drawn_gates(const GdnDraw& draw);
// Of a sequence of so many tokens: a random tree.
std::vector<std::int64_t> draw_parents(const DataOptions& data, std::int64_t n,
                                       std::int64_t tokens);

// Of a convolution by itself numbers are drawn one by one, each tensor's from a stream of its own.
Random conv_random(std::uint64_t seed, TensorId tensor);
Random conv_slot_random(std::uint64_t seed);
// Requires: is_conv_drawn().
bool is_conv_drawn(TensorId tensor);
float draw_conv(TensorId tensor, Random& random);

}  // namespace cubinery
