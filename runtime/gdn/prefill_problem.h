// From a prefill problem to the keys of its kernels.  Pure functions.
#pragma once

#include <string_view>
#include <tuple>
#include <vector>

#include "cubinery/fields.h"
#include "cubinery/gdn_prefill.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "runtime/gdn/problem_check.h"
#include "runtime/registry/known_results.h"

namespace cubinery {

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const PrefillProblem&) { return nullptr; }

// The kernels that the operator has where nothing was measured: one launch runs `chunks` and one of
// `scans`, of which the cost model chooses.  All have the same chunk_size, which is all that
// results depend on.
struct PrefillKeys {
  GdnPrefillChunksKey chunks;
  // From most warps per block (least traffic) to fewest (most blocks); the last has one.
  std::vector<GdnPrefillScanKey> scans;
};

// Keys that use at most `shared_limit` bytes of shared memory per block: max_shared_bytes() of some
// architecture.  Requires: problem.check() is OK.
PrefillKeys prefill_keys(const PrefillProblem& problem, int shared_limit);

// As problem.kernels(), with these results in place of those inside the library.
Result<std::vector<KernelSpec>> kernels(const PrefillProblem& problem, std::string_view arch,
                                        const KnownResults& known);

}  // namespace gdn

// Persistent: names are those of manifests.
template <>
struct Fields<gdn::PrefillProblem> {
  static constexpr const char* kName = "gdn_prefill";
  using P = gdn::PrefillProblem;
  static constexpr auto kList = std::tuple_cat(gdn::operand_fields<P>(),
                                               std::tuple{
                                                   fixed("cu_seqlens_dtype", &P::cu_seqlens_dtype),
                                                   fixed("token_layout", &P::token_layout),
                                                   fixed("varlen", &P::varlen),
                                               },
                                               gdn::mode_fields<P>(),
                                               std::tuple{
                                                   fixed("checkpoints", &P::checkpoints),
                                                   fixed("checkpoint_every", &P::checkpoint_every),
                                                   fixed("batch_invariant", &P::batch_invariant),
                                               });
};

namespace gdn {
// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kPrefillOp = Fields<PrefillProblem>::kName;
}  // namespace gdn

}  // namespace cubinery
