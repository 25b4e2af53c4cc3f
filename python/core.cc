// cubinery._core: the C API (cubinery/c_api.h) as functions over capsules.  What users see is in
// cubinery/operators.py.
//
// Only the limited API of Python 3.11 is used: one module serves every later CPython.  All calls
// into the library release the GIL: compilation takes seconds, the log takes it back.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "array_views.h"
#include "capi/tensors.h"
#include "cubinery/c_api.h"

namespace cubinery_python {
namespace {

constexpr const char* kContextName = "cubinery.Context";
constexpr const char* kDecodeName = "cubinery.Decode";
constexpr const char* kPrefillName = "cubinery.Prefill";

// Runs a call of the library with the GIL released.
template <class Call>
auto without_gil(const Call& call) {
  PyThreadState* state = PyEval_SaveThread();
  const auto result = call();
  PyEval_RestoreThread(state);
  return result;
}

// Sets the exception of cubinery._errors that a failed call of this thread stands for.
PyObject* raise(int code) {
  PyObject* errors = PyImport_ImportModule("cubinery._errors");
  if (errors == nullptr) return nullptr;
  PyObject* error = PyObject_CallMethod(errors, "from_code", "sss", cubinery_code_name(code),
                                        cubinery_last_error(), cubinery_last_error_log());
  Py_DECREF(errors);
  if (error == nullptr) return nullptr;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
  return nullptr;
}

// Takes text that the library returned.
PyObject* take_text(char* text) {
  PyObject* result = PyUnicode_FromString(text);
  cubinery_free_text(text);
  return result;
}

// ---- Handles ------------------------------------------------------------------------------------

struct Context {
  CubineryContext* handle;
  PyObject* log;  // may be null; outlives the handle, which calls it
};

// An operator keeps its context's capsule: both may still write to the context's log.
template <class Handle>
struct Operator {
  Handle* handle;
  PyObject* context;
  int device;
};
using Decode = Operator<CubineryDecode>;
using Prefill = Operator<CubineryPrefill>;

void destroy(CubineryContext* handle) { cubinery_context_destroy(handle); }
void destroy(CubineryDecode* handle) { cubinery_decode_destroy(handle); }
void destroy(CubineryPrefill* handle) { cubinery_prefill_destroy(handle); }

void release(Context* context) { Py_XDECREF(context->log); }
template <class Handle>
void release(Operator<Handle>* op) {
  Py_DECREF(op->context);
}

template <class T>
void delete_capsule(PyObject* capsule) {
  auto* object = static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  without_gil([&] { return destroy(object->handle), 0; });
  release(object);
  delete object;
}

// Takes `object` over, also when it fails.
template <class T>
PyObject* new_capsule(T object, const char* name) {
  T* kept = new (std::nothrow) T(object);
  PyObject* capsule =
      kept == nullptr ? PyErr_NoMemory() : PyCapsule_New(kept, name, delete_capsule<T>);
  if (capsule == nullptr) {
    destroy(object.handle);
    release(&object);
    delete kept;
  }
  return capsule;
}

template <class T>
T* unwrap(PyObject* capsule, const char* name) {
  return static_cast<T*>(PyCapsule_GetPointer(capsule, name));
}

// ---- Contexts -----------------------------------------------------------------------------------

void call_log(int level, const char* message, void* user) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* callable = static_cast<PyObject*>(user);
  PyObject* result =
      PyObject_CallFunction(callable, "ss", level == 0 ? "info" : "warning", message);
  if (result == nullptr) PyErr_WriteUnraisable(callable);
  Py_XDECREF(result);
  PyGILState_Release(state);
}

using Options = std::unique_ptr<CubineryOptions, decltype(&cubinery_options_destroy)>;

// Sets every (name, text) of a dict.  False: an exception is set.
bool set_options(CubineryOptions* options, PyObject* fields) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(fields, &position, &name, &value)) {
    const char* name_text = PyUnicode_AsUTF8AndSize(name, nullptr);
    const char* value_text = PyUnicode_AsUTF8AndSize(value, nullptr);
    if (name_text == nullptr || value_text == nullptr) return false;
    const int code = cubinery_options_set(options, name_text, value_text);
    if (code != CUBINERY_OK) return raise(code), false;
  }
  return true;
}

