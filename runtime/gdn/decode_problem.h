// The rules of a decode problem.  Pure functions.
#pragma once

#include "cubinery/gdn_decode.h"
#include "runtime/gdn/problem_fields.h"

namespace cubinery::gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const DecodeProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults.
DecodeProblem normalised(DecodeProblem problem);

}  // namespace cubinery::gdn
