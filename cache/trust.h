// Who may have written a file.  A cubin is code: whoever can write it runs code as us.
#pragma once

#include <string>

#include "cache/env.h"
#include "cubinery/status.h"

namespace cubinery {

// OK, or kIo: somebody other than us and root owns or can write the directory or file that `info`
// describes.  The message names the remedy.
Status check_owner(Env& env, const std::string& path, const FileInfo& info);

// The same for a path.  OK when there is nothing; kIo when it cannot be examined.
Status check_owner(Env& env, const std::string& path);

}  // namespace cubinery
