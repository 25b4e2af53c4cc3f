// What is made, and libraries that are opened, when they are first used.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cubinery/compat/deep_jit/utils/exception.hpp"

#define DJ_DECLARE_STATIC_VAR_IN_CLASS(cls, name) decltype(cls::name) cls::name

namespace deep_jit {

// What is made when it is first used.  Copies share it; any thread may be the first.
template <typename T>
class LazyInit {
 public:
  explicit LazyInit(std::nullptr_t) {}
  explicit LazyInit(std::function<std::shared_ptr<T>()> factory) {
    state_->factory = std::move(factory);
  }

  T* operator->() {
    if (T* const made = state_->made.load(std::memory_order_acquire)) return made;
    const std::lock_guard lock(state_->mutex);
    DJ_HOST_ASSERT(state_->factory != nullptr, "lazy object must be initialized before use");
    if (state_->owner == nullptr) state_->owner = state_->factory();
    DJ_HOST_ASSERT(state_->owner != nullptr, "lazy factory must not return nullptr");
    state_->made.store(state_->owner.get(), std::memory_order_release);
    return state_->owner.get();
  }
  std::shared_ptr<T> get() {
    static_cast<void>(operator->());
    return state_->owner;
  }

 private:
  struct State {
    std::mutex mutex;
    std::function<std::shared_ptr<T>()> factory;
    std::shared_ptr<T> owner;
    std::atomic<T*> made{nullptr};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

namespace internal {

inline void* library(const std::string& path) {
  if (void* const handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return handle;
  const char* const why = ::dlerror();
  DJ_PANIC("failed to load {}: {}", path, why == nullptr ? "unknown" : why);
}

inline void* symbol(void* handle, const char* name) {
  if (void* const found = ::dlsym(handle, name)) return found;
  const char* const why = ::dlerror();
  DJ_PANIC("failed to load {}: {}", name, why == nullptr ? "unknown" : why);
}

// Where the process has it: Python's and Torch's functions, which nothing here links.
template <typename Function>
Function loaded_symbol(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace internal

}  // namespace deep_jit

#define DJ_DECL_LAZY_DL_HANDLE(handle_func_name, lib)               \
  inline void* handle_func_name() {                                 \
    static void* const handle = ::deep_jit::internal::library(lib); \
    return handle;                                                  \
  }
#define DJ_INTERNAL_TEXT(name) #name
// A name that cuda.h defines as another, of a newer version, is looked up as that one.
#define DJ_DECL_LAZY_DL_FUNCTION(handle_func_name, name)                           \
  template <typename... Args>                                                      \
  auto lazy_##name(Args&&... args) {                                               \
    static const auto function = reinterpret_cast<decltype(&(name))>(              \
        ::deep_jit::internal::symbol(handle_func_name(), DJ_INTERNAL_TEXT(name))); \
    return function(std::forward<Args>(args)...);                                  \
  }
