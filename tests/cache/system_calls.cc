#include "tests/cache/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace {

struct Watch {
  bool on = false;
  int at = 0;
  int error = 0;
  int count = 0;
  const char* hit = "";
};

thread_local Watch watch;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

bool loses() { return watch.error == cubinery::test::SystemCalls::kLost; }

// Counts a call; true when it is the one, and errno says how it fails.
bool strikes(const char* name) {
  if (!watch.on || watch.count++ != watch.at) return false;
  watch.hit = name;
  if (watch.error != cubinery::test::SystemCalls::kKill) errno = loses() ? ESTALE : watch.error;
  return true;
}

bool kills() { return watch.error == cubinery::test::SystemCalls::kKill; }

// The same where nothing is to be done before the end.
bool fails(const char* name) {
  if (!strikes(name)) return false;
  if (kills()) die();
  return true;
}

}  // namespace

namespace cubinery::test {

SystemCalls::SystemCalls(int at, int error) {
  watch = {.on = true, .at = at, .error = error, .count = 0, .hit = ""};
}
SystemCalls::~SystemCalls() { watch.on = false; }
int SystemCalls::count() const { return watch.count; }
const char* SystemCalls::hit() const { return watch.hit; }

}  // namespace cubinery::test

// The linker's names.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#define CUBINERY_WRAP(result, name, parameters, arguments, failure) \
  result __real_##name parameters;                                  \
  result __wrap_##name parameters;                                  \
  result __wrap_##name parameters {                                 \
    if (fails(#name)) return failure;                               \
    return __real_##name arguments;                                 \
  }

// The same of calls that change a directory.
#define CUBINERY_WRAP_CHANGE(name, parameters, arguments)       \
  int __real_##name parameters;                                 \
  int __wrap_##name parameters;                                 \
  int __wrap_##name parameters {                                \
    if (!fails(#name)) return __real_##name arguments;          \
    const int error = errno;                                    \
    if (loses() && __real_##name arguments == 0) errno = error; \
    return -1;                                                  \
  }

extern "C" {

CUBINERY_WRAP(ssize_t, read, (int fd, void* bytes, size_t size), (fd, bytes, size), -1)
CUBINERY_WRAP(ssize_t, pread, (int fd, void* bytes, size_t size, off_t offset),
              (fd, bytes, size, offset), -1)
CUBINERY_WRAP_CHANGE(rename, (const char* from, const char* to), (from, to))
CUBINERY_WRAP_CHANGE(unlink, (const char* path), (path))
CUBINERY_WRAP_CHANGE(mkdir, (const char* path, mode_t mode), (path, mode))
CUBINERY_WRAP_CHANGE(renameat2,
                     (int from_dir, const char* from, int to_dir, const char* to, unsigned flags),
                     (from_dir, from, to_dir, to, flags))
CUBINERY_WRAP_CHANGE(link, (const char* from, const char* to), (from, to))
CUBINERY_WRAP(DIR*, opendir, (const char* path), (path), nullptr)
CUBINERY_WRAP(struct dirent*, readdir, (DIR * stream), (stream), nullptr)
CUBINERY_WRAP(int, fstat, (int fd, struct stat* status), (fd, status), -1)
CUBINERY_WRAP(int, stat, (const char* path, struct stat* status), (path, status), -1)
CUBINERY_WRAP(int, lstat, (const char* path, struct stat* status), (path, status), -1)
CUBINERY_WRAP(int, fstatat, (int fd, const char* path, struct stat* status, int flags),
              (fd, path, status, flags), -1)
CUBINERY_WRAP(int, utimensat, (int fd, const char* path, const struct timespec* times, int flags),
              (fd, path, times, flags), -1)
CUBINERY_WRAP(int, ftruncate, (int fd, off_t size), (fd, size), -1)
CUBINERY_WRAP(int, gethostname, (char* name, size_t size), (name, size), -1)
CUBINERY_WRAP(ssize_t, getrandom, (void* bytes, size_t size, unsigned flags), (bytes, size, flags),
              -1)

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fails("open")) return -1;
  return __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (fails("fcntl")) return -1;
  return __real_fcntl(fd, command, argument);
}

ssize_t __real_write(int fd, const void* bytes, size_t size);
ssize_t __wrap_write(int fd, const void* bytes, size_t size);
ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
  if (!strikes("write")) return __real_write(fd, bytes, size);
  if (!kills()) return -1;
  (void)!__real_write(fd, bytes, size / 2);
  die();
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  if (fails("fsync")) return -1;
  return watch.on ? 0 : __real_fsync(fd);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd) {
  // Whatever it says, Linux has closed the descriptor.
  if (!fails("close")) return __real_close(fd);
  const int error = errno;
  __real_close(fd);
  errno = error;
  return -1;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
