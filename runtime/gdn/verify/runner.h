// The runner of paths whose one kernel takes the arguments of gdn_verify.
#pragma once

#include <utility>

#include "runtime/gdn/shared/request_grid.h"
#include "runtime/gdn/verify/args.h"
#include "runtime/gdn/verify/operator.h"

namespace cubinery::gdn {

class OneKernelVerifyRunner final : public VerifyRunner {
 public:
  // `blocks`: of a request.
  OneKernelVerifyRunner(const VerifyProblem& problem, unsigned blocks, Kernel kernel)
      : problem_(problem), blocks_(blocks), kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }

  Status launch(Stream stream, const VerifyArgs& args, const VerifyExtent& extent) const override {
    GdnVerifyParams params{};
    CUBINERY_RETURN_IF_ERROR(bind_verify(problem_, args, extent, &params));
    return kernel_.launch(stream, request_grid(blocks_, extent.requests, args.programmatic),
                          params);
  }

 private:
  VerifyProblem problem_;
  unsigned blocks_;
  Kernel kernel_;
};

}  // namespace cubinery::gdn
