// The paths of prefill that take every sequence in one piece.
#include <algorithm>
#include <utility>

#include "runtime/gdn/prefill/scan_path.h"

namespace cubinery::gdn {
namespace {

class PrefillWhole final : public PrefillScanPath<> {
 public:
  PrefillWhole(std::string_view name, ScanForm form) : PrefillScanPath(name, form) {}

  std::vector<KeySet> default_keys(const PrefillProblem& problem,
                                   const Target& target) const override {
    std::vector<KeySet> found;
    for (const auto& [chunks, scan] : kernels_by_default(problem, target)) {
      found.emplace_back(chunks, scan);
    }
    return found;
  }

  // Of the fused form one choice: the fallback's is not worth measuring, nor are fewer warps or
  // stages.
  std::vector<KeySet> all_keys(const PrefillProblem& problem, const Target& target) const override {
    if (form() != ScanForm::kFused) return KeyedPath::all_keys(problem, target);
    std::vector<KeySet> one = default_keys(problem, target);
    one.resize(std::min<std::size_t>(one.size(), 1));
    return one;
  }

 protected:
  std::optional<std::string> why_not_here(const PrefillProblem& problem,
                                          const Target& target) const override {
    if (problem.segments == Segments::kAlways) return "the problem asks for segments";
    if (problem.context_parallel) return "context_parallel";
    return why_no_kernels(kernels_of(fixed_keys(problem)), problem, target);
  }
  bool fits(const PrefillProblem& problem, const KeySet& keys,
            const Target& target) const override {
    if (form() != ScanForm::kFused) return fit(kernels_of(keys), problem, target);
    const std::vector<PrefillKernels> found = kernels_by_default(problem, target);
    return !found.empty() && same_fields(found.front().chunks, std::get<0>(keys)) &&
           same_fields(found.front().scan, std::get<1>(keys));
  }
  Cost cost(const PrefillProblem& problem, const KeySet& keys,
            const Target& target) const override {
    return [cost = cost_of(problem, kernels_of(keys), target)](const Point& at) {
      return cost.us(load_at(at));
    };
  }
  std::unique_ptr<const PrefillRunner> loaded(const PrefillProblem& problem, const KeySet& keys,
                                              const Target& target,
                                              std::vector<Kernel> kernels) const override {
    return prefill_runner(problem, kernels_of(keys), {}, target, std::move(kernels));
  }

 private:
  std::vector<PrefillKernels> kernels_by_default(const PrefillProblem& problem,
                                                 const Target& target) const {
    return default_kernels(kernels_of(fixed_keys(problem)), problem, target);
  }
};

}  // namespace

const PrefillKeyPath& prefill_portable() {
  static const PrefillWhole kPath("portable", ScanForm::kMma);
  return kPath;
}

const PrefillKeyPath& prefill_hopper() {
  static const PrefillWhole kPath("hopper", ScanForm::kWgmma);
  return kPath;
}

const PrefillKeyPath& prefill_hopper_fused() {
  static const PrefillWhole kPath("hopper_fused", ScanForm::kFused);
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::PrefillProblem, cubinery::gdn::PrefillRunner,
                                   cubinery::GdnPrefillChunksKey, cubinery::GdnPrefillScanKey>;
