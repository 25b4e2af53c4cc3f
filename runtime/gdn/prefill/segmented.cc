// The paths of prefill that cut long sequences into segments: the scan with its `segments`
// (common/chunk/segments.h).
#include <utility>

#include "runtime/gdn/prefill/scan_path.h"
#include "runtime/gdn/prefill/segments.h"

namespace cubinery::gdn {
namespace {

class PrefillSegments final : public PrefillScanPath<SegmentChoice> {
 public:
  PrefillSegments(std::string_view name, ScanForm form)
      : PrefillScanPath(name, form, KernelNames{.prefix = "segments."}) {}

  // The first of default_kernels() (kernels.h), with one or two choices of segments.
  std::vector<KeySet> default_keys(const PrefillProblem& problem,
                                   const Target& target) const override {
    // The widest scan was the fastest for nearly every shape: segments fill the machine.
    const auto kernels = default_kernels(kernels_of(fixed_keys(problem)), problem, target);
    if (kernels.empty()) return {};
    const auto& [chunks, scan] = kernels.front();
    if (problem.context_parallel) return {{chunks, with_most_stages(scan, target), {}}};
    if (!with_wgmma()) return {{chunks, scan, SegmentChoice{}}};
    if (form() == ScanForm::kFused) {
      return {{chunks, scan, SegmentChoice{.warps_per_sm = 10}},
              {chunks, scan, SegmentChoice{.warps_per_sm = 16}}};
    }
    // A multiprocessor holds more of them.
    if (!has_channel_decays(scan)) return {{chunks, scan, SegmentChoice{.warps_per_sm = 10}}};
    // 12 is best for few heads, 24 for many.
    return {{chunks, scan, SegmentChoice{.warps_per_sm = 12}},
            {chunks, scan, SegmentChoice{.warps_per_sm = 24}}};
  }

 protected:
  std::optional<std::string> why_not_here(const PrefillProblem& problem,
                                          const Target& target) const override {
    if (problem.segments == Segments::kNever) return "the problem asks for sequences in one piece";
    if (problem.segments == Segments::kAuto && problem.batch_invariant &&
        !problem.context_parallel) {
      return "batch_invariant, and the problem does not ask for it";
    }
    return why_no_kernels(kernels_of(fixed_keys(problem)), problem, target);
  }
  void set_own_fields(KeySet* keys) const override {
    PrefillScanPath::set_own_fields(keys);
    GdnPrefillScanKey& scan = std::get<1>(*keys);
    scan.segments = true;
    if (scan.makes_wy) scan.warps = 8;
  }
  bool fits(const PrefillProblem& problem, const KeySet& keys,
            const Target& target) const override {
    // Fewer candidates to measure: others were not faster where these were measured.
    const auto& [chunks, scan, choice] = keys;
    return scan.chunk_size <= 32 && is_worth_measuring(choice) &&
           chunks.warps == std::get<0>(fixed_keys(problem)).warps &&
           (problem.context_parallel || has_usual_stages(scan, target)) &&
           fit(kernels_of(keys), problem, target);
  }
  Cost cost(const PrefillProblem& problem, const KeySet& keys,
            const Target& target) const override {
    return [cost = cost_of(problem, kernels_of(keys), target),
            rule = rule_of(problem, keys, target)](const Point& at) {
      return cost.split_us(rule, load_at(at));
    };
  }
  std::unique_ptr<const PrefillRunner> loaded(const PrefillProblem& problem, const KeySet& keys,
                                              const Target& target,
                                              std::vector<Kernel> kernels) const override {
    return prefill_runner(problem, kernels_of(keys), rule_of(problem, keys, target), target,
                          std::move(kernels));
  }

 private:
  static SegmentRule rule_of(const PrefillProblem& problem, const KeySet& keys,
                             const Target& target) {
    return {problem, std::get<1>(keys), std::get<2>(keys).warps_per_sm, target.sm_count};
  }
  bool is_worth_measuring(const SegmentChoice& choice) const {
    // Waves of blocks that are nearly full gain more than many short segments do.
    const int warps = choice.warps_per_sm;
    if (with_wgmma()) return warps >= 6;
    return warps == 2 || warps == 4 || warps == 8 || warps == 16;
  }
};

}  // namespace

const PrefillPath& prefill_segments() {
  static const PrefillSegments kPath("segments", ScanForm::kMma);
  return kPath;
}

const PrefillPath& prefill_hopper_segments() {
  static const PrefillSegments kPath("hopper_segments", ScanForm::kWgmma);
  return kPath;
}

const PrefillPath& prefill_hopper_fused_segments() {
  static const PrefillSegments kPath("hopper_fused_segments", ScanForm::kFused);
  return kPath;
}

}  // namespace cubinery::gdn
