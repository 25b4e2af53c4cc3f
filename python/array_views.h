// Views of Python arrays as DLTensors, for the length of one call.
//
// An array whose type offers DLPack's C exchange API (PyTorch 2.10 and newer) is viewed without a
// Python call or an allocation; any other goes through cubinery._arrays.capsule().
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

#include <cstddef>

namespace cubinery_python {

// Requires of every method: the GIL is held.  False: a Python exception is set.
class ArrayViews {
 public:
  // More than any operator has tensors.
  static constexpr std::size_t kCapacity = 32;

  ArrayViews(const ArrayViews&) = delete;
  ArrayViews& operator=(const ArrayViews&) = delete;
  // device: CUDA ordinal.
  explicit ArrayViews(int device) : device_(device) {}
  ~ArrayViews();

  // The stream to launch on: `given` as an integer; None: the current stream of the library that
  // `array` comes from, which must be there.  Comes before view(): other libraries order their work
  // before this stream.
  bool choose_stream(PyObject* given, const char* name, PyObject* array);
  // The same of a stream that is known.
  void set_stream(void* stream) { stream_ = stream; }
  void* stream() const { return stream_; }
  // A stream as an integer.
  static bool read_stream(PyObject* number, void** stream);

  // Whether address() takes it: it has DLPack's protocol, or CUDA's array interface.
  static bool is_array(PyObject* object);

  // *view: nullptr for None, else valid as long as this object and `array`.
  bool view(const char* name, PyObject* array, const DLTensor** view);
  // Where the first element of an array of any dtype and shape lies, on the device; any number of
  // them.  The device of an array that has nothing but CUDA's array interface is not known.
  bool address(const char* name, PyObject* array, void** address);
  // A one-dimensional array without gaps on the device, as bytes.  None: no bytes.
  bool view_bytes(const char* name, PyObject* array, void** data, std::size_t* bytes);

 private:
  // The tensor of an array without the exchange API; nullptr: an exception is set.
  const DLTensor* view_capsule(const char* name, PyObject* array);

  int device_;
  void* stream_ = nullptr;
  std::size_t tensor_count_ = 0;
  std::size_t capsule_count_ = 0;
  DLTensor tensors_[kCapacity];
  PyObject* capsules_[kCapacity];
  PyObject* more_capsules_ = nullptr;  // a list, when there are more
};

// cubinery._errors.InvalidArgumentError, a new reference; nullptr: an exception is set.
PyObject* invalid_argument_error();

// Sets one; returns false.
bool set_invalid_argument(const char* message);

// Names an argument that could not be converted: of another type (TypeError) or out of range
// (InvalidArgumentError), in place of the exception that says so.  Returns false.
bool refuse_value(const char* name, PyObject* value, const char* accepted);

}  // namespace cubinery_python
