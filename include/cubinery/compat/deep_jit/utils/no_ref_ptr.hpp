#pragma once

namespace deep_jit {

// A kernel's argument that lies elsewhere: `ptr` is its address, not its value.
struct NoRefPtr {
  void* ptr = nullptr;
};

}  // namespace deep_jit
