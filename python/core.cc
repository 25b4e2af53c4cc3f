// cubinery._core: the C API (cubinery/c_api.h) as functions over handles.  What users see is in
// cubinery/gdn.py and cubinery/_context.py.
//
// Only the limited API of Python 3.11 is used: one module serves every later CPython.  All calls
// into the library release the GIL: compilation takes seconds, the log takes it back.
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "capi/for_python.h"
#include "handles.h"
#include "kernel.h"
#include "module.h"
#include "operator.h"
#include "source_tuning.h"

namespace cubinery_python {

PyObject* raise(int code) {
  PyObject* errors = PyImport_ImportModule("cubinery._errors");
  if (errors == nullptr) return nullptr;
  PyObject* error =
      PyObject_CallMethod(errors, "from_code", "sNN", cubinery_code_name(code),
                          shown(cubinery_last_error()), shown(cubinery_last_error_log()));
  Py_DECREF(errors);
  if (error == nullptr) return nullptr;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
  return nullptr;
}

PyObject* shown(const char* text) {
  return PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "backslashreplace");
}

PyObject* take_text(int code, char* text) {
  if (code != CUBINERY_OK) return raise(code);
  PyObject* result = shown(text);
  cubinery_free_text(text);
  return result;
}

int call_progress(const char* progress, void* callable) {
  const auto ask = [&] {
    PyObject* const called = static_cast<PyObject*>(callable);
    PyObject* result = PyObject_CallFunction(called, "s", progress);
    const int stop = result == nullptr ? -1 : PyObject_IsTrue(result);
    if (stop < 0) PyErr_WriteUnraisable(called);
    Py_XDECREF(result);
    return stop;
  };
  return with_gil(ask, -1);
}

namespace {

// ---- Handles ------------------------------------------------------------------------------------

// Of a context alone: every cycle goes through a log, and what is made from a context needs it to
// the end.
int clear_context(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Context*>(self)->log);
  return 0;
}

PyType_Slot context_slots[] = {{Py_tp_traverse, slot(traverse<Context>)},
                               {Py_tp_clear, slot(clear_context)},
                               {Py_tp_dealloc, slot(dealloc<Context>)},
                               {0, nullptr}};
PyType_Slot operator_slots[] = {{Py_tp_traverse, slot(traverse<ContextOperator>)},
                                {Py_tp_dealloc, slot(dealloc<ContextOperator>)},
                                {0, nullptr}};
PyType_Spec context_spec = {"cubinery._core.Context", sizeof(Context), 0, kHandleFlags,
                            context_slots};
PyType_Spec operator_spec = {"cubinery._core.Operator", sizeof(ContextOperator), 0, kHandleFlags,
                             operator_slots};

// ---- Contexts -----------------------------------------------------------------------------------

// user: the context.
void call_log(int level, const char* message, void* user) {
  const auto log = [&] {
    PyObject* callable = static_cast<Context*>(user)->log;
    if (callable == nullptr) return 0;
    Py_INCREF(callable);
    PyObject* result =
        PyObject_CallFunction(callable, "sN", level == 0 ? "info" : "warning", shown(message));
    if (result == nullptr) PyErr_WriteUnraisable(callable);
    Py_XDECREF(result);
    Py_DECREF(callable);
    return 0;
  };
  with_gil(log, 0);
}

using Options = std::unique_ptr<CubineryOptions, decltype(&cubinery_options_destroy)>;

// Sets every (name, text or bytes) of a dict.  False: an exception is set.
bool set_options(CubineryOptions* options, PyObject* fields) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(fields, &position, &name, &value)) {
    const char* name_text = PyUnicode_AsUTF8AndSize(name, nullptr);
    const char* value_text = PyBytes_Check(value) != 0 ? PyBytes_AsString(value)
                                                       : PyUnicode_AsUTF8AndSize(value, nullptr);
    if (name_text == nullptr || value_text == nullptr) return false;
    const int code = cubinery_options_set(options, name_text, value_text);
    if (code != CUBINERY_OK) return raise(code), false;
  }
  return true;
}

