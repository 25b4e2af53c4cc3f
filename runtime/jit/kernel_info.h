// KernelInfo: read from the compiler's log, and kept in cache entries as JSON.  Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cubinery/kernel.h"

namespace cubinery {

// Fills registers, shared memory and spills from ptxas's lines, and `log` with the lines that
// remain: warnings and advice.  False: the log has no resource line for a kernel.
bool read_resources(std::string_view log, KernelInfo* info);

// Whether ptxas says that it has compiled this kernel.
bool reports_kernel(std::string_view log, std::string_view symbol);
// A log of several kernels without the resource lines of all others.
std::string log_of_kernel(std::string_view log, std::string_view symbol);

// What the compiler has against a name that a text should have, where that alone is what the log
// complains of; empty: it is not.
std::string unknown_name(std::string_view log);

// The metadata of a cache entry.  Persistent names; identity fields (kernel, key, arch, nvrtc) are
// not repeated in it.
// `questions`: of what a text includes (questions_text()); empty: none.
std::string metadata_json(const KernelInfo& info, std::string questions = "");
// Fills the same fields; false: not what metadata_json() prints, or numbers that no kernel has.
bool read_metadata(std::string_view json, KernelInfo* info);
// What metadata_json() was given of it.
std::string questions_in(std::string_view json);

}  // namespace cubinery
