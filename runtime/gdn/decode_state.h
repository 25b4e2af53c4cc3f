// What a Decode operator shares.
#pragma once

#include <cstdint>
#include <vector>

#include "cubinery/gdn_decode.h"
#include "runtime/gdn/decode_plan.h"

namespace cubinery::gdn {

struct Decode::State {
  DecodeProblem problem;
  DecodePlan plan;
  std::vector<Kernel> kernels;  // of plan.keys

  // Of a launch of so many requests; negative counts are taken as 0.
  const DecodePlan::Cell& cell(std::int64_t batch) const;
};

// Decode::create() with one key of the caller's choice for all batches, for measurements.
// Requires: problem.check() is OK and decode_key(problem, decode_values(key)) is `key`.
Result<Decode> create_decode(const Context& context, const DecodeProblem& problem,
                             const GdnDecodeKey& key);

}  // namespace cubinery::gdn
