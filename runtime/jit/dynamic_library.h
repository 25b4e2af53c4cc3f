// A shared library opened at run time.
#pragma once

#include <string>

namespace cubinery {

// Stays open while the object lives.  Not copyable.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  ~DynamicLibrary();
  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;

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
