// What an NVRTC of tests/data/fake_nvrtc.cc is told to be.  A copy of the file has settings of its
// own.
#pragma once

#include <dlfcn.h>

#include <string>

namespace cubinery::test {

struct NvrtcSettings {
  int major = 0;
  int minor = 0;
  // What comes of every compilation; without a cubin it fails.
  std::string ptx{};
  std::string cubin{};

  // What happened.
  std::string options{};  // of the last compilation, each with a space before it
};

// The settings of the library at `path`, which stays open; nullptr: it is not such a library.
inline NvrtcSettings* nvrtc_settings(const std::string& path) {
  using Find = NvrtcSettings* (*)();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto find = reinterpret_cast<Find>(dlsym(library, "fake_nvrtc_settings"));
  return find != nullptr ? find() : nullptr;
}

}  // namespace cubinery::test
