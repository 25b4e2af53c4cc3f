// Every file and directory name of the cache.  Persistent: docs/cache_format.md documents them.
//
//   <dir>/entries/<kernel>-<request digest>-nvrtc<version>.entry
//   <dir>/tmp/<pid>-<host>-<counter>-<random>.tmp      not yet an entry
//   <dir>/locks/<request digest>.lock                  somebody is making the entry
//   <dir>/usage                                        what all entries take
//   <pack>.<pid>-<random>.tmp                          not yet a pack
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/identity.h"

namespace cubinery::paths {

inline constexpr std::string_view kEntriesDir = "entries";
inline constexpr std::string_view kEntrySuffix = ".entry";
inline constexpr std::string_view kTemporarySuffix = ".tmp";
inline constexpr std::string_view kLockSuffix = ".lock";
inline constexpr std::string_view kVersionMark = "-nvrtc";
inline constexpr std::size_t kDigestLength = 32;
inline constexpr std::string_view kDigestCharacters = "0123456789abcdef";

inline std::string entries_dir(const std::string& dir) {
  return fmt::format("{}/{}", dir, kEntriesDir);
}
inline std::string tmp_dir(const std::string& dir) { return dir + "/tmp"; }
inline std::string locks_dir(const std::string& dir) { return dir + "/locks"; }

inline std::string usage_path(const std::string& dir) { return dir + "/usage"; }

inline std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

// "." for a name alone.
inline std::string parent(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

inline bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}
inline bool is_kernel_name(std::string_view text) {
  return consists_of(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
}
inline bool is_version(std::string_view text) { return consists_of(text, "0123456789."); }

// What the names of one request's entries start with, whichever compiler made them.
inline std::string entry_prefix(const Identity& identity) {
  return fmt::format("{}-{}{}", identity.kernel, request_digest(identity), kVersionMark);
}

inline std::string entry_name(const Identity& identity) {
  return fmt::format("{}{}{}", entry_prefix(identity), identity.nvrtc, kEntrySuffix);
}

// The compiler's version in the name of an entry; nullopt: not the name of an entry.
inline std::optional<std::string> version_in(std::string_view name) {
  if (!name.ends_with(kEntrySuffix)) return std::nullopt;
  name.remove_suffix(kEntrySuffix.size());
  const std::size_t dash = name.find('-');
  if (dash == name.npos || !is_kernel_name(name.substr(0, dash))) return std::nullopt;
  name.remove_prefix(dash + 1);
  const std::string_view digest = name.substr(0, kDigestLength);
  if (digest.size() != kDigestLength || !consists_of(digest, kDigestCharacters))
    return std::nullopt;
  name.remove_prefix(kDigestLength);
  if (!name.starts_with(kVersionMark)) return std::nullopt;
  name.remove_prefix(kVersionMark.size());
  if (!is_version(name)) return std::nullopt;
  return std::string(name);
}

inline std::string lock_path(const std::string& dir, const Identity& identity) {
  return fmt::format("{}/{}{}", locks_dir(dir), request_digest(identity), kLockSuffix);
}

// Whether temporary_path() and lock_path() may have made the name.
inline bool is_temporary_name(std::string_view name) {
  if (!name.ends_with(kTemporarySuffix)) return false;
  name.remove_suffix(kTemporarySuffix.size());
  constexpr std::string_view kDigits = "0123456789";
  for (int number = 0; number < 2; ++number) {  // random and counter; a host may have dashes
    const std::size_t dash = name.rfind('-');
    if (dash == name.npos || !consists_of(name.substr(dash + 1), kDigits)) return false;
    name = name.substr(0, dash);
  }
  const std::size_t dash = name.find('-');
  return dash != name.npos && consists_of(name.substr(0, dash), kDigits);
}
inline bool is_lock_name(std::string_view name) {
  return name.size() == kDigestLength + kLockSuffix.size() && name.ends_with(kLockSuffix) &&
         consists_of(name.substr(0, kDigestLength), kDigestCharacters);
}

inline std::string temporary_path(const std::string& dir, std::int64_t process, std::string host,
                                  std::uint64_t counter, std::uint64_t random) {
  std::replace(host.begin(), host.end(), '/', '_');
  return fmt::format("{}/{}-{}-{}-{}{}", tmp_dir(dir), process, host, counter, random,
                     kTemporarySuffix);
}

inline std::string pack_temporary_path(const std::string& path, std::int64_t process,
                                       std::uint64_t random) {
  return fmt::format("{}.{}-{}{}", path, process, random, kTemporarySuffix);
}

}  // namespace cubinery::paths