// (fields: dict[str, str], log: callable | None) -> Context
PyObject* context_create(PyObject*, PyObject* arguments) {
  PyObject* fields = nullptr;
  PyObject* log = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO", &fields, &log)) return nullptr;
  CubineryOptions* made = nullptr;
  if (const int code = cubinery_options_create(&made)) return raise(code);
  const Options options(made, cubinery_options_destroy);
  if (!set_options(made, fields)) return nullptr;
  const bool logs = log != Py_None;
  if (logs) {
    if (const int code = cubinery_options_set_log(made, call_log, log)) return raise(code);
  }
  CubineryContext* handle = nullptr;
  // The caller's reference keeps `log` alive until the capsule has its own.
  if (const int code = without_gil([&] { return cubinery_context_create(made, &handle); })) {
    return raise(code);
  }
  if (logs) Py_INCREF(log);
  return new_capsule(Context{handle, logs ? log : nullptr}, kContextName);
}

// (Context) -> (arch, device, sm_count)
PyObject* context_info(PyObject*, PyObject* capsule) {
  const auto* context = unwrap<Context>(capsule, kContextName);
  if (context == nullptr) return nullptr;
  return Py_BuildValue("sii", cubinery_context_arch(context->handle),
                       cubinery_context_device(context->handle),
                       cubinery_context_sm_count(context->handle));
}

// (Context) -> str
PyObject* context_nvrtc_version(PyObject*, PyObject* capsule) {
  const auto* context = unwrap<Context>(capsule, kContextName);
  if (context == nullptr) return nullptr;
  char* version = nullptr;
  const int code =
      without_gil([&] { return cubinery_context_nvrtc_version(context->handle, &version); });
  return code == CUBINERY_OK ? take_text(version) : raise(code);
}

// (Context) -> the counts of CubineryCacheStats, in its order
PyObject* context_stats(PyObject*, PyObject* capsule) {
  const auto* context = unwrap<Context>(capsule, kContextName);
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
  PyObject* capsule = nullptr;
  const char* op = nullptr;
  const char* problem = nullptr;
  if (!PyArg_ParseTuple(arguments, "Oss", &capsule, &op, &problem)) return nullptr;
  const auto* context = unwrap<Context>(capsule, kContextName);
  if (context == nullptr) return nullptr;
  char* report = nullptr;
  const int code = without_gil([&] { return kReport(context->handle, op, problem, &report); });
  return code == CUBINERY_OK ? take_text(report) : raise(code);
}

// Asks a callable whether to stop.  An exception stops too; a callable that wants it to be seen
// keeps it, there is no way through the library.
int call_progress(const char* progress, void* user) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* callable = static_cast<PyObject*>(user);
  PyObject* result = PyObject_CallFunction(callable, "s", progress);
  const int stop = result == nullptr ? -1 : PyObject_IsTrue(result);
  if (stop < 0) PyErr_WriteUnraisable(callable);
  Py_XDECREF(result);
  PyGILState_Release(state);
  return stop;
}

// (Context, op, problem, shapes, settings, progress: callable) -> JSON
PyObject* tune(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* progress = nullptr;
  const char *op = nullptr, *problem = nullptr, *shapes = nullptr, *settings = nullptr;
  if (!PyArg_ParseTuple(arguments, "OssssO", &capsule, &op, &problem, &shapes, &settings,
                        &progress)) {
    return nullptr;
  }
  const auto* context = unwrap<Context>(capsule, kContextName);
  if (context == nullptr) return nullptr;
  char* summary = nullptr;
  const int code = without_gil([&] {
    return cubinery_tune(context->handle, op, problem, shapes, settings, call_progress, progress,
                         &summary);
  });
  return code == CUBINERY_OK ? take_text(summary) : raise(code);
}

// (directory, request) -> str
PyObject* tuning_report(PyObject*, PyObject* arguments) {
  const char* directory = nullptr;
  const char* request = nullptr;
  if (!PyArg_ParseTuple(arguments, "ss", &directory, &request)) return nullptr;
  char* report = nullptr;
  const int code = without_gil([&] { return cubinery_tuning_report(directory, request, &report); });
  return code == CUBINERY_OK ? take_text(report) : raise(code);
}

// (op, problem) -> the problem with every field, as JSON
PyObject* check_problem(PyObject*, PyObject* arguments) {
  const char* op = nullptr;
  const char* problem = nullptr;
  if (!PyArg_ParseTuple(arguments, "ss", &op, &problem)) return nullptr;
  char* full = nullptr;
  const int code = cubinery_check_problem(op, problem, &full);
  return code == CUBINERY_OK ? take_text(full) : raise(code);
}

