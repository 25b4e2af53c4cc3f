#include "cache/file_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "cache/file_io.h"
#include "cache/system_call.h"

namespace cubinery {
namespace {

constexpr std::uint64_t kMaxOwnerBytes = 4096;

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};

FileId id_of(const struct ::stat& status) { return {status.st_dev, status.st_ino}; }

// A lock file that this process has open.
struct OwnLock {
  std::string path;
  std::string owner;
  std::optional<FileId> file;  // once it is locked
};

// The list of them.  A child of fork() has locks of its own, none yet, and its parent's mutex may
// be locked for ever: it makes a list anew.
struct OwnLocks {
  explicit OwnLocks(OwnLocks* locks) : of_parent(locks) {}

  const pid_t process = ::getpid();
  OwnLocks* const of_parent;  // kept, so that no tool takes it for a leak
  std::mutex mutex;
  std::list<OwnLock> locks;  // guarded by mutex

  // By name while it is being locked.  Then by file: somebody may have removed it, and the path is
  // free for the next one.
  OwnLock* find(const std::string& path, const std::optional<FileId>& file) {
    const auto found = std::find_if(locks.begin(), locks.end(), [&](const OwnLock& lock) {
      return lock.file ? lock.file == file : lock.path == path;
    });
    return found == locks.end() ? nullptr : &*found;
  }
};

OwnLocks& own_locks() {
  static std::atomic<OwnLocks*> current{nullptr};
  OwnLocks* locks = current.load();
  while (locks == nullptr || locks->process != ::getpid()) {
    auto made = std::make_unique<OwnLocks>(locks);
    if (current.compare_exchange_strong(locks, made.get())) locks = made.release();
  }
  return *locks;
}

// A path on the list: no other thread opens its file.
class Claim {
 public:
  // Null: the file is on the list, by this name or another; `*owner` is what its holder wrote.
  static std::unique_ptr<Claim> make(const std::string& path, std::string_view new_owner,
                                     std::string* owner) {
    OwnLocks& all = own_locks();
    const std::lock_guard<std::mutex> guard(all.mutex);
    // Not before: what the path means changes with the list.
    struct ::stat status {};
    std::optional<FileId> file;
    if (::lstat(path.c_str(), &status) == 0) file = id_of(status);
    if (const OwnLock* held = all.find(path, file)) {
      *owner = held->owner;
      return nullptr;
    }
    return add(&all, {path, std::string(new_owner), std::nullopt});
  }
  // Of an open file.
  static std::unique_ptr<Claim> make(FileId file) {
    OwnLocks& all = own_locks();
    const std::lock_guard<std::mutex> guard(all.mutex);
    return all.find("", file) == nullptr ? add(&all, {"", "", file}) : nullptr;
  }

  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (!is_ours()) return;
    const std::lock_guard<std::mutex> guard(all_->mutex);
    all_->locks.erase(lock_);
  }

  // No: this is a child of the process that made the claim.
  bool is_ours() const { return all_->process == ::getpid(); }

  void set_file(FileId file) {
    const std::lock_guard<std::mutex> guard(all_->mutex);
    lock_->file = file;
  }

 private:
  static std::unique_ptr<Claim> add(OwnLocks* all, OwnLock lock) {
    all->locks.push_back(std::move(lock));
    return std::unique_ptr<Claim>(new Claim(all, std::prev(all->locks.end())));
  }

  Claim(OwnLocks* all, std::list<OwnLock>::iterator lock) : all_(all), lock_(lock) {}

  OwnLocks* const all_;
  const std::list<OwnLock>::iterator lock_;
};

class FileLock : public HeldLock {
 public:
  FileLock(std::string path, std::unique_ptr<Claim> claim, Descriptor file)
      : path_(std::move(path)), claim_(std::move(claim)), file_(std::move(file)) {}

  // Removed while still held: whoever opened it before finds that the path means another file now,
  // and starts again.  Closed, which releases it, before the claim ends: else this would take the
  // lock of the next thread, where the file could not be removed.  A child of fork() has no lock,
  // and leaves its parent's file alone.
  ~FileLock() override {
    if (claim_->is_ours()) (void)retry_stale([&] { return call_error(::unlink(path_.c_str())); });
  }

