// Names of __global__ functions in texts.  Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "cubinery/status.h"

namespace cubinery {

// "ns::scale<float, 4>": "scale", for messages and file names, of 64 characters at most.
// kInvalidArgument: no name that a compiler could look up.
Result<std::string> plain_name(std::string_view name);

}  // namespace cubinery
