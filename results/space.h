// What a configuration's values say of it.  Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "cubinery/tuning.h"

namespace cubinery {

// The name of the value that names a configuration's path.  Persistent.
inline constexpr std::string_view kPath = "path";

// Those of the values that change bits of the outputs.
std::vector<TunedValue> bits_of(std::vector<TunedValue> values);

}  // namespace cubinery
