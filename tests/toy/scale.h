// A toy operator: x <- factor x.  docs/adding_an_operator.md goes through its files.
#pragma once

#include <cstdint>

#include "cubinery/operator.h"
#include "cubinery/tensor.h"

namespace cubinery::toy {

class Scale;

struct ScaleProblem {
  using Operator = Scale;

  DType dtype = DType::kF32;  // x: f32, bf16 or f16
  // One path and one value of the fields that change bits for all sizes.
  bool batch_invariant = false;

  Status check() const;
};

struct ScaleArgs {
  Tensor x{};  // [rows, columns], contiguous; read and written
  float factor = 1;
};

// Launches are as large as their number of elements.
class Scale : public Operator<ScaleProblem, std::int64_t> {
 public:
  using Operator::Operator;

  Status launch(Stream stream, const ScaleArgs& args) const;
};

}  // namespace cubinery::toy
