// Files by their descriptors.  Every failure is a value: an errno in std::generic_category().
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace cubinery {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }

  // For files that were written: network file systems report a full disk here.
  std::error_code close();

 private:
  int fd_;
};

// Not ok(): errno says why.  It is closed when the process becomes another program.
Descriptor open_file(const std::string& path, int flags, mode_t mode = 0);

// From where the descriptor stands to the end.  file_too_large: there are more than `limit` bytes.
// `likely` says how many there probably are.
std::error_code read_to_end(int fd, std::uint64_t likely, std::uint64_t limit, std::string* bytes);

// `size` bytes from `offset` on, fewer where the file ends.
std::error_code read_range(int fd, std::uint64_t offset, std::size_t size, std::string* bytes);

// file_too_large: the process's limit (RLIMIT_FSIZE), which is no signal here.
std::error_code write_all(int fd, std::string_view bytes);

// Adds a line, which ends with its "\n", to a regular file, which is created with this mode less
// the umask; never to a symbolic link's target.  Lines of others that are added so at the same time
// stay whole, and one before it that nobody ended is ended first.  An error may leave part of it
// behind.
std::error_code append_line(const std::string& path, std::string_view line, mode_t mode);

std::error_code sync_file(int fd);

}  // namespace cubinery