// (fields: dict[str, str | bytes], log: callable | None) -> Context
PyObject* context_create(PyObject*, PyObject* arguments) {
  PyObject* fields = nullptr;
  PyObject* log = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO", &fields, &log)) return nullptr;
  CubineryOptions* made = nullptr;
  if (const int code = cubinery_options_create(&made)) return raise(code);
  const Options options(made, cubinery_options_destroy);
  if (!set_options(made, fields)) return nullptr;
  Context* const context = new_object<Context>();
  if (context == nullptr) return nullptr;
  int code = CUBINERY_OK;
  if (log != Py_None) {
    context->log = Py_NewRef(log);
    code = cubinery_options_set_log(made, call_log, context);
  }
  if (code == CUBINERY_OK) {
    code = without_gil_for_long([&] { return cubinery_context_create(made, &context->handle); });
  }
  auto* const object = reinterpret_cast<PyObject*>(context);
  if (code == CUBINERY_OK) return object;
  raise(code);
  Py_DECREF(object);
  return nullptr;
}

// (Context) -> (arch, device, sm_count)
PyObject* context_info(PyObject*, PyObject* handle) {
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  return Py_BuildValue("sii", cubinery_context_arch(context->handle),
                       cubinery_context_device(context->handle),
                       cubinery_context_sm_count(context->handle));
}

// (Context) -> str
PyObject* context_nvrtc_version(PyObject*, PyObject* handle) {
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  char* version = nullptr;
  const int code = without_gil_for_long(
      [&] { return cubinery_context_nvrtc_version(context->handle, &version); });
  return take_text(code, version);
}

// (Context) -> the counts of CubineryCacheStats, in its order
PyObject* context_stats(PyObject*, PyObject* handle) {
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
  if (const int code = cubinery_context_stats(context->handle, &stats)) return raise(code);
  using Count = unsigned long long;
  return Py_BuildValue("KKKKKK", static_cast<Count>(stats.memory_hits),
                       static_cast<Count>(stats.disk_hits), static_cast<Count>(stats.misses),
                       static_cast<Count>(stats.compiles), static_cast<Count>(stats.damaged),
                       static_cast<Count>(stats.failed_writes));
}

using Report = int (*)(const CubineryContext*, const char*, const char*, char**);

// (Context, op, problem) -> JSON
template <Report kReport>
PyObject* context_report(PyObject*, PyObject* arguments) {
  PyObject* handle = nullptr;
  const char* op = nullptr;
  const char* problem = nullptr;
  if (!PyArg_ParseTuple(arguments, "Oss", &handle, &op, &problem)) return nullptr;
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  char* report = nullptr;
  const int code =
      without_gil_for_long([&] { return kReport(context->handle, op, problem, &report); });
  return take_text(code, report);
}

// (Context, [{"op", "problem"}] as JSON) -> JSON
PyObject* context_compile_problems(PyObject*, PyObject* arguments) {
  PyObject* handle = nullptr;
  const char* problems = nullptr;
  if (!PyArg_ParseTuple(arguments, "Os", &handle, &problems)) return nullptr;
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  char* report = nullptr;
  const int code = without_gil_for_long(
      [&] { return cubinery_context_compile_problems(context->handle, problems, &report); });
  return take_text(code, report);
}

// (Context, op, problem, shapes, settings, progress: callable[, directory: bytes]) -> JSON
PyObject* tune(PyObject*, PyObject* arguments) {
  PyObject* handle = nullptr;
  PyObject* progress = nullptr;
  const char *directory = nullptr, *op = nullptr, *problem = nullptr, *shapes = nullptr,
             *settings = nullptr;
  if (!PyArg_ParseTuple(arguments, "OssssO|y", &handle, &op, &problem, &shapes, &settings,
                        &progress, &directory)) {
    return nullptr;
  }
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  char* summary = nullptr;
  const int code = without_gil_for_long([&] {
    return cubinery::capi::tune_in(directory, context->handle, op, problem, shapes, settings,
                                   call_progress, progress, &summary);
  });
  return take_text(code, summary);
}

