#include "kernel_arguments.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace cubinery_python {
namespace {

using Kind = ParameterKind;

bool takes_integers(const Parameter& to) {
  const bool has_size = to.bytes == 1 || to.bytes == 2 || to.bytes == 4 || to.bytes == 8;
  return has_size && to.kind != Kind::kFloat && to.kind != Kind::kCudaNumber;
}

bool takes_floats(const Parameter& to) {
  return (to.bytes == 4 || to.bytes == 8) && (to.kind == Kind::kFloat || to.kind == Kind::kUnknown);
}

bool takes_addresses(const Parameter& to) {
  return to.bytes == sizeof(void*) && (to.kind == Kind::kPointer || to.kind == Kind::kUnknown);
}

// Of a parameter of these bytes.
struct Range {
  std::int64_t least;
  std::uint64_t most;
};

Range range_of(const Parameter& to) {
  if (to.kind == Kind::kBool) return {0, 1};
  const unsigned bits = static_cast<unsigned>(8 * to.bytes);
  const std::uint64_t most_unsigned = std::numeric_limits<std::uint64_t>::max() >> (64 - bits);
  const std::uint64_t most_signed = most_unsigned >> 1;
  const bool is_signed = to.kind == Kind::kSigned;
  const bool is_unsigned = to.kind == Kind::kUnsigned || to.kind == Kind::kPointer;
  return {is_unsigned ? 0 : -static_cast<std::int64_t>(most_signed) - 1,
          is_signed ? most_signed : most_unsigned};
}

// What a parameter takes, for messages.
std::string accepted_by(const Parameter& to) {
  const std::string bytes = std::to_string(to.bytes) + (to.bytes == 1 ? " byte" : " bytes");
  switch (to.kind) {
    case Kind::kPointer:
      return "an array, None or an address (a pointer)";
    case Kind::kFloat:
      return to.bytes == 4 ? "a float (float)" : "a float (double)";
    case Kind::kBool:
      return "a bool (bool)";
    case Kind::kSigned:
    case Kind::kUnsigned:
    case Kind::kCharacter:
      return "an int (an integer of " + bytes + ")";
    case Kind::kCudaNumber:
      return bytes + " as numpy or ctypes has them, such as numpy.float16(1)";
    case Kind::kUnknown:
      break;
  }
  if (to.bytes == 8) return "an array, None, an int, a float or other 8 bytes";
  if (to.bytes == 4) return "an int, a float or other 4 bytes";
  if (to.bytes == 2) return "an int or other 2 bytes, such as numpy.float16(1)";
  if (to.bytes == 1) return "a bool, an int or another byte";
  return bytes + ", as a ctypes structure, bytes or a numpy scalar";
}

// All of these set an exception and return false.

bool set_refusal(const char* format, auto... values) {
  if (PyObject* type = invalid_argument_error()) {
    PyErr_Format(type, format, values...);
    Py_DECREF(type);
  }
  return false;
}

bool refuse(const Parameter& to, PyObject* value) {
  return set_refusal("%s = %R; accepted: %s", to.name.c_str(), value, accepted_by(to).c_str());
}

// Of what is better not printed.
bool refuse_kind(const Parameter& to, PyObject* value) {
  PyObject* name = PyType_GetName(Py_TYPE(value));
  if (name == nullptr) return false;
  set_refusal("%s is of type %U; accepted: %s", to.name.c_str(), name, accepted_by(to).c_str());
  Py_DECREF(name);
  return false;
}

bool refuse_range(const Parameter& to, PyObject* value, const Range& range) {
  return set_refusal("%s = %R; accepted: integers from %lld to %llu", to.name.c_str(), value,
                     static_cast<long long>(range.least),
                     static_cast<unsigned long long>(range.most));
}

bool refuse_bytes(const Parameter& to, PyObject* value, Py_ssize_t bytes) {
  PyObject* name = PyType_GetName(Py_TYPE(value));
  if (name == nullptr) return false;
  set_refusal("%s is of type %U and has %zd bytes; accepted: %s", to.name.c_str(), name, bytes,
              accepted_by(to).c_str());
  Py_DECREF(name);
  return false;
}

// Each writes to.bytes.  False: an exception is set.

bool read_address(const Parameter& to, void* address, std::byte* into) {
  std::memcpy(into, &address, sizeof(address));
  return to.bytes == sizeof(address);
}

bool read_integer(const Parameter& to, PyObject* value, std::byte* into) {
  if (!takes_integers(to)) return refuse(to, value);
  const Range range = range_of(to);
  int overflow = 0;
  const std::int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (number == -1 && overflow == 0 && PyErr_Occurred() != nullptr) return false;
  auto bits = static_cast<std::uint64_t>(number);
  if (overflow > 0) {
    bits = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return refuse_range(to, value, range);
    }
  }
  const bool is_negative = overflow < 0 || (overflow == 0 && number < 0);
  const bool fits = is_negative ? overflow == 0 && number >= range.least : bits <= range.most;
  if (!fits) return refuse_range(to, value, range);
  std::memcpy(into, &bits, to.bytes);  // the low bytes are the first
  return true;
}

