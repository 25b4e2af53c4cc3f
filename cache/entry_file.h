// One entry file, read and verified.
#pragma once

#include <optional>
#include <string>

#include "cache/entry.h"
#include "cache/env.h"

namespace cubinery {

struct EntryFile {
  FileInfo info;
  std::optional<Entry> entry;  // a good one
  std::string trouble;         // why there is none; empty when there is no such file either
  EntryProblem problem =
      EntryProblem::kNone;  // what is wrong with the bytes, where that is the trouble
};

// Reads the file and checks everything that can be checked without knowing what is wanted: its
// owner (unless `trust`), its bytes, and that its name is the one its identity asks for.
EntryFile read_entry_file(Env& env, const std::string& path, bool trust);

}  // namespace cubinery
