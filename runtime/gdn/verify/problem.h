// The rules of a verify problem.  Pure functions.
#pragma once

#include "common/verify_params.h"
#include "cubinery/gdn_verify.h"
#include "runtime/gdn/shared/problem_fields.h"

namespace cubinery::gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const VerifyProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults, and
// max_tokens as kernels know it.
VerifyProblem normalised(VerifyProblem problem);

}  // namespace cubinery::gdn
