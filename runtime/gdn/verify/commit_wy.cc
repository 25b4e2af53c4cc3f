#include "runtime/gdn/verify/commit_wy.h"

#include <utility>

#include "runtime/gdn/shared/request_grid.h"
#include "runtime/gdn/verify/cost.h"
#include "runtime/gdn/verify/wy_keys.h"

namespace cubinery::gdn {
namespace {

class CommitWyRunner final : public CommitRunner {
 public:
  // `blocks`: of a request in one layer.
  CommitWyRunner(unsigned blocks, Kernel kernel) : blocks_(blocks), kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }

  Status launch(Stream stream, const GdnCommitParams& params, bool programmatic) const override {
    const std::int64_t rows = std::int64_t{params.layers} * params.requests;
    return kernel_.launch(stream, request_grid(blocks_, rows, programmatic), params);
  }

 private:
  unsigned blocks_;
  Kernel kernel_;
};

}  // namespace

std::optional<std::string> CommitWy::why_not(const CommitProblem& problem, const Target&) const {
  const char* reason = cubinery::why_invalid(std::get<0>(fixed_keys(problem)));
  if (reason == nullptr) return std::nullopt;
  return reason;
}

std::vector<CommitWy::KeySet> CommitWy::default_keys(const CommitProblem& problem,
                                                     const Target&) const {
  return default_wy_keys(std::get<0>(fixed_keys(problem)));
}

bool CommitWy::fits(const CommitProblem&, const KeySet& keys, const Target&) const {
  return valid(std::get<0>(keys));
}

double CommitWy::us(const CommitProblem&, const KeySet& keys, const Point& at,
                    const Target& target) const {
  return commit_us(std::get<0>(keys), at[0], target);
}

std::unique_ptr<const CommitRunner> CommitWy::loaded(const CommitProblem& problem,
                                                     const KeySet& keys, const Target&,
                                                     std::vector<Kernel> kernels) const {
  const unsigned blocks = blocks_of_request(std::get<0>(keys), problem.heads.count());
  return std::make_unique<CommitWyRunner>(blocks, std::move(kernels.front()));
}

const CommitWy& commit_wy() {
  static const CommitWy kPath;
  return kPath;
}

}  // namespace cubinery::gdn
