#include "runtime/jit/dynamic_library.h"

#include <dlfcn.h>

namespace cubinery {

bool DynamicLibrary::open(const std::string& path) {
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle_ == nullptr) {
    const char* text = dlerror();
    error_ = text != nullptr ? text : "unknown error";
  }
  return handle_ != nullptr;
}

void* DynamicLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace cubinery
