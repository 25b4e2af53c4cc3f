// What the files of the module share.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cubinery/c_api.h"

namespace cubinery_python {

// Runs a call of the library with the GIL released.
template <class Call>
auto without_gil(const Call& call) {
  PyThreadState* state = PyEval_SaveThread();
  const auto result = call();
  PyEval_RestoreThread(state);
  return result;
}

// Sets the exception of cubinery._errors that a failed call of this thread stands for; returns
// nullptr.
PyObject* raise(int code);

// The str of text that the library returned with this code.
PyObject* take_text(int code, char* text);

}  // namespace cubinery_python
