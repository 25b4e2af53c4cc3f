// The path of verify that takes all tokens of a request at once: the WY form, on the tensor cores
// (mma.sync, sm_80 and newer).
#pragma once

#include "gdn_verify_wy/fields.h"
#include "gdn_verify_wy/key.h"
#include "runtime/gdn/verify/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

class VerifyWy final : public KeyedPath<VerifyProblem, VerifyRunner, GdnVerifyWyKey> {
 public:
  VerifyWy() : KeyedPath("wy", {KernelNames{}}) {}

  std::optional<std::string> why_not(const VerifyProblem& problem, const Target&) const override;
  std::vector<KeySet> default_keys(const VerifyProblem& problem,
                                   const Target& target) const override;

 protected:
  bool fits(const VerifyProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const VerifyProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const VerifyRunner> loaded(const VerifyProblem& problem, const KeySet& keys,
                                             const Target& target,
                                             std::vector<Kernel> kernels) const override;
};

const VerifyWy& verify_wy();

}  // namespace cubinery::gdn
