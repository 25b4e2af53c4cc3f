// What a Decode operator shares.
#pragma once

#include <cstdint>

#include "cubinery/gdn_decode.h"
#include "runtime/decode_problem.h"

namespace cubinery::gdn {

struct Decode::State {
  struct Variant {
    GdnDecodeKey key;
    Kernel kernel;
    // Warps that some requests need.
    std::int64_t warps(std::int64_t requests, int heads) const {
      return requests * heads * (key.value_dim / key.warp_v);
    }
  };
  DecodeProblem problem;
  Variant wide;
  Variant narrow;
  std::int64_t wide_from_batch = 0;

  const Variant& variant(std::int64_t batch) const {
    return batch < wide_from_batch ? narrow : wide;
  }
};

// Decode::create() with keys of the caller's choice, for measurements of candidates.
// Requires: problem.check() is OK and the keys differ from decode_keys(problem) in tuned fields
// only.
Result<Decode> create_decode(const Context& context, const DecodeProblem& problem,
                             const DecodeKeys& keys);

}  // namespace cubinery::gdn
