// The convolution as tune() sees it.  Workloads must not outlive their tunable.
#pragma once

#include <memory>
#include <optional>

#include "harness/conv_check.h"
#include "harness/operator_tunable.h"

namespace cubinery {

class ConvTunable final : public OperatorTunable<gdn::ConvProblem> {
 public:
  using OperatorTunable::OperatorTunable;

  Result<Check> check(std::size_t configuration) override;
  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override;

 private:
  std::optional<ConvCheck> check_;
};

}  // namespace cubinery
