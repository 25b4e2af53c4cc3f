#include "cache/file_io.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cache/system_call.h"

namespace cubinery {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;

// While it lives, a write past RLIMIT_FSIZE is an error of this thread's call, as on a full disk:
// SIGXFSZ, which comes with it, would end the program that we are part of.  What the program does
// with signals is its own affair, so nothing but this thread's mask changes, and what our own write
// has raised is taken back before the mask is.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigemptyset(&size_signal_);
    sigaddset(&size_signal_, SIGXFSZ);
    sigset_t pending;
    blocked_ = ::pthread_sigmask(SIG_BLOCK, &size_signal_, &before_) == 0;
    // It can have been pending only if it was blocked.
    was_pending_ = sigismember(&before_, SIGXFSZ) == 1 && ::sigpending(&pending) == 0 &&
                   sigismember(&pending, SIGXFSZ) == 1;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;
  ~NoSizeSignal() {
    if (blocked_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  // Requires: a write has just failed with EFBIG.
  void take_back() const {
    const timespec at_once{};
    if (!was_pending_)
      uninterrupted([&] { return ::sigtimedwait(&size_signal_, nullptr, &at_once); });
  }

 private:
  sigset_t size_signal_;
  sigset_t before_;
  bool blocked_ = false;
  bool was_pending_ = false;
};

// One call of write(2).
std::error_code write_some(int fd, std::string_view bytes, std::size_t* written) {
  const NoSizeSignal no_signal;
  const ssize_t count = uninterrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
  if (count < 0) {
    const std::error_code error = last_error();
    if (error == error_of(EFBIG)) no_signal.take_back();
    return error;
  }
  *written = static_cast<std::size_t>(count);
  return {};
}

// Whether the file is empty or ends with a line's end.
std::error_code ends_with_line(int fd, bool* ends) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return last_error();
  if (!S_ISREG(info.st_mode)) return error_of(EINVAL);
  *ends = info.st_size == 0;
  if (*ends) return {};
  std::string last;
  const auto at = static_cast<std::uint64_t>(info.st_size) - 1;
  const std::error_code error = read_range(fd, at, 1, &last);
  *ends = last == "\n";
  return error;
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::error_code Descriptor::close() {
  // Interrupted or not, Linux has closed the descriptor.
  const int result = ::close(std::exchange(fd_, -1));
  return result == 0 || errno == EINTR ? std::error_code() : last_error();
}

Descriptor open_file(const std::string& path, int flags, mode_t mode) {
  return Descriptor(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

std::error_code read_to_end(int fd, std::uint64_t likely, std::uint64_t limit, std::string* bytes) {
  // One byte more than there are, so that the next read finds the end.
  bytes->resize(static_cast<std::size_t>(std::min(likely, limit)) + 1);
  std::size_t done = 0;
  for (;;) {
    if (done == bytes->size()) bytes->resize(done + kReadBytes);
    const ssize_t count =
        uninterrupted([&] { return ::read(fd, bytes->data() + done, bytes->size() - done); });
    if (count < 0) return last_error();
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
    if (done > limit) return error_of(EFBIG);
  }
  bytes->resize(done);
  return {};
}

std::error_code read_range(int fd, std::uint64_t offset, std::size_t size, std::string* bytes) {
  bytes->resize(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = uninterrupted([&] {
      return ::pread(fd, bytes->data() + done, size - done, static_cast<off_t>(offset + done));
    });
    if (count < 0) return last_error();
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes->resize(done);
  return {};
}

std::error_code write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    std::size_t written = 0;
    if (const std::error_code error = write_some(fd, bytes, &written)) return error;
    bytes.remove_prefix(written);
  }
  return {};
}

std::error_code append_line(const std::string& path, std::string_view line, mode_t mode) {
  constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  Descriptor file = open_file(path, kFlags, mode);
  if (!file.ok()) return last_error();
  bool ends = false;
  if (const std::error_code error = ends_with_line(file.get(), &ends)) return error;
  const std::string with_end = ends ? std::string() : "\n" + std::string(line);
  const std::string_view bytes = ends ? line : with_end;
  std::size_t written = 0;
  if (const std::error_code error = write_some(file.get(), bytes, &written)) return error;
  // What is missing would come behind other lines.
  if (written < bytes.size()) return error_of(ENOSPC);
  return file.close();
}

std::error_code sync_file(int fd) {
  return uninterrupted([&] { return ::fsync(fd); }) == 0 ? std::error_code() : last_error();
}

}  // namespace cubinery
