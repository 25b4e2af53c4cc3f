// Problems that check() refuses.
#pragma once

#include <string>
#include <vector>

#include "cubinery/fields.h"
#include "tests/catch.h"
#include "tests/function_ref.h"

namespace cubinery::test {

// The message with which `change` to the default problem is refused.
template <class Problem>
std::string refusal(FunctionRef<void(Problem&)> change) {
  Problem problem;
  REQUIRE(problem.check().ok());
  change(problem);
  const Status status = problem.check();
  CHECK(status.code() == Code::kInvalidArgument);
  const Result<std::vector<KernelSpec>> kernels = problem.kernels("sm_90a");
  REQUIRE_FALSE(kernels);
  CHECK(kernels.error().message() == status.message());
  return std::string(status.message());
}

}  // namespace cubinery::test
