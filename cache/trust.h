// Who may have written a file.  A cubin is code: whoever can write it runs code as us.
#pragma once

#include <string>
#include <system_error>

#include "cache/env.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// Of a context with these options.
Trust trust_of(const Options& options);

// As parse_trust() of runtime/jit/options_text.h reads it: "uid:65534,gid:2000".
std::string to_text(const Trust& trust);

// OK, or kIo: somebody who is not trusted owns or can write the directory or file that `info`
// describes.  The message names the remedy.
Status check_owner(Env& env, const std::string& path, const FileInfo& info, const Trust& trust);

// The same for a path.  OK when there is nothing; kIo when it cannot be examined.
Status check_owner(Env& env, const std::string& path, const Trust& trust);

// Env::make_dirs(), and share_made() for each directory that is made.
std::error_code make_dirs(Env& env, const std::string& dir, const Trust& trust);

// Gives a file or directory that we have made the group of its directory, and of `mode` (07777) the
// bits that the directory has, where its group is trusted and may write it.  Elsewhere, and where
// that cannot be done, nothing changes.
void share_made(Env& env, const std::string& path, std::uint32_t mode, const Trust& trust);

}  // namespace cubinery
