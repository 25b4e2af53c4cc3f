#include "operator.h"

#include <cstring>
#include <string_view>

namespace cubinery_python {

const OperatorClass* OperatorClass::first_ = nullptr;

OperatorClass::Create OperatorClass::find(const char* op) {
  for (const OperatorClass* at = first_; at != nullptr; at = at->next_) {
    if (std::strcmp(at->op_, op) == 0) return at->create_;
  }
  PyErr_Format(PyExc_ValueError, "the module has no operator \"%s\"", op);
  return nullptr;
}

PyObject* Operator::workspace_bytes(PyObject* const*, Py_ssize_t) const {
  PyErr_SetString(PyExc_TypeError, "the operator has no workspace");
  return nullptr;
}

PyObject* Operator::table(PyObject* const*, Py_ssize_t) const {
  PyErr_SetString(PyExc_TypeError, "the operator takes no table");
  return nullptr;
}

bool right_count(Py_ssize_t given, std::size_t taken) {
  if (given == static_cast<Py_ssize_t>(taken)) return true;
  PyErr_Format(PyExc_TypeError, "%zd arguments given; taken: %zd", given,
               static_cast<Py_ssize_t>(taken));
  return false;
}

// The names of the tables are literals.
const char* python_name(std::string_view tensor) { return tensor == "o" ? "out" : tensor.data(); }

bool refuse_none(std::string_view first, std::string_view instead) {
  char message[120];
  PyOS_snprintf(message, sizeof(message), "%s is None; accepted: an array, %s is None",
                python_name(first), python_name(instead));
  return set_invalid_argument(message);
}

bool read_integers(PyObject* const* given, Py_ssize_t count, std::span<const NamedInteger> into) {
  if (!right_count(count, into.size())) return false;
  for (const auto& [name, value] : into) {
    PyObject* number = *given++;
    *value = PyLong_AsLongLong(number);
    if (*value == -1 && PyErr_Occurred() != nullptr)
      return refuse_value(name, number, "integers of 64 bits");
  }
  return true;
}

bool read_number(const char* name, PyObject* given, bool is_flag, std::int64_t* to, KeptNumber*) {
  if (!is_flag) return read_integers(&given, 1, {{name, to}});
  *to = PyObject_IsTrue(given);
  return *to != -1;
}

bool read_number(const char* name, PyObject* given, bool, const std::int64_t** to,
                 KeptNumber* kept) {
  if (given == Py_None) return true;
  kept->integer = PyLong_AsLongLong(given);
  if (kept->integer == -1 && PyErr_Occurred() != nullptr)
    return refuse_value(name, given, "integers of 64 bits, or None");
  *to = &kept->integer;
  return true;
}

bool read_number(const char* name, PyObject* given, bool, const float** to, KeptNumber* kept) {
  if (given == Py_None) return true;
  const double number = PyFloat_AsDouble(given);
  if (number == -1.0 && PyErr_Occurred() != nullptr)
    return refuse_value(name, given, "a number, or None");
  kept->real = static_cast<float>(number);
  *to = &kept->real;
  return true;
}

PyObject* done(int code) {
  if (code != CUBINERY_OK) return raise(code);
  Py_RETURN_NONE;
}

}  // namespace cubinery_python
