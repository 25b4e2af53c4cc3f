#include "array_views.h"

#include <cstdint>

#include "capi/dl_data.h"

namespace cubinery_python {
namespace {

// DLPack's exchange API, version 1, as dlpack.h 1.2 has it; Debian's dlpack.h is older.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeApi* previous;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object_no_sync;
  void* managed_tensor_to_py_object_no_sync;
  int (*dltensor_from_py_object_no_sync)(void* array, DLTensor* out);
  int (*current_work_stream)(DLDeviceType type, std::int32_t device, void** stream);
};

// The exchange API of an array type, or that it has none.  Types are kept for ever: there are few.
struct KnownType {
  PyObject* type;
  const ExchangeApi* api;
};
constexpr int kMaxKnownTypes = 16;
KnownType known_types[kMaxKnownTypes];
int known_type_count = 0;

const ExchangeApi* find_exchange_api(PyObject* type) {
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  if (capsule == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  auto* api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  if (api == nullptr) PyErr_Clear();
  Py_DECREF(capsule);
  while (api != nullptr && api->major != 1) api = api->previous;
  const bool usable = api != nullptr && api->dltensor_from_py_object_no_sync != nullptr &&
                      api->current_work_stream != nullptr;
  return usable ? api : nullptr;
}

// nullptr: nobody has asked yet.
const KnownType* find_known(PyObject* type) {
  for (int i = 0; i < known_type_count; ++i) {
    if (known_types[i].type == type) return &known_types[i];
  }
  return nullptr;
}

const ExchangeApi* exchange_api(PyObject* array) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(array));
  if (const KnownType* known = find_known(type)) return known->api;
  const ExchangeApi* api = find_exchange_api(type);
  if (known_type_count < kMaxKnownTypes) {
    Py_INCREF(type);
    known_types[known_type_count++] = {type, api};
  }
  return api;
}

PyObject* call_arrays(const char* function, const char* format, ...) {
  PyObject* arrays = PyImport_ImportModule("cubinery._arrays");
  if (arrays == nullptr) return nullptr;
  PyObject* callable = PyObject_GetAttrString(arrays, function);
  Py_DECREF(arrays);
  if (callable == nullptr) return nullptr;
  va_list values;
  va_start(values, format);
  PyObject* arguments = Py_VaBuildValue(format, values);
  va_end(values);
  PyObject* result = arguments == nullptr ? nullptr : PyObject_CallObject(callable, arguments);
  Py_XDECREF(arguments);
  Py_DECREF(callable);
  return result;
}

bool is_cuda(const DLDevice& device) {
  return device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged;
}

// "cuda:0", "cpu", or DLPack's number of another kind.
void print_device(const DLDevice& device, char* text, std::size_t size) {
  if (device.device_type == kDLCPU) {
    PyOS_snprintf(text, size, "cpu");
  } else if (is_cuda(device)) {
    PyOS_snprintf(text, size, "cuda:%d", device.device_id);
  } else {
    PyOS_snprintf(text, size, "a device of DLPack type %d", static_cast<int>(device.device_type));
  }
}

}  // namespace

ArrayViews::~ArrayViews() {
  for (std::size_t i = 0; i < capsule_count_; ++i) Py_DECREF(capsules_[i]);
  Py_XDECREF(more_capsules_);
}

bool ArrayViews::read_stream(PyObject* number, void** stream) {
  *stream = PyLong_AsVoidPtr(number);
  if (*stream != nullptr || PyErr_Occurred() == nullptr) return true;
  return refuse_value("stream", number, "a cudaStream_t as an int, or None");
}

