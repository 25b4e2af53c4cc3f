// What the cache removes from its writable directory.  Files whose names are not the cache's are
// left alone, and failures too: what cannot be removed now is there the next time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/env.h"
#include "cache/trust.h"

namespace cubinery {

struct GcResult {
  std::uint64_t entries_removed = 0;
  std::uint64_t temporaries_removed = 0;  // abandoned lock files included
  std::uint64_t bytes_before = 0;         // of all entries
  std::uint64_t bytes_after = 0;
};

// The entry files of a cache directory; none when it cannot be listed.
std::vector<DirEntry> list_entries(Env& env, const std::string& dir);

std::uint64_t total_bytes(const std::vector<DirEntry>& files);

// Least recently used first.  A stamp more than an hour ahead of the clock is nobody's use: first
// of all.
void sort_by_use(Env& env, std::vector<DirEntry>* files);

// Removes entries, least recently used first, until the rest holds at most `limit_bytes`.  Sets
// result->bytes_after.
void evict(Env& env, const std::string& dir, std::uint64_t limit_bytes, GcResult* result);

// Removes entries that no lookup can use.  Those of newer formats stay: a newer library can.
void remove_damaged(Env& env, const std::string& dir, const Trust& trust, GcResult* result);

// Removes temporaries and lock files that nobody has touched for an hour.  Unless `trust`, nothing
// from a directory that others could have put together (cache/trust.h).
void sweep(Env& env, const std::string& dir, const Trust& trust, GcResult* result);

}  // namespace cubinery
