// Whether a cache entry holds what its name says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/store.h"

namespace cubinery {

// What is wrong with an entry file.
struct EntryTrouble {
  std::string text;
  // Its bytes are good for nothing.  False: they may be good, but cannot be read or may not be
  // trusted.
  bool damaged = false;
};

// Of a file that Store::list() found, its cubin's compiler note included; nullopt: nothing is
// wrong, or the entry is of a newer format, which is somebody else's to judge.
std::optional<EntryTrouble> trouble_of(const ListedEntry& listed);

// The size of the entry at a path, in a pack as well; 0 when it is gone.
std::uint64_t entry_bytes(const std::string& path, const Trust& trust);

// Reads the file again, checks it likewise, and that it holds the kernel `canonical` for `arch`.
std::optional<std::string> check_entry_file(const std::string& path, const std::string& canonical,
                                            const std::string& arch, const Trust& trust);

}  // namespace cubinery
