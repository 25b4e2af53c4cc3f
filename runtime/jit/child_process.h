// Another program, started without a shell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cubinery/status.h"

namespace cubinery {

struct ChildOutcome {
  std::optional<int>
      exit_code;       // nullopt: a signal ended it, or the host reaps its children itself
  std::string output;  // what it wrote to stdout and stderr, in that order of writing
};

// Runs arguments[0], a path, in `directory`, with this environment ("NAME=value") and no other, no
// input, and every signal as programs expect it; waits for its end.  What it writes beyond 64 MiB
// is read and dropped.
// kUnsupported: it cannot be started.  kIo: no pipe to be had.
Result<ChildOutcome> run_child(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& environment,
                               const std::string& directory);

}  // namespace cubinery
