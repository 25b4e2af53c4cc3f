// What a cubin executes, as text.
#pragma once

#include <string>
#include <string_view>

#include "cache/trust.h"
#include "cubinery/status.h"

namespace cubinery {

// As the toolkit's nvdisasm prints it.  It lies beside nvcc: `nvcc_path`, or where that is looked
// for.  kUnsupported: there is none, or others than those of `trust` could have written it.
// kIo: no temporary folder.  kCompileFailed, with the log: it refuses the cubin.
Result<std::string> disassembly(std::string_view cubin, const std::string& nvcc_path,
                                const Trust& trust);

}  // namespace cubinery
