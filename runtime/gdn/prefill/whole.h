// The paths of prefill that take every sequence in one piece.
#pragma once

#include "runtime/gdn/prefill/scan_path.h"

namespace cubinery::gdn {

class PrefillWhole final : public PrefillScanPath<> {
 public:
  PrefillWhole(std::string_view name, ScanForm form) : PrefillScanPath(name, form) {}

  std::optional<std::string> why_not(const PrefillProblem& problem,
                                     const Target& target) const override;

  // Of default_kernels() (prefill_kernels.h).
  std::vector<KeySet> default_keys(const PrefillProblem& problem,
                                   const Target& target) const override;

 protected:
  bool fits(const PrefillProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const PrefillProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const PrefillRunner> loaded(const PrefillProblem& problem, const KeySet& keys,
                                              const Target& target,
                                              std::vector<Kernel> kernels) const override;
};

const PrefillWhole& prefill_portable();
const PrefillWhole& prefill_hopper();
const PrefillWhole& prefill_hopper_fused();

}  // namespace cubinery::gdn
