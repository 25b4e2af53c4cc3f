// The rules of a prefill problem.  Pure functions.
#pragma once

#include "cubinery/gdn_prefill.h"
#include "runtime/gdn/shared/problem_fields.h"

namespace cubinery::gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const PrefillProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults.
PrefillProblem normalised(PrefillProblem problem);

}  // namespace cubinery::gdn
