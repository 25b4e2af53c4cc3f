#include "runtime/gdn/prefill_whole.h"

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
  return fit(kernels_of(keys), problem, target);
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
  static const PrefillWhole kPath("portable", false);
  return kPath;
}

const PrefillWhole& prefill_hopper() {
  static const PrefillWhole kPath("hopper", true);
  return kPath;
}

}  // namespace cubinery::gdn
