// The rules of a decode problem.  Pure functions.
#pragma once

#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_decode.h"
#include "runtime/gdn/shared/problem_fields.h"

namespace cubinery::gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const DecodeProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults.
DecodeProblem normalised(DecodeProblem problem);

// The convolution in front, as gdn::Conv would compute it.  Requires: there is one.
ConvProblem conv_in_front(const DecodeProblem& problem);

}  // namespace cubinery::gdn
