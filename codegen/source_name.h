// Names of __global__ functions in texts.  Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cubinery/kernel_source.h"
#include "cubinery/status.h"

namespace cubinery {

// "ns::scale<float, 4>": "scale", for messages and file names, of 64 characters at most; "": the
// name of any, "kernel".
// kInvalidArgument: no name that a compiler could look up.
Result<std::string> plain_name(std::string_view name);

// The key that identities of texts have, beside the digests of the text and of what it includes and
// the options (codegen/source_options.h).  Persistent.
std::string source_key(const KernelSource& source);
// Whether a key is one.  No key of a field table is: those begin with their kernel's name, and no
// text's kernel is called "source".
bool is_source_key(std::string_view key);
// The name in it: "ns::scale<float, 4>".
std::string_view name_in_source_key(std::string_view key);
// What to_string() prints; nullopt: of none.
std::optional<Compiler> compiler_called(std::string_view name);
// For people: "NVRTC", "nvcc".
const char* compiler_text(Compiler compiler);
// What compiles it; NVRTC where it is no text's.
Compiler compiler_in_key(std::string_view key);

}  // namespace cubinery
