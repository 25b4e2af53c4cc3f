#include "runtime/jit/owner_process.h"

#include <fmt/format.h>

namespace cubinery {

Status OwnerProcess::check() const {
  if (is_current()) return {};
  return Status(Code::kUnsupported,
                fmt::format("the context was made by process {}, of which this process ({}) is a "
                            "fork; make a context after fork(), not before it",
                            id_, ::getpid()));
}

}  // namespace cubinery
