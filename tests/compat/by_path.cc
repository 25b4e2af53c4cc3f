// The same library with no line changed: what its include path leads to is cubinery's.  Prints what
// is wrong.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <exception>

#include "tests/cache/temp_dir.h"
#include "tests/compat/row_ops/row_ops.h"
#include "tests/data/fake_driver.h"

namespace {

int run() {
  const cubinery::test::TempDir dir;
  ::setenv("CUBINERY_DRIVER", CUBINERY_FAKE_DRIVER, 1);
  ::setenv("DJ_JIT_CACHE_DIR", dir.path().c_str(), 1);
  const cubinery::test::FakeDriver fake(CUBINERY_FAKE_DRIVER);
  // As the interpreter has them.
  void* const python = ::dlopen(CUBINERY_FAKE_TORCH, RTLD_NOW | RTLD_GLOBAL);
  if (python == nullptr) return std::puts("no fake Python"), 1;
  const auto released = reinterpret_cast<int (*)()>(::dlsym(python, "fake_python_released"));
  row_ops::init(CUBINERY_TEST_DIR "/compat/row_ops");
  row_ops::scale({.y = nullptr, .x = nullptr, .rows = 3, .cols = 64}, 2.0f, nullptr);
  if (fake->launches.size() != 1) return std::puts("no launch"), 1;
  // Once while it compiled, once while it was launched.
  if (released() != 2) return std::printf("Python's lock was let go %d times\n", released()), 1;
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& exception) {
    std::puts(exception.what());
    return 1;
  }
}
