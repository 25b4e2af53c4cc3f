// Which symbol of a cubin a kernel's name stands for, where the compiler does not say.
#pragma once

#include <string>
#include <string_view>

#include "cubinery/status.h"

namespace cubinery {

// `name`: as KernelSource::name has it.  kCompileFailed: the cubin has no such kernel, or several
// that differ in their template arguments or parameters, and the name does not say which; the
// message lists what it has.
// An empty name: of the only kernel.
Result<std::string> symbol_of(std::string_view cubin, std::string_view name);

}  // namespace cubinery
