#include "kernel.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "capi/for_python.h"
#include "given_source.h"
#include "handles.h"
#include "kernel_arguments.h"

namespace cubinery_python {
namespace {

struct SourceKernel {
  SourceKernel(CubineryKernel* kernel, int device)
      : handle(kernel),
        device(device),
        parameters(cubinery::capi::value_of(kernel).info().kernel,
                   cubinery::capi::value_of(kernel).info().symbol,
                   cubinery::capi::value_of(kernel).parameter_bytes()) {}
  SourceKernel(const SourceKernel&) = delete;
  SourceKernel& operator=(const SourceKernel&) = delete;
  ~SourceKernel() { cubinery_kernel_destroy(handle); }

  CubineryKernel* handle;
  int device;
  Parameters parameters;
};

// Keeps its context, as an operator does.
struct ContextKernel {
  PyObject ob_base;
  SourceKernel* handle;
  PyObject* context;
};

// A kernel with a grid and a block.
struct KernelLaunch {
  PyObject ob_base;
  PyObject* kernel;
  CubineryKernelLaunch launch;
  bool has_stream;
  void* stream;
};

void destroy(SourceKernel* handle) { delete handle; }
PyObject*& reached(ContextKernel* kernel) { return kernel->context; }
PyObject*& reached(KernelLaunch* launch) { return launch->kernel; }

// ---- The text -----------------------------------------------------------------------------------

using SourceReport = int (*)(const CubineryContext*, const CubineryKernelSource*, char**);

PyObject* report_of(SourceReport make, PyObject* arguments) {
  GivenSource given;
  if (!given.read(arguments)) return nullptr;
  char* report = nullptr;
  const int code =
      without_gil_for_long([&] { return make(given.context(), given.source(), &report); });
  return take_text(code, report);
}

// ---- Grid and block.  False: an exception is set ------------------------------------------------

// extent: left alone where `given` is refused by the message about `whole`.
bool read_extent(const char* name, const char* accepted, PyObject* given, PyObject* whole,
                 std::uint32_t* extent) {
  constexpr long long kMost = 0xFFFFFFFF;
  const long long number = given == nullptr ? -1 : PyLong_AsLongLong(given);
  if (number >= 0 && number <= kMost) return *extent = static_cast<std::uint32_t>(number), true;
  PyErr_Clear();
  if (PyObject* type = invalid_argument_error()) {
    PyErr_Format(type, "%s = %R; accepted: %s", name, whole, accepted);
    Py_DECREF(type);
  }
  return false;
}

// An int, or a tuple of up to three.
bool read_extents(const char* name, PyObject* given, std::uint32_t* x, std::uint32_t* y,
                  std::uint32_t* z) {
  static constexpr char kAccepted[] = "an int or a tuple of 1 to 3, each from 0 to 2^32 - 1";
  if (!PyTuple_Check(given)) return read_extent(name, kAccepted, given, given, x);
  const Py_ssize_t count = PyTuple_Size(given);
  if (count < 1 || count > 3) return read_extent(name, kAccepted, nullptr, given, x);
  std::uint32_t* const extents[] = {x, y, z};
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!read_extent(name, kAccepted, PyTuple_GetItem(given, i), given, extents[i])) return false;
  }
  return true;
}

bool read_flag(PyObject* given, std::uint32_t* flag) {
  const int is_set = PyObject_IsTrue(given);
  *flag = static_cast<std::uint32_t>(is_set);
  return is_set >= 0;
}

// grid, block[, shared_bytes, cluster, cooperative, enable_pdl, stream]
bool read_launch(PyObject* const* given, Py_ssize_t count, KernelLaunch* to) {
  CubineryKernelLaunch& launch = to->launch;
  launch = CUBINERY_KERNEL_LAUNCH_INIT;
  if (!read_extents("grid", given[0], &launch.grid_x, &launch.grid_y, &launch.grid_z)) return false;
  if (!read_extents("block", given[1], &launch.block_x, &launch.block_y, &launch.block_z)) {
    return false;
  }
  if (count > 2 && !read_extent("shared_bytes", "an int from 0 to 2^32 - 1", given[2], given[2],
                                &launch.shared_bytes)) {
    return false;
  }
  if (count <= 3) return true;
  to->has_stream = given[6] != Py_None;
  return read_extents("cluster", given[3], &launch.cluster_x, &launch.cluster_y,
                      &launch.cluster_z) &&
         read_flag(given[4], &launch.cooperative) && read_flag(given[5], &launch.enable_pdl) &&
         (!to->has_stream || ArrayViews::read_stream(given[6], &to->stream));
}

// ---- Launches -----------------------------------------------------------------------------------

// The stream that the launch names; else the current one of the library of the first array, or
// without arrays the legacy default stream.  False: an exception is set.
bool choose_stream(const KernelLaunch& launch, const Parameters& parameters, PyObject* given,
                   ArrayViews* views) {
  if (launch.has_stream) return views->set_stream(launch.stream), true;
  for (std::size_t i = 0; i < parameters.count(); ++i) {
    PyObject* value = PyTuple_GetItem(given, static_cast<Py_ssize_t>(i));
    if (PyLong_Check(value) || value == Py_None || !ArrayViews::is_array(value)) continue;
    return views->choose_stream(Py_None, parameters[i].name.c_str(), value);
  }
  return true;
}

