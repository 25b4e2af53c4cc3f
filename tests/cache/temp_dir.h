// A directory that is gone after the test, and its files.
#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace cubinery::test {

class TempDir {
 public:
  TempDir() {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "cubinery-XXXXXX").string();
    path_ = ::mkdtemp(path.data()) != nullptr ? path : std::string();
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::size_t count_files(const std::string& dir) {
  std::error_code error;
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir, error)) count += file.exists();
  return count;
}

}  // namespace cubinery::test
