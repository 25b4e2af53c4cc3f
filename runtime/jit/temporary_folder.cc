#include "runtime/jit/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "cache/env.h"
#include "cache/file_io.h"

namespace cubinery {

Result<TemporaryFolder> TemporaryFolder::make(std::string_view purpose) {
  for (const char* parent : {"/tmp", "/var/tmp", "/dev/shm"}) {
    std::string path = fmt::format("{}/cubinery-{}-XXXXXX", parent, purpose);
    if (::mkdtemp(path.data()) != nullptr) return TemporaryFolder(std::move(path));
  }
  return Status(
      Code::kIo,
      fmt::format("cannot make a temporary folder for {} in /tmp, /var/tmp or /dev/shm", purpose));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::file(std::string_view name) const {
  return fmt::format("{}/{}", path_, name);
}

Status write_temporary(const std::string& path, std::string_view text) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return io_error("make", folder.string(), error);
  Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!file.ok()) return io_error("write", path, {errno, std::generic_category()});
  error = write_all(file.get(), text);
  if (!error) error = file.close();
  return error ? io_error("write", path, error) : Status();
}

}  // namespace cubinery
