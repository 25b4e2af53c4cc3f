// Locks between processes, on files that are there for nothing else.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "cache/env.h"

namespace cubinery {

// As Env::try_lock() and Env::lock_owner() have them.
//
// POSIX record locks (fcntl), which die with their process.  Neither flock() nor locks of open file
// descriptions do: a child that was forked meanwhile shares them, and keeps them when its parent is
// dead.  A record lock has two traps in return.  It keeps no two threads of a process apart, and it
// goes when its process closes any descriptor of the file.  So all that a process holds is on one
// list, which is looked at before a lock file is opened, whatever for.  (Two copies of this library
// in one process have a list each, and may make one entry twice.)
//
// On network file systems they are the server's, where it has any; else the machine's own, or an
// error: then there is no lock to be had.
std::error_code try_lock_file(const std::string& path, std::string_view owner,
                              std::unique_ptr<HeldLock>* held);
std::string lock_file_owner(const std::string& path);

// The same of an open file that has another use, which stays.  Requires: it is open for writing.
std::error_code try_lock_open(int fd, std::unique_ptr<HeldLock>* held);

}  // namespace cubinery
