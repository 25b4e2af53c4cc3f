// The cost model of the portable decode: the choice where nothing was measured.  A pure function;
// docs/design.md says how good it is.
#pragma once

#include <cstdint>

#include "gdn_decode/key.h"
#include "tuner/choose/target.h"

namespace cubinery::gdn {

// Microseconds of one launch over so many states (requests x heads).
double decode_us(const GdnDecodeKey& key, std::int64_t states, const Target& target);

}  // namespace cubinery::gdn
