// KernelSource as JSON, for those who have it in JSON of their own.  Pure functions.
#pragma once

#include <string_view>

#include "codegen/read_json.h"
#include "cubinery/kernel_source.h"

namespace cubinery {

// kernel_source_from_json() of a value.  `also`: a field that messages name besides, which the
// caller takes.
Result<KernelSource> read_kernel_source(const Json& value, std::string_view also = {});

}  // namespace cubinery
