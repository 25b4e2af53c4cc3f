#include "runtime/jit/native_code.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <vector>

namespace cubinery {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the system has it

// The way to a file as the system goes it, each step of it checked.
class Walk {
 public:
  explicit Walk(const Trust& trust) : trust_(trust) {}

  Status to(const fs::path& path) {
    CUBINERY_RETURN_IF_ERROR(start(path));
    int links = 0;
    while (!left_.empty()) {
      const fs::path name = std::move(left_.back());
      left_.pop_back();
      if (name.empty() || name == ".") continue;
      const fs::path next = name == ".." ? at_.parent_path() : at_ / name;
      struct ::stat status {};
      if (::lstat(next.c_str(), &status) != 0) return {};
      if (S_ISLNK(status.st_mode)) {
        std::error_code error;
        const fs::path target = fs::read_symlink(next, error);
        if (error || ++links > kMaxLinks) return {};
        CUBINERY_RETURN_IF_ERROR(check_link(next, status));
        CUBINERY_RETURN_IF_ERROR(start(target));
      } else if (S_ISDIR(status.st_mode)) {
        CUBINERY_RETURN_IF_ERROR(enter(next, status));
      } else {
        if (is_sticky_) CUBINERY_RETURN_IF_ERROR(check(at_, dir_));
        return check(next, info_of(status));
      }
    }
    return {};
  }

 private:
  static constexpr std::uint32_t kSticky = 01000;
  static constexpr std::uint32_t kOthersWrite = 022;  // group or others

  static FileInfo info_of(const struct ::stat& status) {
    return {.owner = status.st_uid, .group = status.st_gid, .mode = status.st_mode & 07777u};
  }

  Status check(const fs::path& path, const FileInfo& info) const {
    return check_owner(*env_, path.string(), info, trust_);
  }

  // A path's steps come before those that are left, from the root on where it is absolute.
  Status start(const fs::path& path) {
    const std::vector<fs::path> steps(path.begin(), path.end());
    left_.insert(left_.end(), steps.rbegin(), steps.rend());
    if (!path.is_absolute()) return {};
    left_.pop_back();  // the root
    struct ::stat status {};
    if (::lstat("/", &status) != 0) return {};
    return enter("/", status);
  }

  Status enter(const fs::path& dir, const struct ::stat& status) {
    at_ = dir;
    dir_ = info_of(status);
    is_sticky_ = (dir_.mode & kSticky) != 0;
    FileInfo info = dir_;
    if (is_sticky_) info.mode &= ~kOthersWrite;
    return check(dir, info);
  }

  // A link has no mode of its own.  Where it lies has been checked, and where it cannot be replaced
  // for another's it counts who laid it.
  Status check_link(const fs::path& link, const struct ::stat& status) const {
    FileInfo info = info_of(status);
    info.mode = 0700;
    return is_sticky_ ? check(link, info) : Status();
  }

  const std::shared_ptr<Env> env_ = posix_env();
  const Trust& trust_;
  fs::path at_;  // no link in it
  FileInfo dir_;
  bool is_sticky_ = false;
  std::vector<fs::path> left_;  // the next step last
};

}  // namespace

Status check_library(const std::string& path, const Trust& trust) {
  if (trust.everybody) return {};
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return error ? Status() : Walk(trust).to(whole);
}

Result<std::string> find_program(std::string_view what, const std::vector<std::string>& places,
                                 const Trust& trust) {
  std::string refused;
  for (const std::string& place : places) {
    std::error_code ignored;
    if (!fs::exists(place, ignored)) continue;
    const Status trusted = check_library(place, trust);
    if (trusted.ok()) return place;
    refused += fmt::format("; {}: {}", place, trusted.message());
  }
  return Status(Code::kUnsupported, fmt::format("{}: none of {}{}; install the CUDA toolkit", what,
                                                fmt::join(places, ", "), refused));
}

}  // namespace cubinery
