// The operators as tune() sees them.  Workloads must not outlive their tunable.
//
// Without a device a tunable still has its space, features and defaults (of a typical GPU of the
// architecture); checks and workloads are kUnsupported.  Errors: those of the problem's check().
#pragma once

#include <memory>

#include "cubinery/gdn.h"
#include "cubinery/tuning.h"

namespace cubinery {

// Shapes have the size batch: {"batch", 8}.  Features: states.
//
// Shapes of both operators may also have q_heads, k_heads and v_heads, in place of the problem's:
// tensor-parallel ranks and models of other sizes are tuned in one call.
Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const gdn::DecodeProblem& problem);
// Shapes have the sizes tokens (of all sequences), sequences and, when one sequence is longer than
// the others, max_seqlen.  Features: states, length, skew and group.
Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const gdn::PrefillProblem& problem);

}  // namespace cubinery