// (directory: bytes, request) -> str
PyObject* tuning_report(PyObject*, PyObject* arguments) {
  const char* directory = nullptr;
  const char* request = nullptr;
  if (!PyArg_ParseTuple(arguments, "ys", &directory, &request)) return nullptr;
  char* report = nullptr;
  const int code =
      without_gil_for_long([&] { return cubinery_tuning_report(directory, request, &report); });
  return take_text(code, report);
}

// (op, problem) -> the problem with every field, as JSON
PyObject* check_problem(PyObject*, PyObject* arguments) {
  const char* op = nullptr;
  const char* problem = nullptr;
  if (!PyArg_ParseTuple(arguments, "ss", &op, &problem)) return nullptr;
  char* full = nullptr;
  const int code = cubinery_check_problem(op, problem, &full);
  return take_text(code, full);
}

// (config, tp, options) -> the problems of all forms as JSON
PyObject* model_problems(PyObject*, PyObject* arguments) {
  const char* config = nullptr;
  int tp = 0;
  const char* options = nullptr;
  if (!PyArg_ParseTuple(arguments, "sis", &config, &tp, &options)) return nullptr;
  char* problems = nullptr;
  const int code = cubinery_model_problems(config, tp, options, &problems);
  return take_text(code, problems);
}

// (config, tp, engine, options) -> the problems of all its forms as JSON
PyObject* engine_problems(PyObject*, PyObject* arguments) {
  const char* config = nullptr;
  int tp = 0;
  const char* engine = nullptr;
  const char* options = nullptr;
  if (!PyArg_ParseTuple(arguments, "siss", &config, &tp, &engine, &options)) return nullptr;
  char* problems = nullptr;
  const int code = cubinery_engine_problems(config, tp, engine, options, &problems);
  return take_text(code, problems);
}

// () -> str
PyObject* architectures(PyObject*, PyObject*) {
  return PyUnicode_FromString(cubinery_architectures());
}

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(cubinery_version()); }

// ---- Operators ----------------------------------------------------------------------------------

// (Context, op, problem) -> operator
PyObject* operator_create(PyObject*, PyObject* arguments) {
  PyObject* handle = nullptr;
  const char* op = nullptr;
  const char* problem = nullptr;
  if (!PyArg_ParseTuple(arguments, "Oss", &handle, &op, &problem)) return nullptr;
  const auto* context = unwrap<Context>(handle);
  if (context == nullptr) return nullptr;
  const OperatorClass::Create create = OperatorClass::find(op);
  if (create == nullptr) return nullptr;
  Operator* made = create(context->handle, problem);
  if (made == nullptr) return nullptr;
  auto* const object = new_object<ContextOperator>();
  if (object == nullptr) {
    destroy(made);
    return nullptr;
  }
  object->handle = made;
  object->context = Py_NewRef(handle);
  return reinterpret_cast<PyObject*>(object);
}

using Call = PyObject* (Operator::*)(PyObject* const*, Py_ssize_t) const;

// (operator, what the call takes...)
template <Call kCall>
PyObject* operator_call(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count < 1) return right_count(count, 1), nullptr;
  const auto* op = unwrap<ContextOperator>(given[0]);
  return op == nullptr ? nullptr : (op->handle->*kCall)(given + 1, count - 1);
}

// ---- Module -------------------------------------------------------------------------------------

using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyMethodDef fast_method(const char* name, FastFunction function) {
  // NOTE: CPython calls METH_FASTCALL functions through this type.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL,
          nullptr};
}