// () -> str
PyObject* architectures(PyObject*, PyObject*) {
  return PyUnicode_FromString(cubinery_architectures());
}

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(cubinery_version()); }

// ---- Operators ----------------------------------------------------------------------------------

template <class Handle>
using Create = int (*)(const CubineryContext*, const char*, Handle**);

// (Context, problem) -> operator
template <class Handle, Create<Handle> kCreate>
PyObject* create_operator(PyObject* arguments, const char* name) {
  PyObject* capsule = nullptr;
  const char* problem = nullptr;
  if (!PyArg_ParseTuple(arguments, "Os", &capsule, &problem)) return nullptr;
  const auto* context = unwrap<Context>(capsule, kContextName);
  if (context == nullptr) return nullptr;
  Handle* handle = nullptr;
  if (const int code = without_gil([&] { return kCreate(context->handle, problem, &handle); })) {
    return raise(code);
  }
  Py_INCREF(capsule);
  return new_capsule(Operator<Handle>{handle, capsule, cubinery_context_device(context->handle)},
                     name);
}

PyObject* decode_create(PyObject*, PyObject* arguments) {
  return create_operator<CubineryDecode, cubinery_decode_create>(arguments, kDecodeName);
}

PyObject* prefill_create(PyObject*, PyObject* arguments) {
  return create_operator<CubineryPrefill, cubinery_prefill_create>(arguments, kPrefillName);
}

using cubinery::capi::prefill_tensors;
using cubinery::capi::shared_tensors;

template <class List>
constexpr std::size_t kCount = std::tuple_size_v<List>;
constexpr std::size_t kDecodeTensorCount =
    kCount<decltype(shared_tensors(std::declval<CubineryDecodeArgs&>()))>;
constexpr std::size_t kPrefillTensorCount =
    kDecodeTensorCount + kCount<decltype(prefill_tensors(std::declval<CubineryPrefillArgs&>()))>;
static_assert(kPrefillTensorCount < ArrayViews::kCapacity);

bool right_count(Py_ssize_t given, std::size_t taken) {
  if (given == static_cast<Py_ssize_t>(taken)) return true;
  PyErr_Format(PyExc_TypeError, "%zd arguments given; taken: %zd", given,
               static_cast<Py_ssize_t>(taken));
  return false;
}

// Reads a list of capi/tensors.h, and moves `given` behind it.
bool read_tensors(const auto& tensors, PyObject* const*& given, ArrayViews* views) {
  for (const auto& [name, tensor] : tensors) {
    if (!views->view(name, *given++, tensor)) return false;
  }
  return true;
}

// scratch_slot, scale (None: the default) and programmatic.
template <class Args>
bool read_numbers(PyObject* const* given, float* scale, Args* args) {
  args->states.scratch_slot = PyLong_AsLongLong(given[0]);
  if (args->states.scratch_slot == -1 && PyErr_Occurred() != nullptr) return false;
  if (given[1] != Py_None) {
    const double value = PyFloat_AsDouble(given[1]);
    if (value == -1.0 && PyErr_Occurred() != nullptr) return false;
    *scale = static_cast<float>(value);
    args->scale = scale;
  }
  args->programmatic = PyObject_IsTrue(given[2]);
  return args->programmatic != -1;
}

PyObject* done(int code) {
  if (code != CUBINERY_OK) return raise(code);
  Py_RETURN_NONE;
}

// (Decode, stream, shared_tensors()..., scratch_slot, scale, programmatic)
PyObject* decode_launch(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (!right_count(count, 2 + kDecodeTensorCount + 3)) return nullptr;
  const auto* decode = unwrap<Decode>(given[0], kDecodeName);
  if (decode == nullptr) return nullptr;
  ArrayViews views(decode->device);
  CubineryDecodeArgs args = CUBINERY_DECODE_ARGS_INIT;
  float scale = 0;
  if (!views.choose_stream(given[1], given[2])) return nullptr;
  given += 2;
  if (!read_tensors(shared_tensors(args), given, &views)) return nullptr;
  if (!read_numbers(given, &scale, &args)) return nullptr;
  return done(
      without_gil([&] { return cubinery_decode_launch(decode->handle, views.stream(), &args); }));
}

