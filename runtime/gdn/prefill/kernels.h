// The two kernels that the paths of prefill launch: which go together, and how.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "runtime/gdn/prefill/cost.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/prefill/segments.h"

namespace cubinery::gdn {

struct PrefillKernels {
  GdnPrefillChunksKey chunks{};
  GdnPrefillScanKey scan{};
};

// From scans with most warps per block, which read q, k and the WY factors least often, to those
// with one, which fill the machine when there are few sequences and heads.  All have the same
// chunk_size, which is all that their results depend on.  None: their blocks do not fit.
std::vector<PrefillKernels> default_kernels(const PrefillKernels& fixed,
                                            const PrefillProblem& problem, const Target& target);

// nullopt: there are default_kernels().
std::optional<std::string> why_no_kernels(const PrefillKernels& fixed,
                                          const PrefillProblem& problem, const Target& target);

// Whether they run together, and on the target.
bool fit(const PrefillKernels& keys, const PrefillProblem& problem, const Target& target);

// With four stages where two such blocks fit on a multiprocessor: one that has it to itself waits
// less for copies.
GdnPrefillScanKey with_most_stages(GdnPrefillScanKey scan, const Target& target);

// Whether it has three stages, or six where it makes WY factors, or as many as fit.
bool has_usual_stages(const GdnPrefillScanKey& scan, const Target& target);

// What the cost model is asked about, and of a cell of the operator's table.
PrefillCost cost_of(const PrefillProblem& problem, const PrefillKernels& keys,
                    const Target& target);
PrefillLoad load_at(const Point& at);

// That every launch of at most this size needs; saturates.  `rule`: with the scan's `segments`.
std::size_t workspace_bytes(const PrefillProblem& problem, const PrefillKernels& keys,
                            const std::optional<SegmentRule>& rule, std::int64_t tokens,
                            std::int64_t sequences);

std::unique_ptr<const PrefillRunner> prefill_runner(const PrefillProblem& problem,
                                                    const PrefillKernels& keys,
                                                    std::optional<SegmentRule> rule,
                                                    const Target& target,
                                                    std::vector<Kernel> kernels);

}  // namespace cubinery::gdn
