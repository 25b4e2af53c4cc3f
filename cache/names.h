// The names of entries in cache directories, listed once for many lookups.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cache/env.h"

namespace cubinery {

// A name is looked for in the list of its directory, and its file is opened when it stands there.
// Asked for by its path it would be a miss that clients of network file systems remember for up to
// a minute, long after another machine has made the file.  Thread-safe.
class Names {
 public:
  // Grows with each list.
  using Moment = std::uint64_t;
  static constexpr Moment kAnyTime = 0;

  Moment now();
  // Whether a cache directory has one of entries; true too where that cannot be listed.
  bool has_entries(Env& env, const std::string& dir);
  // Those names of entries in a cache directory that begin with `prefix`, in order, from a list
  // that was begun at `since` or later.  One that is absent has none.
  std::error_code find(Env& env, const std::string& dir, std::string_view prefix, Moment since,
                       std::vector<std::string>* names);
  // The next find() lists anew.
  void forget();
  // An entry that this process has made.
  void add(const std::string& dir, std::string_view name);

 private:
  bool has_entries_locked(Env& env, const std::string& dir);

  struct List {
    Moment begun = 0;
    std::vector<std::string> names;  // sorted
  };

  std::mutex mutex_;  // held while a directory is listed: who waits shares the list
  std::map<std::string, List> lists_;   // by cache directory; guarded by mutex_
  std::set<std::string> with_entries_;  // guarded by mutex_
  Moment clock_ = kAnyTime;             // guarded by mutex_
};

}  // namespace cubinery