// (Prefill, stream, workspace, shared_tensors()..., prefill_tensors()..., scratch_slot, scale,
// programmatic, max_seqlen)
PyObject* prefill_launch(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (!right_count(count, 3 + kPrefillTensorCount + 4)) return nullptr;
  const auto* prefill = unwrap<Prefill>(given[0], kPrefillName);
  if (prefill == nullptr) return nullptr;
  ArrayViews views(prefill->device);
  CubineryPrefillArgs args = CUBINERY_PREFILL_ARGS_INIT;
  float scale = 0;
  void* workspace = nullptr;
  std::size_t bytes = 0;
  if (!views.choose_stream(given[1], given[3])) return nullptr;
  if (!views.view_bytes("workspace", given[2], &workspace, &bytes)) return nullptr;
  given += 3;
  if (!read_tensors(shared_tensors(args), given, &views)) return nullptr;
  if (!read_tensors(prefill_tensors(args), given, &views)) return nullptr;
  if (!read_numbers(given, &scale, &args)) return nullptr;
  args.max_seqlen = PyLong_AsLongLong(given[3]);
  if (args.max_seqlen == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return done(without_gil([&] {
    return cubinery_prefill_launch(prefill->handle, views.stream(), &args, workspace, bytes);
  }));
}

// (Prefill, tokens, sequences) -> int
PyObject* prefill_workspace_bytes(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  long long tokens = 0;
  long long sequences = 0;
  if (!PyArg_ParseTuple(arguments, "OLL", &capsule, &tokens, &sequences)) return nullptr;
  const auto* prefill = unwrap<Prefill>(capsule, kPrefillName);
  if (prefill == nullptr) return nullptr;
  std::size_t bytes = 0;
  if (const int code =
          cubinery_prefill_workspace_bytes(prefill->handle, tokens, sequences, &bytes)) {
    return raise(code);
  }
  return PyLong_FromSize_t(bytes);
}

// (Decode, batch) -> JSON
PyObject* decode_choice(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  long long batch = 0;
  if (!PyArg_ParseTuple(arguments, "OL", &capsule, &batch)) return nullptr;
  const auto* decode = unwrap<Decode>(capsule, kDecodeName);
  if (decode == nullptr) return nullptr;
  char* text = nullptr;
  const int code = cubinery_decode_choice(decode->handle, batch, &text);
  return code == CUBINERY_OK ? take_text(text) : raise(code);
}

// (Prefill, tokens, sequences, max_seqlen) -> JSON
PyObject* prefill_choice(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  long long tokens = 0;
  long long sequences = 0;
  long long max_seqlen = 0;
  if (!PyArg_ParseTuple(arguments, "OLLL", &capsule, &tokens, &sequences, &max_seqlen)) {
    return nullptr;
  }
  const auto* prefill = unwrap<Prefill>(capsule, kPrefillName);
  if (prefill == nullptr) return nullptr;
  char* text = nullptr;
  const int code = cubinery_prefill_choice(prefill->handle, tokens, sequences, max_seqlen, &text);
  return code == CUBINERY_OK ? take_text(text) : raise(code);
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
    {"context_create", context_create, METH_VARARGS, nullptr},
    {"context_info", context_info, METH_O, nullptr},
    {"context_nvrtc_version", context_nvrtc_version, METH_O, nullptr},
    {"context_stats", context_stats, METH_O, nullptr},
    {"context_compile", context_report<cubinery_context_compile>, METH_VARARGS, nullptr},
    {"context_explain", context_report<cubinery_context_explain>, METH_VARARGS, nullptr},
    {"tune", tune, METH_VARARGS, nullptr},
    {"tuning_report", tuning_report, METH_VARARGS, nullptr},
    {"decode_create", decode_create, METH_VARARGS, nullptr},
    {"decode_choice", decode_choice, METH_VARARGS, nullptr},
    {"prefill_create", prefill_create, METH_VARARGS, nullptr},
    {"prefill_choice", prefill_choice, METH_VARARGS, nullptr},
    {"prefill_workspace_bytes", prefill_workspace_bytes, METH_VARARGS, nullptr},
    fast_method("decode_launch", decode_launch),
    fast_method("prefill_launch", prefill_launch),
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_core", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace cubinery_python

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): CPython's name.
PyMODINIT_FUNC PyInit__core() { return PyModule_Create(&cubinery_python::module_definition); }
