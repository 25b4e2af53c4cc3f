// What a Verify operator shares, and how one is made for measurements.
#pragma once

#include <vector>

#include "runtime/gdn/verify/operator.h"

namespace cubinery::gdn {

struct Verify::State : Loaded<VerifyProblem> {};

// Verify::create() with one configuration of the caller's choice for all sizes.
// kInvalidKey: the problem has no such configuration.
Result<Verify> create_verify(const Context& context, const VerifyProblem& problem,
                             const Target& target, const std::vector<TunedValue>& values);

}  // namespace cubinery::gdn
