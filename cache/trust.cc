#include "cache/trust.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/paths.h"

namespace cubinery {
namespace {

constexpr std::uint32_t kRoot = 0;
constexpr std::uint32_t kGroupIdStays = 02000;  // for what is made in the directory
constexpr std::uint32_t kGroupWrites = 020;
constexpr std::uint32_t kOthersWrite = 002;

// What a shared directory may have.  Never the others' to write.
constexpr std::uint32_t kSharedDirMode = 02775;

bool contains(const std::vector<std::uint32_t>& ids, std::uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool is_trusted_user(Env& env, std::uint32_t user, const Trust& trust) {
  return user == env.user() || user == kRoot || contains(trust.users, user);
}

// Only its members can give a file a group, except in a directory that everybody can write and that
// hands its group on.
bool is_of_trusted_group(Env& env, std::string path, const FileInfo& info, const Trust& trust) {
  if (!contains(trust.groups, info.group)) return false;
  for (;;) {
    const std::string dir = paths::parent(path);
    FileInfo above;
    if (dir == path || env.stat(dir, &above) || above.group != info.group) return true;
    if ((above.mode & kOthersWrite) != 0) return false;
    if (is_trusted_user(env, above.owner, trust)) return true;
    path = dir;
  }
}

// Whether the group of a directory shares what is in it.
bool shares(const FileInfo& dir, const Trust& trust) {
  if ((dir.mode & kGroupWrites) == 0) return false;
  return contains(trust.groups, dir.group) || (trust.everybody && (dir.mode & kGroupIdStays) != 0);
}

// The setting of this trust with one id more.
enum class IdOf : int { kUser, kGroup };
std::string setting(const Trust& trust, IdOf kind, std::uint32_t id) {
  Trust more = trust;
  (kind == IdOf::kUser ? more.users : more.groups).push_back(id);
  return "CUBINERY_TRUST=" + to_text(more);
}

Status refusal(const std::string& path, std::string_view why, std::string_view remedy) {
  return Status(Code::kIo,
                fmt::format("{} {}, who could run code as us through it; {}", path, why, remedy));
}

Status group_refusal(const std::string& path, std::string_view why, std::uint32_t group,
                     const Trust& trust) {
  return refusal(path, why,
                 fmt::format("chmod g-w, or set {} if the members of that group are trusted",
                             setting(trust, IdOf::kGroup, group)));
}

}  // namespace

Trust trust_of(const Options& options) {
  Trust trust = options.trust;
  trust.everybody = trust.everybody || options.trust_shared_dirs;
  return trust;
}

std::string to_text(const Trust& trust) {
  if (trust.everybody) return "all";
  std::string text;
  const auto add = [&](std::string_view kind, const std::vector<std::uint32_t>& ids) {
    for (const std::uint32_t id : ids) {
      text += fmt::format("{}{}{}", text.empty() ? "" : ",", kind, id);
    }
  };
  add("uid:", trust.users);
  add("gid:", trust.groups);
  return text;
}

Status check_owner(Env& env, const std::string& path, const FileInfo& info, const Trust& trust) {
  if (trust.everybody) return Status();
  const bool others_write = (info.mode & kOthersWrite) != 0;
  const bool group_writes = (info.mode & kGroupWrites) != 0;
  const bool is_trusted_group = contains(trust.groups, info.group);
  if (!is_trusted_user(env, info.owner, trust) && !is_of_trusted_group(env, path, info, trust)) {
    const std::string why = fmt::format("belongs to user {}", info.owner);
    if (group_writes && !others_write && !is_trusted_group) {
      return group_refusal(path, fmt::format("{} and can be written by group {}", why, info.group),
                           info.group, trust);
    }
    return refusal(
        path, why,
        fmt::format("set {} if that user is trusted", setting(trust, IdOf::kUser, info.owner)));
  }
  if (others_write) {
    return refusal(path, "can be written by other users",
                   "chmod go-w, or set trust_shared_dirs (CUBINERY_TRUST=all)");
  }
  if (group_writes && !is_trusted_group && info.group != env.private_group()) {
    return group_refusal(
        path, fmt::format("can be written by other users, those of group {}", info.group),
        info.group, trust);
  }
  return Status();
}

Status check_owner(Env& env, const std::string& path, const Trust& trust) {
  if (trust.everybody) return Status();
  FileInfo info;
  const std::error_code error = env.stat(path, &info);
  if (is_absent(error)) return Status();
  if (error) return io_error("examine", path, error);
  return check_owner(env, path, info, trust);
}

std::error_code make_dirs(Env& env, const std::string& dir, const Trust& trust) {
  if (!trust.everybody && trust.groups.empty()) return env.make_dirs(dir);
  FileInfo info;
  if (!is_absent(env.stat(dir, &info))) return env.make_dirs(dir);
  const std::string above = paths::parent(dir);
  if (above != dir) {
    if (const std::error_code error = make_dirs(env, above, trust)) return error;
  }
  if (const std::error_code error = env.make_dirs(dir)) return error;
  share_made(env, dir, kSharedDirMode, trust);
  return {};
}

void share_made(Env& env, const std::string& path, std::uint32_t mode, const Trust& trust) {
  FileInfo dir;
  if (!trust.everybody && trust.groups.empty()) return;
  if (env.stat(paths::parent(path), &dir) || !shares(dir, trust)) return;
  (void)env.set_access(path, dir.group, (mode & 0700) | (mode & dir.mode & ~std::uint32_t{0700}));
}

}  // namespace cubinery
