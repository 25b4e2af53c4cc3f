// What the paths of verify have in common: one kernel that takes the parameters of gdn_verify.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/cost.h"
#include "runtime/gdn/verify/paths.h"

namespace cubinery::gdn {

class OneKernelVerifyRunner final : public VerifyRunner {
 public:
  // `blocks`: of a request.
  OneKernelVerifyRunner(const VerifyProblem& problem, unsigned blocks, Kernel kernel)
      : problem_(problem), blocks_(blocks), kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }

  Status launch(Stream stream, const VerifyArgs& args, const LaunchExtent& extent) const override {
    GdnVerifyParams params{};
    CUBINERY_RETURN_IF_ERROR(bind_verify(problem_, args, extent, &params));
    return kernel_.launch(stream, request_grid(blocks_, extent.sequences, args.enable_pdl), params);
  }

 private:
  VerifyProblem problem_;
  unsigned blocks_;
  Kernel kernel_;
};

template <class Key>
class OneKernelVerifyPath : public KeyedPath<VerifyProblem, VerifyRunner, Key> {
 public:
  using KeyedPath<VerifyProblem, VerifyRunner, Key>::KeyedPath;
  using typename KeyedPath<VerifyProblem, VerifyRunner, Key>::KeySet;

 protected:
  Cost cost(const VerifyProblem&, const KeySet& keys, const Target& target) const final {
    return [key = std::get<0>(keys), target](const Point& at) {
      return verify_us(key, at[0], at[1], target);
    };
  }
  std::unique_ptr<const VerifyRunner> loaded(const VerifyProblem& problem, const KeySet& keys,
                                             const Target&,
                                             std::vector<Kernel> kernels) const final {
    const auto& key = std::get<0>(keys);
    const unsigned blocks = blocks_of_request(key, problem.heads.count(), warp_columns(key));
    return std::make_unique<OneKernelVerifyRunner>(problem, blocks, std::move(kernels.front()));
  }
};

}  // namespace cubinery::gdn
