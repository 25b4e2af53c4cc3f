// What a Commit operator shares, and how one is made for measurements.
#pragma once

#include <vector>

#include "runtime/gdn/verify/commit_operator.h"

namespace cubinery::gdn {

struct Commit::State : Loaded<CommitProblem> {};

// Commit::create() with one configuration of the caller's choice for all sizes.
// kInvalidKey: the problem has no such configuration.
Result<Commit> create_commit(const Context& context, const CommitProblem& problem,
                             const Target& target, const std::vector<TunedValue>& values);

}  // namespace cubinery::gdn