bool ArrayViews::is_array(PyObject* object) {
  const KnownType* known = find_known(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (known != nullptr && known->api != nullptr) return true;
  return PyObject_HasAttrString(object, "__dlpack__") != 0 ||
         PyObject_HasAttrString(object, "__cuda_array_interface__") != 0;
}

bool ArrayViews::choose_stream(PyObject* given, const char* name, PyObject* array) {
  if (array == Py_None) {
    char message[80];
    PyOS_snprintf(message, sizeof(message), "%s is None; accepted: an array", name);
    return set_invalid_argument(message);
  }
  if (given != Py_None) return read_stream(given, &stream_);
  if (const ExchangeApi* api = exchange_api(array)) {
    DLTensor tensor;
    if (api->dltensor_from_py_object_no_sync(array, &tensor) != 0) return false;
    // A library without CUDA has no stream to tell; launch() then refuses its arrays by name.
    return !is_cuda(tensor.device) || api->current_work_stream(kDLCUDA, device_, &stream_) == 0;
  }
  PyObject* number = call_arrays("current_stream", "(Oi)", array, device_);
  if (number == nullptr) return false;
  const bool ok = read_stream(number, &stream_);
  Py_DECREF(number);
  return ok;
}

bool ArrayViews::view(const char* name, PyObject* array, const DLTensor** view) {
  *view = nullptr;
  if (array == Py_None) return true;
  if (const ExchangeApi* api = exchange_api(array)) {
    DLTensor* tensor = &tensors_[tensor_count_++];
    *view = tensor;
    return api->dltensor_from_py_object_no_sync(array, tensor) == 0;
  }
  *view = view_capsule(name, array);
  return *view != nullptr;
}

const DLTensor* ArrayViews::view_capsule(const char* name, PyObject* array) {
  PyObject* stream = PyLong_FromVoidPtr(stream_);
  if (stream == nullptr) return nullptr;
  PyObject* capsule = call_arrays("capsule", "(sOO)", name, array, stream);
  Py_DECREF(stream);
  if (capsule == nullptr) return nullptr;
  // Never renamed, so that the capsule itself releases the tensor.
  if (capsule_count_ < kCapacity) {
    capsules_[capsule_count_++] = capsule;
  } else {
    if (more_capsules_ == nullptr) more_capsules_ = PyList_New(0);
    const bool kept = more_capsules_ != nullptr && PyList_Append(more_capsules_, capsule) == 0;
    Py_DECREF(capsule);
    if (!kept) return nullptr;
  }
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  return managed == nullptr ? nullptr : &managed->dl_tensor;
}

bool ArrayViews::address(const char* name, PyObject* array, void** address) {
  DLTensor seen;
  const DLTensor* tensor = &seen;
  if (const ExchangeApi* api = exchange_api(array)) {
    if (api->dltensor_from_py_object_no_sync(array, &seen) != 0) return false;
  } else if (PyObject_HasAttrString(array, "__dlpack__") != 0) {
    tensor = view_capsule(name, array);
    if (tensor == nullptr) return false;
  } else {
    PyObject* number = call_arrays("interface_address", "(sO)", name, array);
    if (number == nullptr) return false;
    *address = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return *address != nullptr || PyErr_Occurred() == nullptr;
  }
  const DLDevice& device = tensor->device;
  const bool is_here = device.device_type == kDLCUDA && device.device_id == device_;
  char message[200];
  if (!is_here && device.device_type != kDLCUDAManaged) {
    char text[48];
    print_device(device, text, sizeof(text));
    PyOS_snprintf(message, sizeof(message), "%.100s is on device %s; accepted: cuda:%d", name, text,
                  device_);
    return set_invalid_argument(message);
  }
  if (cubinery::capi::first_element(*tensor, address)) return true;
  PyOS_snprintf(message, sizeof(message),
                "%.100s has byte_offset %llu; accepted: what memory holds", name,
                static_cast<unsigned long long>(tensor->byte_offset));
  return set_invalid_argument(message);
}

bool ArrayViews::view_bytes(const char* name, PyObject* array, void** data, std::size_t* bytes) {
  *data = nullptr;
  *bytes = 0;
  const DLTensor* tensor = nullptr;
  if (!view(name, array, &tensor)) return false;
  if (tensor == nullptr) return true;
  const bool contiguous = tensor->ndim == 1 && (tensor->strides == nullptr ||
                                                tensor->strides[0] == 1 || tensor->shape[0] <= 1);
  if (!is_cuda(tensor->device) || tensor->device.device_id != device_ || !contiguous) {
    char device[48];
    char message[160];
    print_device(tensor->device, device, sizeof(device));
    PyOS_snprintf(message, sizeof(message),
                  "%s: %d dimensions%s on %s; accepted: one dimension without gaps on cuda:%d",
                  name, tensor->ndim, tensor->ndim == 1 && !contiguous ? " with gaps" : "", device,
                  device_);
    return set_invalid_argument(message);
  }
  const std::size_t item = ((tensor->dtype.bits + 7u) / 8u) * std::size_t{tensor->dtype.lanes};
  if (!cubinery::capi::first_element(*tensor, data) || tensor->shape[0] < 0 ||
      __builtin_mul_overflow(static_cast<std::size_t>(tensor->shape[0]), item, bytes)) {
    char message[160];
    PyOS_snprintf(message, sizeof(message),
                  "%s: %lld elements at byte_offset %llu; accepted: what memory holds", name,
                  static_cast<long long>(tensor->shape[0]),
                  static_cast<unsigned long long>(tensor->byte_offset));
    return set_invalid_argument(message);
  }
  return true;
}

PyObject* invalid_argument_error() {
  PyObject* errors = PyImport_ImportModule("cubinery._errors");
  if (errors == nullptr) return nullptr;
  PyObject* type = PyObject_GetAttrString(errors, "InvalidArgumentError");
  Py_DECREF(errors);
  return type;
}

bool set_invalid_argument(const char* message) {
  PyObject* type = invalid_argument_error();
  if (type == nullptr) return false;
  PyErr_SetString(type, message);
  Py_DECREF(type);
  return false;
}

bool refuse_value(const char* name, PyObject* value, const char* accepted) {
  const bool out_of_range = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  if (!out_of_range && PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;
  PyErr_Clear();
  PyObject* type = out_of_range ? invalid_argument_error() : Py_NewRef(PyExc_TypeError);
  if (type == nullptr) return false;
  PyErr_Format(type, "%s = %R; accepted: %s", name, value, accepted);
  Py_DECREF(type);
  return false;
}

}  // namespace cubinery_python
