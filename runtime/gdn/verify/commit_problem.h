// The rules of a commit problem.  Pure functions.
#pragma once

#include "cubinery/gdn_commit.h"
#include "runtime/gdn/shared/problem_fields.h"

namespace cubinery::gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const CommitProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults, and
// max_tokens as kernels know it.
CommitProblem normalised(CommitProblem problem);

}  // namespace cubinery::gdn
