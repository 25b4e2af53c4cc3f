// Kernels from texts: the C API's CubineryKernel, and its launches with Python's values.
#pragma once

#include "module.h"

namespace cubinery_python {

// Of the types behind the functions below.  False: an exception is set.
bool make_kernel_types();

// (Context, source, name, includes: list[bytes], options: list[str], forbid_spills) -> Kernel
PyObject* kernel_create(PyObject*, PyObject* arguments);
// (Kernel) -> JSON
PyObject* kernel_info(PyObject*, PyObject* handle);
// (Kernel, grid, block[, shared_bytes, cluster, cooperative, enable_pdl, stream]) -> a callable of
// the kernel's arguments, which launches it
PyObject* kernel_with(PyObject*, PyObject* const* given, Py_ssize_t count);

// (Context, and what kernel_create() takes) -> JSON
PyObject* context_compile_source(PyObject*, PyObject* arguments);
PyObject* context_explain_source(PyObject*, PyObject* arguments);
// The same -> PTX, SASS
PyObject* context_ptx(PyObject*, PyObject* arguments);
PyObject* context_sass(PyObject*, PyObject* arguments);

}  // namespace cubinery_python
