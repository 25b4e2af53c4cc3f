// The cost model of the portable decode: the choice where nothing was measured.  A pure function;
// docs/design.md says how good it is.
#pragma once

#include <cstdint>

#include "gdn_decode/key.h"
#include "results/target.h"

namespace cubinery::gdn {

// How the warps of a launch lie on multiprocessors.
struct WarpSpread {
  double resident = 0;  // blocks of a multiprocessor at a time
  bool is_one_wave = false;
  double fullest = 0;  // warps of the fullest one; beyond one wave blocks follow each other
};
WarpSpread spread_of(double warps, int warps_per_block, const Footprint& block,
                     const Target& target);

// Microseconds of one launch over so many states (requests x heads).
double decode_us(const GdnDecodeKey& key, std::int64_t states, const Target& target);

}  // namespace cubinery::gdn
