// Many entries in one file: what an engine ships.  docs/cache_format.md is its grammar.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry_file.h"
#include "cache/env.h"

namespace cubinery {

// Persistent: bytes change, this changes.
inline constexpr std::uint32_t kPackFormat = 1;

// What the index says of an entry.
struct PackedEntry {
  std::string name;  // as paths::entry_name() has it
  std::uint32_t bytes = 0;
  std::string checksum;  // the entry's own, at its end
};

PackedEntry packed_entry(std::string name, std::string_view entry_bytes);

// What comes before the entries of a pack, whose bytes follow as encode_entry() has them. Requires:
// at least one, in the order of their names, no name twice.
std::string encode_pack_front(const std::vector<PackedEntry>& entries);

// Whether a file that begins with `front` is a pack, of any format.
bool is_pack(std::string_view front);

// An open pack.  It stays the file that was opened: who replaces the path by another pack changes
// nothing here.  Who writes into the file makes entries of it misses, for each is compared with the
// index, which was read when the pack was opened.  Thread-safe.
class Pack {
 public:
  struct Record : PackedEntry {
    std::uint64_t offset = 0;
  };

  // Requires: the records are those of the file.
  Pack(std::unique_ptr<OpenFile> file, std::vector<Record> records)
      : file_(std::move(file)), records_(std::move(records)) {}

  const FileInfo& info() const { return file_->info(); }
  // Sorted by name; at least one.
  const std::vector<Record>& records() const { return records_; }
  // The first whose name is not before this one; behind the last: none is.
  const Record* first_from(std::string_view name) const;
  // Null: the pack has no entry of this name.
  const Record* find(std::string_view name) const;

  // What read_entry_file() and read_identity() do, of one of records().
  EntryFile read(const Record& record) const;
  std::optional<Identity> read_identity(const Record& record) const;

  // Whether a network file system has said that the file is gone, which it does for ever: another
  // machine has put a new pack in its place.
  bool is_stale() const { return stale_; }

 private:
  const std::unique_ptr<OpenFile> file_;
  const std::vector<Record> records_;
  mutable std::atomic<bool> stale_{false};
};

struct PackFile {
  FileInfo info;
  std::shared_ptr<const Pack> pack;  // a good one, as far as its index goes
  // Why there is none: the system's text, "not a pack", "newer format", "truncated", "checksum",
  // "index".
  std::string trouble;
};

// Opens a pack and reads its index; entries are checked as they are read.
PackFile open_pack(Env& env, const std::string& path);

}  // namespace cubinery
