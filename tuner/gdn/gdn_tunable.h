// The operators as tune() sees them.  Workloads must not outlive their tunable.
#pragma once

#include <memory>

#include "cubinery/gdn.h"
#include "cubinery/tuning.h"

namespace cubinery {

// Decode: shapes have the size batch; features: states.  Prefill: shapes have the sizes tokens (of
// all sequences), sequences and, when one sequence is longer than the others, max_seqlen; features:
// states, length, skew and group.
//
// Shapes of both may also have q_heads, k_heads and v_heads, in place of the problem's:
// tensor-parallel ranks and models of other sizes are tuned in one call.
//
// Without a device a tunable still has its space, features and defaults (of a typical GPU of the
// architecture); checks and workloads are kUnsupported.  Errors: those of the problem's check();
// kUnsupported: no path computes the problem there.
Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const gdn::DecodeProblem& problem);
Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const gdn::PrefillProblem& problem);

}  // namespace cubinery
