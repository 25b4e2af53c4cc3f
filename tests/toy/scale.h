// A toy operator: x <- factor x.  docs/adding_an_operator.md goes through its files.
#pragma once

#include <cstdint>
#include <memory>

#include "cubinery/context.h"
#include "cubinery/rung.h"
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

class Scale {
 public:
  static Result<Scale> create(const Context& context, const ScaleProblem& problem);
  Status launch(Stream stream, const ScaleArgs& args) const;
  Chosen choice(std::int64_t elements) const;

  struct State;
  explicit Scale(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace cubinery::toy
