// A folder for files of a moment.
#pragma once

#include <string>
#include <string_view>

#include "cubinery/status.h"

namespace cubinery {

// Mode 0700; gone with the object, and all that is in it.
class TemporaryFolder {
 public:
  // In the first of /tmp, /var/tmp, /dev/shm that takes it.  `purpose` is part of its name.  kIo:
  // none does.
  static Result<TemporaryFolder> make(std::string_view purpose);
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A new file, not synced.  Makes the folders above it.  kIo: names the path.
Status write_temporary(const std::string& path, std::string_view text);

}  // namespace cubinery
