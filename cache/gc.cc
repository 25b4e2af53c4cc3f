#include "cache/gc.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <tuple>

#include "cache/entry_file.h"
#include "cache/paths.h"

namespace cubinery {
namespace {

constexpr std::int64_t kHourNs = std::int64_t{3600} * 1'000'000'000;
// Writing a temporary takes milliseconds, and a lock is held while one kernel compiles.
constexpr std::int64_t kStaleAfterNs = kHourNs;
// How far clocks of machines that share a cache may differ.
constexpr std::int64_t kSkewNs = kHourNs;

std::vector<DirEntry> list_stale(Env& env, const std::string& dir, const Trust& trust,
                                 bool (*is_ours)(std::string_view name)) {
  std::vector<DirEntry> files;
  if (!check_owner(env, dir, trust).ok()) return {};
  if (env.list(dir, &files)) return {};
  const std::int64_t newest = env.now_ns() - kStaleAfterNs;
  std::erase_if(files, [&](const DirEntry& file) {
    return !is_ours(file.name) || file.info.mtime_ns > newest;
  });
  return files;
}

}  // namespace

std::vector<DirEntry> list_entries(Env& env, const std::string& dir) {
  std::vector<DirEntry> files;
  if (env.list(paths::entries_dir(dir), &files)) return {};
  std::erase_if(files, [](const DirEntry& file) { return !paths::version_in(file.name); });
  return files;
}

std::uint64_t total_bytes(const std::vector<DirEntry>& files) {
  std::uint64_t bytes = 0;
  for (const DirEntry& file : files) bytes += file.info.bytes;
  return bytes;
}

void sort_by_use(Env& env, std::vector<DirEntry>* files) {
  const std::int64_t now = env.now_ns();
  const auto used = [now](const DirEntry& file) {
    return file.info.mtime_ns - kSkewNs > now ? 0 : file.info.mtime_ns;
  };
  std::sort(files->begin(), files->end(), [&](const DirEntry& a, const DirEntry& b) {
    return std::tuple(used(a), std::string_view(a.name)) <
           std::tuple(used(b), std::string_view(b.name));
  });
}

void evict(Env& env, const std::string& dir, std::uint64_t limit_bytes, GcResult* result) {
  std::vector<DirEntry> entries = list_entries(env, dir);
  result->bytes_after = total_bytes(entries);
  if (result->bytes_after <= limit_bytes) return;
  sort_by_use(env, &entries);
  for (const DirEntry& entry : entries) {
    if (result->bytes_after <= limit_bytes) return;
    if (env.remove(paths::entries_dir(dir) + "/" + entry.name)) continue;
    result->bytes_after -= entry.info.bytes;
    ++result->entries_removed;
  }
}

void remove_damaged(Env& env, const std::string& dir, const Trust& trust, GcResult* result) {
  for (const DirEntry& file : list_entries(env, dir)) {
    const std::string path = paths::entries_dir(dir) + "/" + file.name;
    const EntryProblem problem = read_entry_file(env, path, trust).problem;
    if (problem == EntryProblem::kNone || problem == EntryProblem::kNewer) continue;
    // A good entry that was published this moment may go with it: one more compile, no harm.
    if (!env.remove(path)) ++result->entries_removed;
  }
}

void sweep(Env& env, const std::string& dir, const Trust& trust, GcResult* result) {
  for (const DirEntry& file :
       list_stale(env, paths::tmp_dir(dir), trust, paths::is_temporary_name)) {
    if (!env.remove(paths::tmp_dir(dir) + "/" + file.name)) ++result->temporaries_removed;
  }
  for (const DirEntry& file : list_stale(env, paths::locks_dir(dir), trust, paths::is_lock_name)) {
    // Removed by whoever holds it only: a lock that can be had is nobody's, and goes when let go.
    std::unique_ptr<HeldLock> held;
    if (!env.try_lock(paths::locks_dir(dir) + "/" + file.name, "gc", &held)) {
      ++result->temporaries_removed;
    }
  }
}

}  // namespace cubinery