// (arguments of the kernel...)
PyObject* call_launch(PyObject* self, PyObject* given, PyObject* named) {
  const auto& launch = *reinterpret_cast<KernelLaunch*>(self);
  const SourceKernel& kernel = *reinterpret_cast<ContextKernel*>(launch.kernel)->handle;
  if (named != nullptr && PyDict_Size(named) > 0) {
    PyErr_SetString(
        PyExc_TypeError,
        "kernel[grid, block](...) takes no keyword arguments; kernel.launch() has them");
    return nullptr;
  }
  const Py_ssize_t count = PyTuple_Size(given);
  if (count != static_cast<Py_ssize_t>(kernel.parameters.count())) {
    return kernel.parameters.refuse_count(count), nullptr;
  }
  ArrayViews views(kernel.device);
  return or_sleep([&]() -> PyObject* {
    PackedArguments arguments(kernel.parameters);
    if (!choose_stream(launch, kernel.parameters, given, &views)) return nullptr;
    if (!arguments.read(given, &views)) return nullptr;
    return done(without_gil([&] {
      return cubinery_kernel_launch(kernel.handle, views.stream(), &launch.launch,
                                    arguments.pointers(), kernel.parameters.sizes(),
                                    kernel.parameters.count());
    }));
  });
}

void dealloc_launch(PyObject* self) {
  PyObject_GC_UnTrack(self);
  free_object(reinterpret_cast<KernelLaunch*>(self));
}

PyType_Slot kernel_slots[] = {{Py_tp_traverse, slot(traverse<ContextKernel>)},
                              {Py_tp_dealloc, slot(dealloc<ContextKernel>)},
                              {0, nullptr}};
PyType_Slot launch_slots[] = {{Py_tp_traverse, slot(traverse<KernelLaunch>)},
                              {Py_tp_dealloc, slot(dealloc_launch)},
                              {Py_tp_call, slot(call_launch)},
                              {0, nullptr}};
PyType_Spec kernel_spec = {"cubinery._core.Kernel", sizeof(ContextKernel), 0, kHandleFlags,
                           kernel_slots};
PyType_Spec launch_spec = {"cubinery._core.KernelLaunch", sizeof(KernelLaunch), 0, kHandleFlags,
                           launch_slots};

}  // namespace

bool make_kernel_types() {
  return make_type<ContextKernel>(&kernel_spec) && make_type<KernelLaunch>(&launch_spec);
}

PyObject* kernel_create(PyObject*, PyObject* arguments) {
  GivenSource given;
  if (!given.read(arguments)) return nullptr;
  CubineryKernel* made = nullptr;
  if (const int code = without_gil_for_long(
          [&] { return cubinery_kernel_from_source(given.context(), given.source(), &made); })) {
    return raise(code);
  }
  auto* const kernel =
      new (std::nothrow) SourceKernel(made, cubinery_context_device(given.context()));
  if (kernel == nullptr) return cubinery_kernel_destroy(made), PyErr_NoMemory();
  auto* const object = new_object<ContextKernel>();
  if (object == nullptr) return destroy(kernel), nullptr;
  object->handle = kernel;
  object->context = Py_NewRef(given.handle());
  return reinterpret_cast<PyObject*>(object);
}

PyObject* kernel_info(PyObject*, PyObject* handle) {
  const auto* kernel = unwrap<ContextKernel>(handle);
  if (kernel == nullptr) return nullptr;
  char* info = nullptr;
  const int code = cubinery_kernel_info(kernel->handle->handle, &info);
  return take_text(code, info);
}

PyObject* kernel_with(PyObject*, PyObject* const* given, Py_ssize_t count) {
  constexpr Py_ssize_t kAll = 8;
  if (count != 3 && count != 4 && count != kAll) return right_count(count, kAll), nullptr;
  if (unwrap<ContextKernel>(given[0]) == nullptr) return nullptr;
  auto* const launch = new_object<KernelLaunch>();
  if (launch == nullptr) return nullptr;
  launch->kernel = Py_NewRef(given[0]);
  if (read_launch(given + 1, count - 1, launch)) return reinterpret_cast<PyObject*>(launch);
  Py_DECREF(reinterpret_cast<PyObject*>(launch));
  return nullptr;
}

PyObject* context_compile_source(PyObject*, PyObject* arguments) {
  return report_of(cubinery_context_compile_source, arguments);
}

PyObject* context_explain_source(PyObject*, PyObject* arguments) {
  return report_of(cubinery_context_explain_source, arguments);
}

PyObject* context_ptx(PyObject*, PyObject* arguments) {
  return report_of(
      [](const CubineryContext* context, const CubineryKernelSource* source, char** text) {
        return cubinery_context_listing(context, source, "ptx", text);
      },
      arguments);
}

PyObject* context_sass(PyObject*, PyObject* arguments) {
  return report_of(
      [](const CubineryContext* context, const CubineryKernelSource* source, char** text) {
        return cubinery_context_listing(context, source, "sass", text);
      },
      arguments);
}

}  // namespace cubinery_python
