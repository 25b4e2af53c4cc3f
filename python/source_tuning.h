// Tuning a text: cubinery/_tunable.py launches and checks, the library measures.
#pragma once

#include "module.h"

namespace cubinery_python {

// ((Context and what kernel_create() takes of a text), choices: JSON, shapes: JSON, settings: JSON,
// calls: of _tunable.py, progress: callable, directory: bytes) -> JSON
PyObject* tune_source(PyObject*, PyObject* arguments);
// ((the same), choices: JSON, shapes: JSON) -> JSON
PyObject* choose_source(PyObject*, PyObject* arguments);

}  // namespace cubinery_python
