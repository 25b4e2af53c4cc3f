// Operators of the C API behind one type of capsule; operators.cc registers them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "array_views.h"
#include "module.h"
#include "runtime/gdn/operators.h"

namespace cubinery_python {

namespace gdn = cubinery::gdn;

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

// What Python calls a tensor of the tables.
const char* python_name(std::string_view tensor);

// Two arrays are None of which there must be one.  Returns false.
bool refuse_none(std::string_view first, std::string_view instead);

// Operator::choice() by the function of the C API, whose sizes the table names.
template <class Args, class Handle, class... Sizes>
PyObject* choice_of(int (*choice)(const Handle*, Sizes...), const Handle* handle,
                    PyObject* const* given, Py_ssize_t count) {
  constexpr std::size_t kSizes = sizeof...(Sizes) - 1;  // the last is the text
  std::array<std::int64_t, kSizes> sizes{};
  std::array<NamedInteger, kSizes> into{};
  const auto names = std::apply([](const auto&... all) { return std::array{all.name.data()...}; },
                                gdn::Numbers<Args>::kSizes);
  for (std::size_t i = 0; i < kSizes; ++i) into[i] = {names[i], &sizes[i]};
  if (!read_integers(given, count, into)) return nullptr;
  char* text = nullptr;
  const int code =
      std::apply([&](const auto... size) { return choice(handle, size..., &text); }, sizes);
  return take_text(code, text);
}

// Reads an operator's tensors, into where C's arguments have them.
template <class Args>
bool read_tensors(const auto& tensors, PyObject* const* given, ArrayViews* views) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const char* const name = python_name(gdn::kTensorRows<Args>[i].name);
    if (!views->view(name, given[i], tensors[i])) return false;
  }
  return true;
}

// By the first of an operator's arrays, or the one that stands in for it.
template <class Args>
bool choose_stream(PyObject* stream, PyObject* const* arrays, ArrayViews* views) {
  constexpr auto& kRows = gdn::kTensorRows<Args>;
  std::size_t at = 0;
  if constexpr (requires { gdn::Tensors<Args>::kInstead; }) {
    constexpr std::size_t kInstead =
        static_cast<std::size_t>(&gdn::row_of<Args>(gdn::Tensors<Args>::kInstead) - kRows.data());
    if (arrays[0] == Py_None) at = kInstead;
    if (arrays[at] == Py_None) return refuse_none(kRows[0].name, kRows[kInstead].name);
  }
  return views->choose_stream(stream, python_name(kRows[at].name), arrays[at]);
}

// Reads an operator's numbers.  None leaves away one that C has a pointer to, which else lies at
// `kept`.
union KeptNumber {
  float real;
  std::int64_t integer;
};
bool read_number(const char* name, PyObject* given, bool is_flag, std::int64_t* to,
                 KeptNumber* kept);
bool read_number(const char* name, PyObject* given, bool is_flag, const std::int64_t** to,
                 KeptNumber* kept);
bool read_number(const char* name, PyObject* given, bool is_flag, const float** to,
                 KeptNumber* kept);
template <class Args>
bool read_numbers(PyObject* const* given, auto* args, KeptNumber* kept) {
  const auto read = [&](const auto& number) {
    constexpr bool kIsFlag = std::is_same_v<decltype(number.in(std::declval<Args&>())), bool&>;
    return read_number(number.name.data(), *given++, kIsFlag, &number.in(*args), kept++);
  };
  return std::apply([&](const auto&... all) { return (read(all) && ...); },
                    gdn::Numbers<Args>::kList);
}

// None, or the exception of a code.
PyObject* done(int code);

// ---- Operators that the tables describe ---------------------------------------------------------

// Of: the C API's functions and types of an operator (operators.cc).
template <class Of>
class TableOperator : public Operator {
 public:
  using Args = typename Of::Args;
  using Handle = typename Of::Handle;

  TableOperator(Handle* handle, int device) : handle_(handle), device_(device) {}
  ~TableOperator() override { Of::kDestroy(handle_); }

  // OperatorClass::Create of a class that derives from this one.
  template <class Derived>
  static Operator* create(const CubineryContext* context, const char* problem) {
    Handle* handle = nullptr;
    if (const int code =
            without_gil_for_long([&] { return Of::kCreate(context, problem, &handle); })) {
      raise(code);
      return nullptr;
    }
    auto* made = new (std::nothrow) Derived(handle, cubinery_context_device(context));
    if (made == nullptr) {
      Of::kDestroy(handle);
      PyErr_NoMemory();
    }
    return made;
  }

  // stream, workspace where there is one, tensors..., numbers...
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    typename Of::CArgs args{};
    args.struct_size = sizeof(args);
    const auto tensors = gdn::tensors_in<Args>(args);
    constexpr std::size_t kNumbers = std::tuple_size_v<decltype(gdn::Numbers<Args>::kList)>;
    constexpr std::size_t kFront = kHasWorkspace ? 2 : 1;
    static_assert(tensors.size() < ArrayViews::kCapacity);
    if (!right_count(count, kFront + tensors.size() + kNumbers)) return nullptr;
    PyObject* const* const arrays = given + kFront;
    ArrayViews views(device_);
    return or_sleep([&]() -> PyObject* {
      void* workspace = nullptr;
      std::size_t bytes = 0;
      KeptNumber kept[kNumbers];
      if (!choose_stream<Args>(given[0], arrays, &views)) return nullptr;
      if (kHasWorkspace && !views.view_bytes("workspace", given[1], &workspace, &bytes)) {
        return nullptr;
      }
      if (!read_tensors<Args>(tensors, arrays, &views)) return nullptr;
      if (!read_numbers<Args>(arrays + tensors.size(), &args, kept)) return nullptr;
      return done(without_gil([&] {
        if constexpr (kHasWorkspace) {
          return Of::kLaunch(handle_, views.stream(), &args, workspace, bytes);
        } else {
          return Of::kLaunch(handle_, views.stream(), &args);
        }
      }));
    });
  }

  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    return choice_of<Args>(Of::kChoice, handle_, given, count);
  }

 protected:
  Handle* handle() const { return handle_; }
  int device() const { return device_; }

 private:
  static constexpr bool kHasWorkspace =
      std::is_invocable_v<decltype(Of::kLaunch), const Handle*, void*, const typename Of::CArgs*,
                          void*, std::size_t>;

  Handle* handle_;
  int device_;
};

}  // namespace cubinery_python
