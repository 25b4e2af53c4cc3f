// The compiler's options for a kernel that is given as text.  Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cubinery/kernel_source.h"
#include "cubinery/status.h"

namespace cubinery {

// `fixed`, each of its options in the spelling of `given` replaced, and `given` behind them, one
// spelling for each option: "--define-macro=X", "-D X" and "-D", "X" are "-DX".
// kInvalidArgument: an option that names files, changes what is made, or is not known to the
// compiler.
Result<std::vector<std::string>> source_options(const std::vector<std::string>& fixed,
                                                const std::vector<std::string>& given,
                                                Compiler compiler = Compiler::kNvrtc);

// As they stand in identities: separated by blanks, their own blanks behind a backslash.
// Persistent.
std::string options_text(const std::vector<std::string>& options);

}  // namespace cubinery
