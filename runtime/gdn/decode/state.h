// What a Decode operator shares, and how one is made for measurements.
#pragma once

#include <vector>

#include "runtime/gdn/decode/operator.h"

namespace cubinery::gdn {

struct Decode::State : Loaded<DecodeProblem> {};

// Decode::create() with one configuration of the caller's choice for all batches.
// kInvalidKey: the problem has no such configuration.
Result<Decode> create_decode(const Context& context, const DecodeProblem& problem,
                             const Target& target, const std::vector<TunedValue>& values);

}  // namespace cubinery::gdn
