// The path of commit: all accepted tokens of a request at once, on the tensor cores (mma.sync,
// sm_80 and newer).
#include <utility>

#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/commit_paths.h"
#include "runtime/gdn/verify/cost.h"

namespace cubinery::gdn {
namespace {

class CommitWyRunner final : public CommitRunner {
 public:
  // `blocks`: of a request in one layer.
  CommitWyRunner(unsigned blocks, Kernel kernel) : blocks_(blocks), kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }

  Status launch(Stream stream, const GdnCommitParams& params, bool enable_pdl) const override {
    const std::int64_t rows = std::int64_t{params.layers} * params.requests;
    return kernel_.launch(stream, request_grid(blocks_, rows, enable_pdl), params);
  }

 private:
  unsigned blocks_;
  Kernel kernel_;
};

class CommitWy final : public CommitKeyPath {
 public:
  CommitWy() : KeyedPath("wy", {KernelNames{}}) {}

  std::vector<KeySet> default_keys(const CommitProblem& problem,
                                   const Target& target) const override {
    return default_wy_keys(std::get<0>(fixed_keys(problem)), target);
  }

 protected:
  std::optional<std::string> why_not_here(const CommitProblem& problem,
                                          const Target&) const override {
    return rule_of(fixed_keys(problem));
  }
  Cost cost(const CommitProblem&, const KeySet& keys, const Target& target) const override {
    return [key = std::get<0>(keys), target](const Point& at) {
      return commit_us(key, at[0], target);
    };
  }
  std::unique_ptr<const CommitRunner> loaded(const CommitProblem& problem, const KeySet& keys,
                                             const Target&,
                                             std::vector<Kernel> kernels) const override {
    const unsigned blocks = blocks_of_request(std::get<0>(keys), problem.heads.count());
    return std::make_unique<CommitWyRunner>(blocks, std::move(kernels.front()));
  }
};

}  // namespace

const CommitKeyPath& commit_wy() {
  static const CommitWy kPath;
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::CommitProblem, cubinery::gdn::CommitRunner,
                                   cubinery::GdnCommitKey>;
