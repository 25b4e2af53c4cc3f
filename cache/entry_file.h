// One entry file, read and verified.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cache/entry.h"
#include "cache/env.h"
#include "cache/trust.h"

namespace cubinery {

struct EntryFile {
  FileInfo info;
  std::optional<Entry> entry;  // a good one
  std::string trouble;         // why there is none; empty when there is no such file either
  EntryProblem problem =
      EntryProblem::kNone;  // what is wrong with the bytes, where that is the trouble
};

// Why an entry that decodes well is of no use; nullopt: it is of use.
using AcceptEntry = std::function<std::optional<std::string>(const Entry&)>;

// Why there is no entry to be used, by `accept` too unless that is null; empty: there is one, or no
// file.
std::string trouble_with(const EntryFile& file, const AcceptEntry& accept);

// Checks the bytes of the entry file called `name`, and that its name is the one its identity asks
// for; sets all but `info`.
EntryFile check_entry(std::string_view bytes, std::string_view name);

// Reads the file and checks everything that can be checked without knowing what is wanted: its
// owner, its bytes and its name.
EntryFile read_entry_file(Env& env, const std::string& path, const Trust& trust);

// The identity of the entry called `name` that starts at `offset`, from its front alone: enough to
// compare, not to load.  nullopt: it is not that of the name.  An error: it cannot be read.
std::error_code read_identity(const OpenFile& file, std::uint64_t offset, std::string_view name,
                              std::optional<Identity>* identity);

}  // namespace cubinery
