// What the compatibility headers look for in a process: Torch's current stream, and Python's lock,
// which counts how often it was let go.
#include <cstdint>

namespace {

int released = 0;
int taken = 0;
int thread_state;

}  // namespace

extern "C" {

std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t device, void** stream) {
  *stream = reinterpret_cast<void*>(std::intptr_t{0x1000} + device);
  return 0;
}

int Py_IsInitialized() { return 1; }

int PyGILState_Check() { return released == taken ? 1 : 0; }

void* PyEval_SaveThread() {
  ++released;
  return &thread_state;
}

void PyEval_RestoreThread(void* state) {
  if (state == &thread_state) ++taken;
}

int fake_python_released() { return released; }

}  // extern "C"
