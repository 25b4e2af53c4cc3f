// What Python sees of the library's objects: handles that the collector looks into.
#pragma once

#include "module.h"
#include "operator.h"

namespace cubinery_python {

// A log may reach the context that it belongs to.
struct Context {
  PyObject ob_base;
  CubineryContext* handle;
  PyObject* log;  // null: none, or the collector has cleared it
};

// Keeps its context: both may still write to the context's log.
struct ContextOperator {
  PyObject ob_base;
  Operator* handle;
  PyObject* context;
};

inline void destroy(CubineryContext* handle) { cubinery_context_destroy(handle); }
inline void destroy(Operator* handle) { delete handle; }

inline PyObject*& reached(Context* context) { return context->log; }
inline PyObject*& reached(ContextOperator* op) { return op->context; }

template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reached(reinterpret_cast<T*>(self)));
  return 0;
}

// Frees an object whose handle is gone.
template <class T>
void free_object(T* object) {
  Py_CLEAR(reached(object));
  auto* const self = reinterpret_cast<PyObject*>(object);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

template <class T>
void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* object = reinterpret_cast<T*>(self);
  if (object->handle != nullptr) without_gil([&] { return destroy(object->handle), 0; });
  free_object(object);
}

void* slot(auto function) { return reinterpret_cast<void*>(function); }

constexpr unsigned kHandleFlags =
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION;

// Made with the module.
template <class T>
inline PyTypeObject* type = nullptr;

// False: an exception is set.
template <class T>
bool make_type(PyType_Spec* spec) {
  type<T> = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(spec));
  return type<T> != nullptr;
}

// With nothing in it; nullptr: an exception is set.
template <class T>
T* new_object() {
  return reinterpret_cast<T*>(PyType_GenericAlloc(type<T>, 0));
}

// nullptr: an exception is set.
template <class T>
T* unwrap(PyObject* object) {
  if (Py_TYPE(object) == type<T>) return reinterpret_cast<T*>(object);
  PyErr_SetString(PyExc_TypeError, "a handle of another kind");
  return nullptr;
}

}  // namespace cubinery_python
