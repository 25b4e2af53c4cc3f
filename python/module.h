// What the files of the module share.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <atomic>

#include "cubinery/c_api.h"

namespace cubinery_python {

// When the interpreter ends, CPython up to 3.13 ends a daemon thread that asks for the GIL by
// pthread_exit(), which unwinds its stack: through frames of the library, which may not throw and
// whose destructors give up locks, and through ours, whose destructors need the GIL.  A call that
// may ask for the GIL runs in here, where the unwinding ends: the thread sleeps until the process
// is gone, as CPython 3.14 has it.  (The module is compiled with exceptions, and takes the same
// libgcc as pthread_exit(), wherever the library is compiled without.)
template <class Call>
auto or_sleep(const Call& call) {
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// Runs a call of the library with the GIL released.
template <class Call>
auto without_gil(const Call& call) {
  PyThreadState* state = PyEval_SaveThread();
  const auto result = call();
  or_sleep([&] { return PyEval_RestoreThread(state), 0; });
  return result;
}

// Threads in calls that may take seconds.  Compilers do not bear that the process ends meanwhile.
inline std::atomic<int> long_calls = 0;

// without_gil() of such a call.
template <class Call>
auto without_gil_for_long(const Call& call) {
  return without_gil([&] {
    ++long_calls;
    const auto result = call();
    --long_calls;
    return result;
  });
}

// The interpreter ends: whoever asks for the GIL may not get it any more.
inline std::atomic<bool> is_ending = false;
inline std::atomic<int> callbacks = 0;

// What a callback of the library returns, which has the GIL; or `otherwise`, without a call.
template <class Call>
int with_gil(const Call& call, int otherwise) {
  if (is_ending) return otherwise;
  ++callbacks;
  const int result = or_sleep([&] {
    const PyGILState_STATE state = PyGILState_Ensure();
    const int answer = call();
    PyGILState_Release(state);
    return answer;
  });
  --callbacks;
  return result;
}

// Asks a callable whether to stop.  An exception stops too; a callable that wants it to be seen
// keeps it, there is no way through the library.
int call_progress(const char* progress, void* callable);

// Sets the exception of cubinery._errors that a failed call of this thread stands for; returns
// nullptr.
PyObject* raise(int code);

// The str of text for people, which any program can print: bytes of paths that are no UTF-8 stand
// in it as "\\xff".
PyObject* shown(const char* text);

// The str of text that the library returned with this code.
PyObject* take_text(int code, char* text);

}  // namespace cubinery_python
