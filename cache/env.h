// The file system, the clock and the process as the cache sees them: the seam for tests.
//
// Every failure is a value: an errno in std::generic_category().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cubinery/status.h"

namespace cubinery {

inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;

enum class FileKind : int { kRegular, kDirectory, kOther };

struct FileInfo {
  FileKind kind = FileKind::kRegular;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;  // since 1970, as saturated_ns() has it
  std::uint32_t owner = 0;    // user id
  std::uint32_t group = 0;    // group id
  std::uint32_t mode = 0;     // permission bits
};

struct DirEntry {
  std::string name;
  FileInfo info;
};

// Times of files can lie in any year.  Saturated in 1684 and 2255, so that differences to clocks,
// and ages added to them, do not overflow.
std::int64_t saturated_ns(std::int64_t seconds, std::int64_t nanoseconds);
// A regular file that is open: the same file, whatever its path comes to mean.  Thread-safe.
class OpenFile {
 public:
  explicit OpenFile(FileInfo info) : info_(info) {}
  virtual ~OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // As it was when it was opened.
  const FileInfo& info() const { return info_; }
  // `size` bytes from `offset` on, fewer where the file ends.  ESTALE: on another machine the file
  // was removed, or the path given to another one; it has to be opened anew.
  virtual std::error_code read_at(std::uint64_t offset, std::size_t size,
                                  std::string* bytes) const = 0;

 private:
  const FileInfo info_;
};

// An exclusive lock on a file.  The destructor removes the file, then releases the lock.
class HeldLock {
 public:
  HeldLock() = default;
  virtual ~HeldLock() = default;
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
};

// Thread-safe.  Symbolic links are followed except where a method says otherwise.  Where a network
// file system calls a file stale (ESTALE), what has a path asks for it again, a few times.
class Env {
 public:
  // Larger files are refused with file_too_large: no entry comes near, and a read must not eat the
  // memory.
  static constexpr std::uint64_t kMaxFileBytes = std::uint64_t{256} << 20;
  static constexpr std::size_t kMaxLogBytes = std::size_t{64} << 10;

  // Sets the next part of a file; an empty one is its end.
  using NextPart = std::function<std::error_code(std::string* part)>;

  Env() = default;
  virtual ~Env() = default;
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

  // The whole file.  `info` describes the file that was read, whatever the path has come to mean
  // since.  invalid_argument: it is not a regular file.
  virtual std::error_code read(const std::string& path, std::string* bytes, FileInfo* info) = 0;
  // For files that are larger, or of which less is wanted.
  virtual std::error_code open(const std::string& path, std::unique_ptr<OpenFile>* file) = 0;
  // Creates the file with this mode less the umask; it must not exist, not even as a symbolic link.
  // OK: the bytes are on the disk, though the directory may not be.  An error may leave part of the
  // file behind.
  virtual std::error_code write_parts(const std::string& path, std::uint32_t mode,
                                      const NextPart& next) = 0;
  std::error_code write_synced(const std::string& path, std::string_view bytes, std::uint32_t mode);
  // Appends a line to a small file, which is created when missing; `before` is what it had, at most
  // kMaxLogBytes of it.  Not synced, and never a symbolic link's target.
  virtual std::error_code append(const std::string& path, std::string_view line, std::uint32_t mode,
                                 std::string* before) = 0;
  // Replaces `to` atomically.
  virtual std::error_code rename(const std::string& from, const std::string& to) = 0;
  // Moves the file atomically to a name that nothing has.  file_exists: something has it, and both
  // are as they were.  Where the file system can neither rename so nor link, it may replace.
  virtual std::error_code rename_new(const std::string& from, const std::string& to) = 0;
  // Makes renames in this directory durable.
  virtual std::error_code sync_dir(const std::string& dir) = 0;
  // Removes a file, or the symbolic link itself.
  virtual std::error_code remove(const std::string& path) = 0;
  // Files in no particular order; what disappears meanwhile is left out.
  virtual std::error_code list(const std::string& dir, std::vector<DirEntry>* entries) = 0;
  // The names of all that is in a directory, none of which is looked at.
  virtual std::error_code list_names(const std::string& dir, std::vector<std::string>* names) = 0;
  // Creates the directory and its missing parents with mode 0700.  OK when it is there.
  virtual std::error_code make_dirs(const std::string& dir) = 0;
  virtual std::error_code stat(const std::string& path, FileInfo* info) = 0;
  virtual std::error_code set_mtime(const std::string& path, std::int64_t mtime_ns) = 0;
  // Of a file or directory, not of what a symbolic link leads to.
  virtual std::error_code set_access(const std::string& path, std::uint32_t group,
                                     std::uint32_t mode) = 0;

  // Takes the lock on a file, which is created when missing, without waiting; writes `owner` into
  // it. operation_would_block: somebody else holds it, another thread of this process perhaps, or
  // let go of it this very moment.  Any other error: there is no lock to be had here.  That is so
  // too where the path is a symbolic link, a file with other names, or no regular file: nothing is
  // written to it.
  virtual std::error_code try_lock(const std::string& path, std::string_view owner,
                                   std::unique_ptr<HeldLock>* held) = 0;

  // What the holder of a lock wrote into its file; empty: unknown.  Lock files are read by this
  // alone: read() could take the lock from another thread.
  virtual std::string lock_owner(const std::string& path) = 0;

  virtual std::int64_t now_ns() = 0;  // since 1970
  // For waiting: a clock that nobody sets, and a pause of this thread.
  virtual std::chrono::milliseconds uptime();
  virtual void pause(std::chrono::milliseconds time);
  virtual std::uint64_t random() = 0;
  virtual std::uint32_t user() = 0;  // effective user id
  // The group that has the effective user's name and nobody else in it: many systems give users
  // one, and let it write what they make.  nullopt: none; root has none.
  virtual std::optional<std::uint32_t> private_group() { return std::nullopt; }
  virtual std::int64_t process() = 0;  // its id; not remembered, so that it is right after a fork()
  virtual std::string host() = 0;
};

std::shared_ptr<Env> posix_env();

// A file of these bytes at `path`: who reads it, even after a crash, sees it whole or as it was
// before.  Renames are durable after sync_dir().
struct Replacement {
  std::string path;
  std::string temporary;  // on the same file system, and not there; never left behind
  std::uint32_t mode;     // less the umask
  // What is done to the temporary before it takes its place.  Null: nothing.
  std::function<std::error_code()> finish;
};
std::error_code replace_file(Env& env, const Replacement& file, std::string_view bytes);
std::error_code replace_file(Env& env, const Replacement& file, const Env::NextPart& next);

// Whether an error says that there is no such file.
bool is_absent(std::error_code error);

// Whether a user other than `user` has the group for its primary one, which no list of members
// says, by a file like /etc/passwd.  Those of a directory service are not in it.
bool has_other_user(const std::string& passwd_file, std::uint32_t user, std::uint32_t group);

// kIo: "cannot <verb> <path>: <text of error>".
Status io_error(std::string_view verb, std::string_view path, std::error_code error);
// The same of Env::read(), in whose errors some texts of the system would say too little.
Status read_error(std::string_view path, std::error_code error);

// The whole of a regular file: never waits for a pipe's writer, never reads without end.  kIo.
Result<std::string> read_file(const std::string& path);

}  // namespace cubinery