PyMethodDef methods[] = {
    {"version", version, METH_NOARGS, nullptr},
    {"architectures", architectures, METH_NOARGS, nullptr},
    {"check_problem", check_problem, METH_VARARGS, nullptr},
    {"model_problems", model_problems, METH_VARARGS, nullptr},
    {"engine_problems", engine_problems, METH_VARARGS, nullptr},
    {"context_create", context_create, METH_VARARGS, nullptr},
    {"context_info", context_info, METH_O, nullptr},
    {"context_nvrtc_version", context_nvrtc_version, METH_O, nullptr},
    {"context_stats", context_stats, METH_O, nullptr},
    {"context_compile", context_report<cubinery_context_compile>, METH_VARARGS, nullptr},
    {"context_compile_problems", context_compile_problems, METH_VARARGS, nullptr},
    {"context_explain", context_report<cubinery_context_explain>, METH_VARARGS, nullptr},
    {"tune", tune, METH_VARARGS, nullptr},
    {"tuning_report", tuning_report, METH_VARARGS, nullptr},
    {"operator_create", operator_create, METH_VARARGS, nullptr},
    fast_method("operator_launch", operator_call<&Operator::launch>),
    fast_method("operator_choice", operator_call<&Operator::choice>),
    fast_method("operator_workspace_bytes", operator_call<&Operator::workspace_bytes>),
    fast_method("operator_table", operator_call<&Operator::table>),
    {"kernel_create", kernel_create, METH_VARARGS, nullptr},
    {"kernel_info", kernel_info, METH_O, nullptr},
    fast_method("kernel_with", kernel_with),
    {"context_compile_source", context_compile_source, METH_VARARGS, nullptr},
    {"context_explain_source", context_explain_source, METH_VARARGS, nullptr},
    {"context_ptx", context_ptx, METH_VARARGS, nullptr},
    {"context_sass", context_sass, METH_VARARGS, nullptr},
    {"tune_source", tune_source, METH_VARARGS, nullptr},
    {"choose_source", choose_source, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_core", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

// ---- The interpreter's end ----------------------------------------------------------------------

PyObject* begin_end(PyObject*, PyObject*) {
  is_ending = true;
  Py_RETURN_NONE;
}
PyMethodDef begin_end_method = {"begin_end", begin_end, METH_NOARGS, nullptr};

// Behind the interpreter and before the destructors of libraries: lets calls of daemon threads end,
// which then sleep in or_sleep().  One in a callback sleeps there.
void wait_for_long_calls() {
  constexpr int kSeconds = 10;
  constexpr int kChecks = 100;  // a second
  for (int i = 0; i < kSeconds * kChecks && long_calls > 0 && callbacks == 0; ++i) {
    usleep(1'000'000 / kChecks);
  }
}

// A forked child has one thread, which is in no call.
void forget_threads() { long_calls = callbacks = 0; }

// False: an exception is set.
bool watch_end() {
  is_ending = false;
  static const bool kAdded =
      pthread_atfork(nullptr, nullptr, forget_threads) == 0 && Py_AtExit(wait_for_long_calls) == 0;
  static_cast<void>(kAdded);  // without, such a thread may end the process by a signal
  PyObject* function = PyCFunction_New(&begin_end_method, nullptr);
  PyObject* module = function == nullptr ? nullptr : PyImport_ImportModule("atexit");
  PyObject* result =
      module == nullptr ? nullptr : PyObject_CallMethod(module, "register", "O", function);
  Py_XDECREF(result);
  Py_XDECREF(module);
  Py_XDECREF(function);
  return result != nullptr;
}

}  // namespace
}  // namespace cubinery_python

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): CPython's name.
PyMODINIT_FUNC PyInit__core() {
  using namespace cubinery_python;
  if (!make_type<Context>(&context_spec)) return nullptr;
  if (!make_type<ContextOperator>(&operator_spec)) return nullptr;
  if (!make_kernel_types() || !watch_end()) return nullptr;
  cubinery::capi::keep_bytes_in_json();
  return PyModule_Create(&module_definition);
}
