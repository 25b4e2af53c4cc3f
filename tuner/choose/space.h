// What a configuration's values say of it.  Pure functions.
#pragma once

#include <vector>

#include "cubinery/tuning.h"

namespace cubinery {

// Those of the values that change bits of the outputs.
std::vector<TunedValue> bits_of(std::vector<TunedValue> values);

}  // namespace cubinery
