// The operators as tune() sees them.  Workloads must not outlive their tunable.
#pragma once

#include <memory>

#include "cubinery/tuning.h"
#include "runtime/registry/operators.h"

namespace cubinery {

// What sizes shapes have: HarnessOf (operators.h).  What features they have: OperatorOf.
//
// Shapes may also have q_heads, k_heads and v_heads, in place of the problem's: tensor-parallel
// ranks and models of other sizes are tuned in one call.
//
// Without a device a tunable still has its space, features and defaults (of a typical GPU of the
// architecture); checks and workloads are kUnsupported.  Errors: those of the problem's check();
// kUnsupported: no path computes the problem there.
Result<std::unique_ptr<Tunable>> make_tunable(const Context& context, const Problem& problem);

}  // namespace cubinery
