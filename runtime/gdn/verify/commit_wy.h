// The path of commit: all accepted tokens of a request at once, on the tensor cores (mma.sync,
// sm_80 and newer).
#pragma once

#include "gdn_commit/fields.h"
#include "gdn_commit/key.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

class CommitWy final : public KeyedPath<CommitProblem, CommitRunner, GdnCommitKey> {
 public:
  CommitWy() : KeyedPath("wy", {KernelNames{}}) {}

  std::optional<std::string> why_not(const CommitProblem& problem, const Target&) const override;
  std::vector<KeySet> default_keys(const CommitProblem& problem,
                                   const Target& target) const override;

 protected:
  bool fits(const CommitProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const CommitProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const CommitRunner> loaded(const CommitProblem& problem, const KeySet& keys,
                                             const Target& target,
                                             std::vector<Kernel> kernels) const override;
};

const CommitWy& commit_wy();

}  // namespace cubinery::gdn
