// A shared library opened at run time.
#pragma once

#include <string>

namespace cubinery {

// The library stays open: NVRTC leaks what it allocated each time it is unmapped, the driver has
// threads, and closing takes the loader's lock, which a forked child may never get.
class DynamicLibrary {
 public:
  // False: error() says why.
  bool open(const std::string& path);
  bool is_open() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  // nullptr when the library has no such symbol.
  void* symbol(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace cubinery
