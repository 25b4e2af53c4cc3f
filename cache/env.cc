// The POSIX environment.
#include "cache/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "cache/file_io.h"
#include "cache/file_lock.h"
#include "cache/system_call.h"

namespace cubinery {
namespace {

FileInfo info_of(const struct ::stat& status) {
  FileInfo info;
  info.kind = S_ISREG(status.st_mode)   ? FileKind::kRegular
              : S_ISDIR(status.st_mode) ? FileKind::kDirectory
                                        : FileKind::kOther;
  info.bytes = static_cast<std::uint64_t>(status.st_size);
  info.mtime_ns = saturated_ns(status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  info.owner = status.st_uid;
  info.group = status.st_gid;
  info.mode = status.st_mode & 07777u;
  return info;
}

Env::NextPart one_part(std::string_view bytes) {
  return [bytes](std::string* part) mutable {
    *part = std::exchange(bytes, {});
    return std::error_code();
  };
}

class PosixFile : public OpenFile {
 public:
  PosixFile(Descriptor fd, FileInfo info) : OpenFile(info), fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  std::error_code read_at(std::uint64_t offset, std::size_t size,
                          std::string* bytes) const override {
    // What is asked for may come from a damaged file: no memory for bytes that are not there.
    const std::uint64_t left = info().bytes - std::min(info().bytes, offset);
    return read_range(fd_.get(), offset,
                      static_cast<std::size_t>(std::min<std::uint64_t>(size, left)), bytes);
  }

 private:
  const Descriptor fd_;
};

class PosixEnv : public Env {
 public:
  std::error_code read(const std::string& path, std::string* bytes, FileInfo* info) override {
    return retry_stale([&] {
      bytes->clear();
      std::unique_ptr<PosixFile> file;
      if (const std::error_code error = open_regular(path, &file)) return error;
      *info = file->info();
      if (info->bytes > kMaxFileBytes) return error_of(EFBIG);
      return read_to_end(file->fd(), info->bytes, kMaxFileBytes, bytes);
    });
  }

  std::error_code open(const std::string& path, std::unique_ptr<OpenFile>* file) override {
    std::unique_ptr<PosixFile> opened;
    const std::error_code error = retry_stale([&] { return open_regular(path, &opened); });
    if (!error) *file = std::move(opened);
    return error;
  }

  std::error_code write_parts(const std::string& path, std::uint32_t mode,
                              const NextPart& next) override {
    Descriptor file;
    if (const std::error_code error = retry_stale([&] {
          file = open_file(path, O_WRONLY | O_CREAT | O_EXCL, mode);
          return file.ok() ? std::error_code() : last_error();
        })) {
      return error;
    }
    std::string part;
    do {
      if (const std::error_code error = next(&part)) return error;
      if (const std::error_code error = write_all(file.get(), part)) return error;
    } while (!part.empty());
    if (const std::error_code error = sync_file(file.get())) return error;
    return file.close();
  }

  std::error_code append(const std::string& path, std::string_view line, std::uint32_t mode,
                         std::string* before) override {
    constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
    return retry_stale([&] {
      Descriptor file = open_file(path, kFlags, mode);
      if (!file.ok()) return last_error();
      // pread(): a pipe or a terminal is refused, where read() would take what is somebody's.
      const std::error_code error = read_range(file.get(), 0, kMaxLogBytes, before);
      if (error) return error;
      if (const std::error_code failed = write_all(file.get(), line)) return failed;
      return file.close();
    });
  }

  std::error_code rename(const std::string& from, const std::string& to) override {
    return move(from, to, [&] { return ::rename(from.c_str(), to.c_str()); });
  }

  std::error_code rename_new(const std::string& from, const std::string& to) override {
    std::error_code error = move(from, to, [&] {
      return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    });
    // Network file systems and old kernels do not know the flag; they know links.
    if (error != error_of(EINVAL) && error != error_of(ENOSYS)) return error;
    error = move(from, to, [&] { return ::link(from.c_str(), to.c_str()); });
    if (!error) {
      (void)remove(from);
      return {};
    }
    const bool has_links = error != std::errc::operation_not_permitted &&
                           error != std::errc::operation_not_supported &&
                           error != std::errc::function_not_supported;
    return has_links ? error : rename(from, to);
  }

  std::error_code sync_dir(const std::string& dir) override {
    const std::error_code error = retry_stale([&] {
      const Descriptor file = open_file(dir, O_RDONLY | O_DIRECTORY);
      return file.ok() ? sync_file(file.get()) : last_error();
    });
    // A file system that cannot sync a directory says so with EINVAL: nothing more can be done.
    return error == std::errc::invalid_argument ? std::error_code() : error;
  }

  std::error_code remove(const std::string& path) override {
    bool again = false;
    return retry_stale([&] {
      const std::error_code error = call_error(::unlink(path.c_str()));
      // The first time it was done, and only its answer was lost.
      return std::exchange(again, true) && is_absent(error) ? std::error_code() : error;
    });
  }

  std::error_code list(const std::string& dir, std::vector<DirEntry>* entries) override {
    return retry_stale([&] { return list_once(dir, entries); });
  }

  std::error_code list_names(const std::string& dir, std::vector<std::string>* names) override {
    return retry_stale([&] { return list_names_once(dir, names); });
  }

  std::error_code make_dirs(const std::string& dir) override {
    const std::error_code error = make_dir(dir);
    if (error != std::errc::no_such_file_or_directory) return error;
    const std::size_t slash = dir.find_last_of('/');
    if (slash == dir.npos || slash == 0) return error;
    if (const std::error_code parent_error = make_dirs(dir.substr(0, slash))) return parent_error;
    return make_dir(dir);
  }

  std::error_code stat(const std::string& path, FileInfo* info) override {
    struct ::stat status {};
    const std::error_code error =
        retry_stale([&] { return call_error(::stat(path.c_str(), &status)); });
    if (!error) *info = info_of(status);
    return error;
  }

  std::error_code set_mtime(const std::string& path, std::int64_t mtime_ns) override {
    std::array<timespec, 2> times{};  // access, modification
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = static_cast<time_t>(mtime_ns / kNsPerSecond);
    times[1].tv_nsec = static_cast<long>(mtime_ns % kNsPerSecond);
    return retry_stale(
        [&] { return call_error(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0)); });
  }

  std::error_code set_access(const std::string& path, std::uint32_t group,
                             std::uint32_t mode) override {
    return retry_stale([&] {
      struct ::stat status {};
      if (::lstat(path.c_str(), &status) != 0) return last_error();
      if (S_ISLNK(status.st_mode)) return error_of(ELOOP);
      if (status.st_gid != group && ::lchown(path.c_str(), static_cast<uid_t>(-1), group) != 0) {
        return last_error();
      }
      return call_error(::chmod(path.c_str(), mode));
    });
  }

  std::error_code try_lock(const std::string& path, std::string_view owner,
                           std::unique_ptr<HeldLock>* held) override {
    return try_lock_file(path, owner, held);
  }

  std::string lock_owner(const std::string& path) override { return lock_file_owner(path); }

  std::int64_t now_ns() override {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return saturated_ns(now.tv_sec, now.tv_nsec);
  }

  std::uint64_t random() override {
    std::uint64_t value = 0;
    if (::getrandom(&value, sizeof(value), 0) == ssize_t{sizeof(value)}) return value;
    return static_cast<std::uint64_t>(now_ns());  // sandboxes may forbid the call
  }

  std::uint32_t user() override { return ::geteuid(); }

  std::optional<std::uint32_t> private_group() override {
    constexpr std::size_t kTextBytes = 16384;  // on the heap: a thread's stack may be small
    std::vector<char> user_text(kTextBytes);
    std::vector<char> group_text(kTextBytes);
    passwd user{};
    ::group group{};
    passwd* found_user = nullptr;
    ::group* found_group = nullptr;
    const uid_t id = ::geteuid();
    if (id == 0) return std::nullopt;
    (void)::getpwuid_r(id, &user, user_text.data(), user_text.size(), &found_user);
    if (found_user == nullptr) return std::nullopt;
    (void)::getgrgid_r(user.pw_gid, &group, group_text.data(), group_text.size(), &found_group);
    const std::string_view name = user.pw_name;
    if (found_group == nullptr || group.gr_name != name) return std::nullopt;
    for (char** member = group.gr_mem; *member != nullptr; ++member) {
      if (*member != name) return std::nullopt;
    }
    if (has_other_user("/etc/passwd", id, user.pw_gid)) return std::nullopt;
    return user.pw_gid;
  }

  std::int64_t process() override { return ::getpid(); }

  std::string host() override {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
    return name.data();
  }

 private:
  // By `call`, of rename() and its kin.  Network file systems ask again where an answer is lost,
  // and are told that the one file is not there, or that the other one is: then it is done.
  template <class Call>
  static std::error_code move(const std::string& from, const std::string& to, Call call) {
    struct ::stat before {};
    struct ::stat after {};
    const bool is_known = ::lstat(from.c_str(), &before) == 0;
    const std::error_code error = retry_stale([&] { return call_error(call()); });
    if (!is_absent(error) && error != std::errc::file_exists) return error;
    const bool is_done = is_known && ::lstat(to.c_str(), &after) == 0 &&
                         before.st_dev == after.st_dev && before.st_ino == after.st_ino &&
                         before.st_size == after.st_size;
    return is_done ? std::error_code() : error;
  }

  // Whether it is the file that cannot be examined, rather than the disk.
  static bool is_file_fault(std::error_code error) {
    return is_absent(error) || error == std::errc::permission_denied ||
           error == std::errc::too_many_symbolic_link_levels;
  }

  static std::error_code list_names_once(const std::string& dir, std::vector<std::string>* names) {
    names->clear();
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(dir.c_str()), &::closedir);
    if (!stream) return last_error();
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) return last_error();
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names->emplace_back(name);
    }
  }

  static std::error_code list_once(const std::string& dir, std::vector<DirEntry>* entries) {
    entries->clear();
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(dir.c_str()), &::closedir);
    if (!stream) return last_error();
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) return last_error();  // no error at the end: errno is 0
      struct ::stat status {};
      const std::error_code error = retry_stale(
          [&] { return call_error(::fstatat(::dirfd(stream.get()), entry->d_name, &status, 0)); });
      if (is_file_fault(error)) continue;
      if (error) return error;
      if (!S_ISDIR(status.st_mode)) entries->push_back({entry->d_name, info_of(status)});
    }
  }

  static std::error_code open_regular(const std::string& path, std::unique_ptr<PosixFile>* file) {
    // Non-blocking: opening a named pipe must not wait for its writer.
    Descriptor fd = open_file(path, O_RDONLY | O_NONBLOCK);
    if (!fd.ok()) return last_error();
    struct ::stat status {};
    if (::fstat(fd.get(), &status) != 0) return last_error();
    const FileInfo info = info_of(status);
    if (info.kind != FileKind::kRegular) return error_of(EINVAL);
    *file = std::make_unique<PosixFile>(std::move(fd), info);
    return {};
  }

  static std::error_code make_dir(const std::string& dir) {
    const std::error_code error =
        retry_stale([&] { return call_error(::mkdir(dir.c_str(), 0700)); });
    if (!error) return error;
    // A read-only or automounted file system may complain about a directory that is there.
    struct ::stat status {};
    if (retry_stale([&] { return call_error(::stat(dir.c_str(), &status)); })) return error;
    return S_ISDIR(status.st_mode) ? std::error_code() : error_of(ENOTDIR);
  }
};

}  // namespace

