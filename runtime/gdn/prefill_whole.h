// The portable path of prefill: chunk records, then a scan with mma.sync; every architecture.
#pragma once

#include <tuple>

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

using PrefillPortableBase =
    KeyedPath<PrefillProblem, PrefillRunner, GdnPrefillChunksKey, GdnPrefillScanKey>;

class PrefillPortable final : public PrefillPortableBase {
 public:
  PrefillPortable()
      : KeyedPath("portable", {KernelNames{.prefix = "chunks.", .shared = "chunk_size"},
                               KernelNames{.prefix = "scan.", .shared = "chunk_size"}}) {}

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

const PrefillPortable& prefill_portable();

}  // namespace cubinery::gdn
