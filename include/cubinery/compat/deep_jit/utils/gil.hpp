#pragma once

#include "cubinery/compat/deep_jit/utils/lazy.hpp"

namespace deep_jit {

// Lets other threads of Python run meanwhile, where the thread holds the interpreter.
class GilScopedRelease {
 public:
  GilScopedRelease() {
    using Int = int (*)();
    using Save = void* (*)();
    static const auto kIsInitialized = internal::loaded_symbol<Int>("Py_IsInitialized");
    static const auto kHasGil = internal::loaded_symbol<Int>("PyGILState_Check");
    static const auto kSave = internal::loaded_symbol<Save>("PyEval_SaveThread");
    if (kIsInitialized != nullptr && kIsInitialized() != 0 && kHasGil() != 0) thread_ = kSave();
  }
  ~GilScopedRelease() {
    using Restore = void (*)(void*);
    static const auto kRestore = internal::loaded_symbol<Restore>("PyEval_RestoreThread");
    if (thread_ != nullptr) kRestore(thread_);
  }
  GilScopedRelease(const GilScopedRelease&) = delete;
  GilScopedRelease& operator=(const GilScopedRelease&) = delete;

 private:
  void* thread_ = nullptr;
};

}  // namespace deep_jit
