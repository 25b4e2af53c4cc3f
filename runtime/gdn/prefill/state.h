// What a Prefill operator shares, and how one is made for measurements.
#pragma once

#include <vector>

#include "runtime/gdn/prefill/operator.h"

namespace cubinery::gdn {

struct Prefill::State : Loaded<PrefillProblem> {
  explicit State(Loaded<PrefillProblem> loaded);

  PrefillLimits limits;  // what all runners can hold
};

// Prefill::create() with one configuration of the caller's choice for all sizes, launched as on
// `target`.  kInvalidKey: the problem has no such configuration.
Result<Prefill> create_prefill(const Context& context, const PrefillProblem& problem,
                               const Target& target, const std::vector<TunedValue>& values);

}  // namespace cubinery::gdn
