// Which libraries may be loaded: native code of whoever can write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/trust.h"
#include "cubinery/status.h"

namespace cubinery {

// OK, or kIo: somebody who is not trusted (cache/trust.h) owns or can write the file at `path`, or
// a directory from the root to it or to a symbolic link on the way.  A directory above that
// everybody may write, but where nobody can replace what is another's (sticky, as /tmp is), is as
// good as the owner of what leads on from it.  OK too where there is no such file.
Status check_library(const std::string& path, const Trust& trust);

// The first of these files that is there and passes check_library().  kUnsupported: none; names
// them as `what`, and why those that are there do not pass.
Result<std::string> find_program(std::string_view what, const std::vector<std::string>& places,
                                 const Trust& trust);

}  // namespace cubinery
