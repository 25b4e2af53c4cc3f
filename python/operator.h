// Operators of the C API behind one type of capsule.  Each has a file of its own, which registers
// it (decode.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <tuple>

#include "array_views.h"
#include "capi/tensors.h"
#include "module.h"

namespace cubinery_python {

class Operator {
 public:
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  virtual ~Operator() = default;

  // Python's functions: they get the arguments behind the operator.  nullptr: an exception is set.
  virtual PyObject* launch(PyObject* const* given, Py_ssize_t count) const = 0;
  virtual PyObject* choice(PyObject* const* given, Py_ssize_t count) const = 0;
  // TypeError, unless the operator has a workspace.
  virtual PyObject* workspace_bytes(PyObject* const* given, Py_ssize_t count) const;
  // TypeError, unless the operator takes tables.
  virtual PyObject* table(PyObject* const* given, Py_ssize_t count) const;

 protected:
  Operator() = default;
};

// An operator's entry in the list of all.
class OperatorClass {
 public:
  // nullptr: an exception is set.
  using Create = Operator* (*)(const CubineryContext* context, const char* problem);

  // Static objects only.
  OperatorClass(const char* op, Create create) : op_(op), create_(create), next_(first_) {
    first_ = this;
  }
  OperatorClass(const OperatorClass&) = delete;
  OperatorClass& operator=(const OperatorClass&) = delete;

  // nullptr and an exception: the module has no such operator.
  static Create find(const char* op);

 private:
  static const OperatorClass* first_;
  const char* op_;
  Create create_;
  const OperatorClass* next_;
};

// An operator that owns a handle of the C API.
template <class T, auto kCreate, auto kDestroy>
class HandleOperator : public Operator {
 public:
  using Handle = T;

  HandleOperator(Handle* handle, int device) : handle_(handle), device_(device) {}
  ~HandleOperator() override { kDestroy(handle_); }

  // OperatorClass::Create of a class that derives from this one.
  template <class Derived>
  static Operator* create(const CubineryContext* context, const char* problem) {
    Handle* handle = nullptr;
    if (const int code = without_gil([&] { return kCreate(context, problem, &handle); })) {
      raise(code);
      return nullptr;
    }
    auto* made = new (std::nothrow) Derived(handle, cubinery_context_device(context));
    if (made == nullptr) {
      kDestroy(handle);
      PyErr_NoMemory();
    }
    return made;
  }

 protected:
  Handle* handle() const { return handle_; }
  int device() const { return device_; }

 private:
  Handle* handle_;
  int device_;
};

// ---- Arguments.  False: an exception is set -----------------------------------------------------

bool right_count(Py_ssize_t given, std::size_t taken);

struct NamedInteger {
  const char* name;
  std::int64_t* value;
};

// All of them, as integers.
bool read_integers(PyObject* const* given, Py_ssize_t count, std::span<const NamedInteger> into);
inline bool read_integers(PyObject* const* given, Py_ssize_t count,
                          std::initializer_list<NamedInteger> into) {
  return read_integers(given, count, std::span(into.begin(), into.size()));
}

// Operator::choice() by the function of the C API, whose sizes have these names.
template <class Handle, class... Sizes>
PyObject* choice_of(int (*choice)(const Handle*, Sizes...), const Handle* handle,
                    const std::array<const char*, sizeof...(Sizes) - 1>& names,
                    PyObject* const* given, Py_ssize_t count) {
  constexpr std::size_t kSizes = sizeof...(Sizes) - 1;  // the last is the text
  std::array<std::int64_t, kSizes> sizes{};
  std::array<NamedInteger, kSizes> into{};
  for (std::size_t i = 0; i < kSizes; ++i) into[i] = {names[i], &sizes[i]};
  if (!read_integers(given, count, into)) return nullptr;
  char* text = nullptr;
  const int code =
      std::apply([&](const auto... size) { return choice(handle, size..., &text); }, sizes);
  return take_text(code, text);
}

// What Python calls a tensor of capi/tensors.h.
const char* python_name(const char* tensor);

// Reads a list of capi/tensors.h, and moves `given` behind it.
bool read_tensors(const auto& tensors, PyObject* const*& given, ArrayViews* views) {
  for (const auto& [name, tensor] : tensors) {
    if (!views->view(python_name(name), *given++, tensor)) return false;
  }
  return true;
}

// None leaves `*to` as it is; else it points to `value`.
bool read_float(const char* name, PyObject* given, float* value, const float** to);

// Reads scratch_slot, scale (None: the default) and enable_pdl, and moves `given` behind them.
template <class Args>
bool read_numbers(PyObject* const*& given, float* scale, Args* args) {
  if (!read_integers(given, 1, {{"scratch_slot", &args->scratch_slot}})) return false;
  if (!read_float("scale", given[1], scale, &args->scale)) return false;
  args->enable_pdl = PyObject_IsTrue(given[2]);
  given += 3;
  return args->enable_pdl != -1;
}

// None, or the exception of a code.
PyObject* done(int code);

}  // namespace cubinery_python
