// The portable path of verify: decode's pass over the state, which stays in registers over all
// tokens; every architecture.
#pragma once

#include "gdn_verify/fields.h"
#include "gdn_verify/key.h"
#include "runtime/gdn/verify/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

using VerifyPortableBase = KeyedPath<VerifyProblem, VerifyRunner, GdnVerifyKey>;

class VerifyPortable final : public VerifyPortableBase {
 public:
  VerifyPortable() : KeyedPath("portable", {KernelNames{}}) {}

  std::optional<std::string> why_not(const VerifyProblem& problem, const Target&) const override {
    if (problem.tree) return "the state after a token's parent is not at hand (tree = true)";
    return std::nullopt;
  }

  // Wide and narrow ones as decode has, which sum in the same order as those.
  std::vector<KeySet> default_keys(const VerifyProblem& problem,
                                   const Target& target) const override;

 protected:
  bool fits(const VerifyProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const VerifyProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const VerifyRunner> loaded(const VerifyProblem& problem, const KeySet& keys,
                                             const Target& target,
                                             std::vector<Kernel> kernels) const override;
  void correct_bits(const KeySet& keys, Values* values) const override;
};

const VerifyPortable& verify_portable();

}  // namespace cubinery::gdn
