// The paths of prefill that take every sequence in one piece: chunk records, then a scan, with
// mma.sync on every architecture or with wgmma on sm_90a.
#pragma once

#include <tuple>

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

using PrefillWholeBase =
    KeyedPath<PrefillProblem, PrefillRunner, GdnPrefillChunksKey, GdnPrefillScanKey>;

class PrefillWhole final : public PrefillWholeBase {
 public:
  PrefillWhole(std::string_view name, bool wgmma)
      : KeyedPath(name, {KernelNames{.prefix = "chunks.", .shared = "chunk_size"},
                         KernelNames{.prefix = "scan.", .shared = "chunk_size"}}),
        wgmma_(wgmma) {}

  std::optional<std::string> why_not(const PrefillProblem& problem,
                                     const Target& target) const override;

  // Of default_kernels() (prefill_kernels.h).
  std::vector<KeySet> default_keys(const PrefillProblem& problem,
                                   const Target& target) const override;

 protected:
  void set_own_fields(KeySet* keys) const override { std::get<1>(*keys).wgmma = wgmma_; }
  void add_other_kernels(const KeySet& keys, std::vector<KernelSpec>* specs) const override;
  bool fits(const PrefillProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const PrefillProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const PrefillRunner> loaded(const PrefillProblem& problem, const KeySet& keys,
                                              const Target& target,
                                              std::vector<Kernel> kernels) const override;

 private:
  bool wgmma_;
};

const PrefillWhole& prefill_portable();
const PrefillWhole& prefill_hopper();

}  // namespace cubinery::gdn
