// Who made an object: a process, and no child that it forked.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "cubinery/status.h"

namespace cubinery {

// After fork() the child has one thread.  Locks that others held are held for ever, and CUDA does
// not work in it: what takes locks or calls the driver asks here first.  A system call each time,
// so not for launches, which take no lock and which the driver refuses by itself.
class OwnerProcess {
 public:
  bool is_current() const { return ::getpid() == id_; }
  // OK, or kUnsupported: this is another process.
  Status check() const;

 private:
  const pid_t id_ = ::getpid();
};

}  // namespace cubinery