 private:
  const std::string path_;
  const std::unique_ptr<Claim> claim_;
  const Descriptor file_;
};

// operation_would_block: another process has it.
std::error_code lock_whole(int fd, short type = F_WRLCK) {
  struct ::flock all {};
  all.l_type = type;
  all.l_whence = SEEK_SET;
  return call_error(uninterrupted([&] { return ::fcntl(fd, F_SETLK, &all); }));
}

class OpenLock : public HeldLock {
 public:
  OpenLock(std::unique_ptr<Claim> claim, int fd) : claim_(std::move(claim)), fd_(fd) {}
  ~OpenLock() override {
    if (claim_->is_ours()) (void)lock_whole(fd_, F_UNLCK);
  }

 private:
  const std::unique_ptr<Claim> claim_;
  const int fd_;
};

// Whether the path means the open file, and nothing else does.
std::error_code check_lock_file(int fd, const std::string& path, FileId* file) {
  struct ::stat open_status {};
  struct ::stat path_status {};
  if (::fstat(fd, &open_status) != 0) return last_error();
  if (!S_ISREG(open_status.st_mode)) return error_of(EINVAL);
  // Somebody's file that is no lock: it is not ours to write to.
  if (open_status.st_nlink > 1) return error_of(EMLINK);
  *file = id_of(open_status);
  if (::lstat(path.c_str(), &path_status) != 0) {
    return is_stale(last_error()) ? last_error() : error_of(EWOULDBLOCK);
  }
  return id_of(path_status) == *file ? std::error_code() : error_of(EWOULDBLOCK);
}

std::error_code open_locked(const std::string& path, Descriptor* opened, FileId* id) {
  Descriptor file = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (!file.ok()) return last_error();
  const std::error_code lock_error = lock_whole(file.get());
  if (is_stale(lock_error) || lock_error == std::errc::operation_would_block) return lock_error;
  if (const std::error_code error = check_lock_file(file.get(), path, id)) return error;
  if (lock_error) {
    ::unlink(path.c_str());  // without locks nobody else would ever remove it
    return lock_error;
  }
  *opened = std::move(file);
  return {};
}

}  // namespace

std::error_code try_lock_file(const std::string& path, std::string_view owner,
                              std::unique_ptr<HeldLock>* held) {
  std::string other;
  std::unique_ptr<Claim> claim = Claim::make(path, owner, &other);
  if (!claim) return error_of(EWOULDBLOCK);
  Descriptor file;
  FileId id;
  if (const std::error_code error = retry_stale([&] { return open_locked(path, &file, &id); })) {
    return error;
  }
  claim->set_file(id);
  // The text only serves whoever waits or reads a log: a full disk does not make the lock void.
  if (::ftruncate(file.get(), 0) == 0) (void)write_all(file.get(), owner);
  *held = std::make_unique<FileLock>(path, std::move(claim), std::move(file));
  return {};
}

std::error_code try_lock_open(int fd, std::unique_ptr<HeldLock>* held) {
  struct ::stat status {};
  if (::fstat(fd, &status) != 0) return last_error();
  std::unique_ptr<Claim> claim = Claim::make(id_of(status));
  if (!claim) return error_of(EWOULDBLOCK);
  if (const std::error_code error = lock_whole(fd)) return error;
  *held = std::make_unique<OpenLock>(std::move(claim), fd);
  return {};
}

std::string lock_file_owner(const std::string& path) {
  std::string owner;
  // Whoever else takes the lock meanwhile would lose it when the file is closed.
  const std::unique_ptr<Claim> claim = Claim::make(path, "", &owner);
  if (!claim) return owner;
  const std::error_code error = retry_stale([&] {
    const Descriptor file = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!file.ok()) return last_error();
    return read_to_end(file.get(), 0, kMaxOwnerBytes, &owner);
  });
  return error ? "" : owner;
}

}  // namespace cubinery
