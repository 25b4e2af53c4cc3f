// Keeping a cache directory to its limit without looking at each entry at each publication.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/env.h"

namespace cubinery {

// What all entries of a directory take, as <dir>/usage has it (docs/cache_format.md); nullopt: the
// text is none, or was measured more than an hour from `now_ns`, so that they are to be measured.
std::optional<std::uint64_t> parse_usage(std::string_view text, std::int64_t now_ns);

// One process's part in it.  Thread-safe.
class Eviction {
 public:
  struct Place {
    Env& env;
    const std::string& dir;
    std::uint64_t limit_bytes;
    std::uint32_t mode;  // of the file of usage
    std::function<std::string()> temporary;
  };

  // `name` has been added to the entries, with so many bytes: removes others, least recently used
  // first, until all together have at most the limit.  True: the directory was measured, which
  // takes a look at each entry: once an hour, and when what is known to be old is removed.
  bool added(const Place& place, std::string_view name, std::uint64_t bytes);
  // They were measured.
  static void measured(const Place& place, std::uint64_t bytes);

 private:
  std::optional<std::uint64_t> count(const Place& place, std::uint64_t added);
  std::uint64_t measure(const Place& place);

  std::mutex mutex_;
  std::vector<DirEntry> oldest_last_;  // as last measured; guarded by mutex_
};

}  // namespace cubinery
