// The paths of prefill that cut long sequences into parts: the scan with its `parts`
// (common/parts.h).
#pragma once

#include <tuple>

#include "runtime/gdn/prefill/scan_path.h"

namespace cubinery {
namespace gdn {

// What decides how long parts are.  No kernel's key.
struct PartChoice {
  int warps_per_sm = 8;  // of the scan, that a launch aims at
};

inline const char* why_invalid(const PartChoice&) { return nullptr; }

}  // namespace gdn

template <>
struct Fields<gdn::PartChoice> {
  static constexpr const char* kName = "parts";
  static constexpr auto kList =
      std::tuple{tuned_bits<&gdn::PartChoice::warps_per_sm>(2, 4, 8, 12, 16, 24)};
};

namespace gdn {

class PrefillSplit final : public PrefillScanPath<PartChoice> {
 public:
  PrefillSplit(std::string_view name, ScanForm form)
      : PrefillScanPath(name, form, KernelNames{.prefix = "parts."}) {}

  std::optional<std::string> why_not(const PrefillProblem& problem,
                                     const Target& target) const override;
  // The first of default_kernels() (prefill_kernels.h), with one or two choices of parts.
  std::vector<KeySet> default_keys(const PrefillProblem& problem,
                                   const Target& target) const override;

 protected:
  void set_own_fields(KeySet* keys) const override;
  bool fits(const PrefillProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const PrefillProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const PrefillRunner> loaded(const PrefillProblem& problem, const KeySet& keys,
                                              const Target& target,
                                              std::vector<Kernel> kernels) const override;

 private:
  bool is_worth_measuring(const PartChoice& choice) const;
};

const PrefillSplit& prefill_split();
const PrefillSplit& prefill_hopper_split();

}  // namespace gdn
}  // namespace cubinery
