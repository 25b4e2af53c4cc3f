#include "cache/trust.h"

#include <fmt/format.h>

namespace cubinery {
namespace {

constexpr std::uint32_t kRoot = 0;
constexpr std::uint32_t kGroupWrites = 020;
constexpr std::uint32_t kOthersWrite = 002;

bool others_can_write(Env& env, const FileInfo& info) {
  if ((info.mode & kOthersWrite) != 0) return true;
  return (info.mode & kGroupWrites) != 0 && info.group != env.private_group();
}

}  // namespace

Trust trust_of(const Options& options) { return {.everybody = options.trust_shared_dirs}; }

Status check_owner(Env& env, const std::string& path, const FileInfo& info, const Trust& trust) {
  if (trust.everybody) return Status();
  if (info.owner != env.user() && info.owner != kRoot) {
    return Status(Code::kIo,
                  fmt::format("{} belongs to user {}, who could run code as us through it; "
                              "set trust_shared_dirs if that user is trusted",
                              path, info.owner));
  }
  if (others_can_write(env, info)) {
    return Status(Code::kIo,
                  fmt::format("{} can be written by other users, who could run code as us "
                              "through it; chmod go-w, or set trust_shared_dirs",
                              path));
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

}  // namespace cubinery
