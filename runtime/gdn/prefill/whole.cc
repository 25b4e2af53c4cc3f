#include "runtime/gdn/prefill/whole.h"

#include <utility>

namespace cubinery::gdn {

std::vector<PrefillWhole::KeySet> PrefillWhole::default_keys(const PrefillProblem& problem,
                                                             const Target& target) const {
  std::vector<KeySet> found;
  for (const auto& [chunks, scan] :
       default_kernels(kernels_of(fixed_keys(problem)), problem, target)) {
    found.emplace_back(chunks, scan);
  }
  return found;
}

std::optional<std::string> PrefillWhole::why_not(const PrefillProblem& problem,
                                                 const Target& target) const {
  if (problem.split == Split::kAlways) return "the problem asks for split sequences";
  return why_no_kernels(kernels_of(fixed_keys(problem)), problem, target);
}

bool PrefillWhole::fits(const PrefillProblem& problem, const KeySet& keys,
                        const Target& target) const {
  if (form() != ScanForm::kFused) return fit(kernels_of(keys), problem, target);
  // One choice: the fallback's is not worth measuring, nor are fewer warps or stages.
  const std::vector<Values> best = defaults(problem, target);
  return !best.empty() && values_of(keys) == best.front();
}

double PrefillWhole::us(const PrefillProblem& problem, const KeySet& keys, const Point& at,
                        const Target& target) const {
  return prefill_us(std::get<0>(keys), std::get<1>(keys), load_at(problem, at), target);
}

std::unique_ptr<const PrefillRunner> PrefillWhole::loaded(const PrefillProblem& problem,
                                                          const KeySet& keys, const Target& target,
                                                          std::vector<Kernel> kernels) const {
  return prefill_runner(problem, kernels_of(keys), {}, target, std::move(kernels));
}

const PrefillWhole& prefill_portable() {
  static const PrefillWhole kPath("portable", ScanForm::kMma);
  return kPath;
}

const PrefillWhole& prefill_hopper() {
  static const PrefillWhole kPath("hopper", ScanForm::kWgmma);
  return kPath;
}

const PrefillWhole& prefill_hopper_fused() {
  static const PrefillWhole kPath("hopper_fused", ScanForm::kFused);
  return kPath;
}

}  // namespace cubinery::gdn
