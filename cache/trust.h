// Who may have written a file.  A cubin is code: whoever can write it runs code as us.
#pragma once

#include <string>

#include "cache/env.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// Whose files are loaded besides our own and root's.
struct Trust {
  bool everybody = false;
};

// Of a context with these options.
Trust trust_of(const Options& options);

// OK, or kIo: somebody who is not trusted owns or can write the directory or file that `info`
// describes.  The message names the remedy.
Status check_owner(Env& env, const std::string& path, const FileInfo& info, const Trust& trust);

// The same for a path.  OK when there is nothing; kIo when it cannot be examined.
Status check_owner(Env& env, const std::string& path, const Trust& trust);

}  // namespace cubinery