bool read_float(const Parameter& to, PyObject* value, std::byte* into) {
  if (!takes_floats(to)) return refuse(to, value);
  const double number = PyFloat_AsDouble(value);
  if (number == -1.0 && PyErr_Occurred() != nullptr) return false;
  if (to.bytes == sizeof(number)) return std::memcpy(into, &number, sizeof(number)), true;
  if (std::isfinite(number) && std::abs(number) > double{std::numeric_limits<float>::max()}) {
    return set_refusal("%s = %R; accepted: what a float of 4 bytes holds", to.name.c_str(), value);
  }
  const auto narrow = static_cast<float>(number);
  std::memcpy(into, &narrow, sizeof(narrow));
  return true;
}

bool read_array(const Parameter& to, PyObject* value, ArrayViews* views, std::byte* into) {
  if (!takes_addresses(to)) return refuse_kind(to, value);
  void* address = nullptr;
  return views->address(to.name.c_str(), value, &address) && read_address(to, address, into);
}

// Of what has the buffer protocol.
bool read_buffer(const Parameter& to, PyObject* value, std::byte* into) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE) != 0) return false;
  const bool fits = static_cast<std::size_t>(buffer.len) == to.bytes;
  const Py_ssize_t bytes = buffer.len;
  if (fits) std::memcpy(into, buffer.buf, to.bytes);
  PyBuffer_Release(&buffer);
  return fits || refuse_bytes(to, value, bytes);
}

// Of a scalar of a library that has no buffer.
bool read_scalar(const Parameter& to, PyObject* value, std::byte* into) {
  PyObject* bytes = PyObject_CallMethod(value, "tobytes", nullptr);
  if (bytes == nullptr) return false;
  const bool read =
      PyBytes_Check(bytes) != 0 ? read_buffer(to, bytes, into) : refuse_kind(to, value);
  Py_DECREF(bytes);
  return read;
}

bool has_attribute(PyObject* value, const char* name) {
  return PyObject_HasAttrString(value, name) != 0;
}

bool read_one(const Parameter& to, PyObject* value, ArrayViews* views, std::byte* into) {
  if (PyLong_Check(value)) return read_integer(to, value, into);
  if (PyFloat_CheckExact(value)) return read_float(to, value, into);
  if (value == Py_None) {
    return takes_addresses(to) ? read_address(to, nullptr, into) : refuse(to, value);
  }
  if (ArrayViews::is_array(value)) return read_array(to, value, views, into);
  if (PyObject_CheckBuffer(value) != 0) return read_buffer(to, value, into);
  if (PyFloat_Check(value)) return read_float(to, value, into);
  if (has_attribute(value, "dtype") && has_attribute(value, "tobytes")) {
    return read_scalar(to, value, into);
  }
  return refuse_kind(to, value);
}

constexpr std::size_t kAlignment = 16;

}  // namespace

Parameters::Parameters(std::string kernel, std::string_view symbol, std::vector<std::size_t> bytes)
    : kernel_(std::move(kernel)), sizes_(std::move(bytes)) {
  const std::vector<Kind> kinds = kinds_of(symbol, sizes_);
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    list_.push_back({.name = "argument " + std::to_string(i + 1) + " of " + kernel_,
                     .kind = kinds[i],
                     .bytes = sizes_[i],
                     .offset = total_});
    total_ += (sizes_[i] + kAlignment - 1) / kAlignment * kAlignment;
  }
}

bool Parameters::refuse_count(Py_ssize_t given) const {
  std::string takes = std::to_string(count());
  for (std::size_t i = 0; i < count(); ++i) {
    takes += (i == 0 ? ": " : "; ") + accepted_by(list_[i]);
  }
  return set_refusal("%s: %zd arguments given; accepted: %s", kernel_.c_str(), given,
                     takes.c_str());
}

PackedArguments::PackedArguments(const Parameters& parameters)
    : parameters_(parameters), pointers_(usual_pointers_), bytes_(usual_bytes_) {
  if (parameters.count() > kUsualCount) {
    many_pointers_.reset(new (std::nothrow) void*[parameters.count()]);
    pointers_ = many_pointers_.get();
  }
  if (parameters.total_bytes() > kUsualBytes) {
    many_bytes_.reset(new (std::nothrow) std::byte[parameters.total_bytes()]);
    bytes_ = many_bytes_.get();
  }
}

bool PackedArguments::read(PyObject* given, ArrayViews* views) {
  if (pointers_ == nullptr || bytes_ == nullptr) return PyErr_NoMemory(), false;
  for (std::size_t i = 0; i < parameters_.count(); ++i) {
    const Parameter& to = parameters_[i];
    std::byte* const into = bytes_ + to.offset;
    PyObject* value = PyTuple_GetItem(given, static_cast<Py_ssize_t>(i));
    if (value == nullptr || !read_one(to, value, views, into)) return false;
    pointers_[i] = into;
  }
  return true;
}

}  // namespace cubinery_python