std::int64_t saturated_ns(std::int64_t seconds, std::int64_t nanoseconds) {
  constexpr std::int64_t kMostSeconds = 9'000'000'000;
  if (seconds >= kMostSeconds) return kMostSeconds * kNsPerSecond;
  return std::max(seconds, -kMostSeconds) * kNsPerSecond + nanoseconds;
}

std::chrono::milliseconds Env::uptime() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

void Env::pause(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

std::shared_ptr<Env> posix_env() { return std::make_shared<PosixEnv>(); }

std::error_code Env::write_synced(const std::string& path, std::string_view bytes,
                                  std::uint32_t mode) {
  return retry_stale([&] {
    const std::error_code error = write_parts(path, mode, one_part(bytes));
    if (is_stale(error)) (void)remove(path);
    return error;
  });
}

std::error_code replace_file(Env& env, const Replacement& file, std::string_view bytes) {
  return retry_stale([&] { return replace_file(env, file, one_part(bytes)); });
}

std::error_code replace_file(Env& env, const Replacement& file, const Env::NextPart& next) {
  std::error_code error = env.write_parts(file.temporary, file.mode, next);
  if (error == std::errc::file_exists) return error;  // somebody else's
  if (!error && file.finish) error = file.finish();
  if (!error) error = env.rename(file.temporary, file.path);
  if (error) (void)env.remove(file.temporary);
  return error;
}

bool has_other_user(const std::string& passwd_file, std::uint32_t user, std::uint32_t group) {
  std::FILE* const file = std::fopen(passwd_file.c_str(), "re");
  if (file == nullptr) return false;
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(16384);
  bool has_other = false;
  int error = 0;
  while (!has_other && error == 0) {
    error = ::fgetpwent_r(file, &entry, text.data(), text.size(), &found);
    has_other = error == 0 ? entry.pw_gid == group && entry.pw_uid != user : error != ENOENT;
  }
  std::fclose(file);
  return has_other;
}

bool is_absent(std::error_code error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

Status io_error(std::string_view verb, std::string_view path, std::error_code error) {
  return Status(Code::kIo, fmt::format("cannot {} {}: {}", verb, path, error.message()));
}

Status read_error(std::string_view path, std::error_code error) {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kIo, fmt::format("cannot read {}: {}", path, why));
  };
  if (error == std::errc::invalid_argument) return refuse("it is not a regular file");
  if (error == std::errc::file_too_large) {
    return refuse(fmt::format("it has more than {} MiB", Env::kMaxFileBytes >> 20));
  }
  return io_error("read", path, error);
}

Result<std::string> read_file(const std::string& path) {
  std::string bytes;
  FileInfo info;
  if (const std::error_code error = posix_env()->read(path, &bytes, &info)) {
    return read_error(path, error);
  }
  return bytes;
}

}  // namespace cubinery
