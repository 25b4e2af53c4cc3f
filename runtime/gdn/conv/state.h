// What a Conv operator shares, and how one is made for measurements.
#pragma once

#include <vector>

#include "runtime/gdn/conv/operator.h"

namespace cubinery::gdn {

struct Conv::State : Loaded<ConvProblem> {};

// Conv::create() with one configuration of the caller's choice for all sizes.
// kInvalidKey: the problem has no such configuration.
Result<Conv> create_conv(const Context& context, const ConvProblem& problem, const Target& target,
                         const std::vector<TunedValue>& values);

}  // namespace cubinery::gdn
