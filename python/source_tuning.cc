#include "source_tuning.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "capi/for_python.h"
#include "cubinery/tuning.h"
#include "given_source.h"

namespace cubinery_python {
namespace {

using cubinery::Check;
using cubinery::Code;
using cubinery::Result;
using cubinery::Shape;
using cubinery::Status;
using cubinery::Stream;
using cubinery::TuningSpace;
using cubinery::Workload;

// Methods of a Python object that say what became of a configuration: a str, why it cannot be had;
// None, an exception that the object keeps, which ends the tuning; else it was done.
class Calls {
 public:
  explicit Calls(PyObject* object) : object_(object) {}

  // read(answer) of what was done; false: an exception is set.
  template <class Read, class... Arguments>
  Status ask(const Read& read, const char* method, const char* format,
             Arguments... arguments) const {
    enum { kDone, kOwnError, kEnd };
    std::string why;
    const auto call = [&]() -> int {
      PyObject* const answer = PyObject_CallMethod(object_, method, format, arguments...);
      int outcome = kEnd;
      if (answer != nullptr && PyUnicode_Check(answer) != 0) {
        const char* const text = PyUnicode_AsUTF8AndSize(answer, nullptr);
        why = text != nullptr ? text : method;
        outcome = kOwnError;
      } else if (answer != nullptr && answer != Py_None && read(answer)) {
        outcome = kDone;
      }
      if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(object_);
      Py_XDECREF(answer);
      return outcome;
    };
    switch (with_gil(call, kEnd)) {
      case kDone:
        return {};
      case kOwnError:
        return Status(Code::kDriver, std::move(why));
      default:
        return Status(Code::kIo, std::string(method) + " has raised an exception");
    }
  }

 private:
  PyObject* object_;  // somebody else's
};

bool nothing(PyObject*) { return true; }

class PythonWorkload : public Workload {
 public:
  PythonWorkload(const Calls& calls, int sets, std::int64_t bytes)
      : calls_(calls), sets_(sets), bytes_(bytes) {}
  PythonWorkload(const PythonWorkload&) = delete;
  PythonWorkload& operator=(const PythonWorkload&) = delete;
  ~PythonWorkload() override { static_cast<void>(calls_.ask(nothing, "forget_operands", nullptr)); }
  int sets() const override { return sets_; }
  std::int64_t bytes() const override { return bytes_; }
  Status launch(std::size_t configuration, Stream stream, int set) override {
    return calls_.ask(nothing, "launch", "nKi", static_cast<Py_ssize_t>(configuration),
                      static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)),
                      set);
  }

 private:
  Calls calls_;
  int sets_;
  std::int64_t bytes_;
};

class PythonTunable : public cubinery::Tunable {
 public:
  PythonTunable(const CubineryContext* context, TuningSpace space, PyObject* calls)
      : context_(context), space_(std::move(space)), calls_(calls) {}

  const TuningSpace& space() const override { return space_; }
  std::size_t default_configuration(const Shape&) const override { return 0; }
  Status prepare(std::size_t configuration) override {
    return calls_.ask(nothing, "prepare", "n", static_cast<Py_ssize_t>(configuration));
  }
  Result<Check> check(std::size_t configuration) override {
    Check check;
    const auto read = [&](PyObject* answer) {
      const char* worst = nullptr;
      if (PyArg_ParseTuple(answer, "dds", &check.error, &check.limit, &worst) == 0) return false;
      check.worst = worst;
      return true;
    };
    Status status = calls_.ask(read, "check", "n", static_cast<Py_ssize_t>(configuration));
    if (!status.ok()) return status;
    return check;
  }
  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    int sets = 0;
    long long bytes = 0;
    const auto read = [&](PyObject* answer) {
      return PyArg_ParseTuple(answer, "iL", &sets, &bytes) != 0;
    };
    std::string sizes;  // an object; names are of letters, digits and _
    for (const auto& [name, value] : shape) {
      sizes += (sizes.empty() ? "{\"" : ", \"") + name + "\": " + std::to_string(value);
    }
    Status status = calls_.ask(read, "make_operands", "sL", (sizes + "}").c_str(),
                               static_cast<long long>(cubinery::capi::l2_bytes(context_)));
    // Filled on streams that the timed one does not wait for.
    if (status.ok()) status = cubinery::capi::synchronize(context_);
    if (!status.ok()) return status;
    return std::unique_ptr<Workload>(std::make_unique<PythonWorkload>(calls_, sets, bytes));
  }

 private:
  const CubineryContext* context_;
  TuningSpace space_;
  Calls calls_;
};

}  // namespace

PyObject* tune_source(PyObject*, PyObject* arguments) {
  PyObject *text = nullptr, *calls = nullptr, *progress = nullptr;
  const char *choices = nullptr, *shapes = nullptr, *settings = nullptr, *directory = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!sssOOy", &PyTuple_Type, &text, &choices, &shapes, &settings,
                        &calls, &progress, &directory)) {
    return nullptr;
  }
  GivenSource given;
  if (!given.read(text)) return nullptr;
  TuningSpace space;
  if (const int code = cubinery::capi::source_space(given.source(), choices, &space)) {
    return raise(code);
  }
  PythonTunable tunable(given.context(), std::move(space), calls);
  char* summary = nullptr;
  const int code = without_gil_for_long([&] {
    return cubinery::capi::tune_tunable(*directory != '\0' ? directory : nullptr, given.context(),
                                        tunable, shapes, settings, call_progress, progress,
                                        &summary);
  });
  return take_text(code, summary);
}

PyObject* choose_source(PyObject*, PyObject* arguments) {
  PyObject* text = nullptr;
  const char *choices = nullptr, *shapes = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!ss", &PyTuple_Type, &text, &choices, &shapes)) return nullptr;
  GivenSource given;
  if (!given.read(text)) return nullptr;
  char* choice = nullptr;
  const int code = without_gil([&] {
    TuningSpace space;
    const int made = cubinery::capi::source_space(given.source(), choices, &space);
    if (made != CUBINERY_OK) return made;
    return cubinery::capi::choose_in(given.context(), space, shapes, &choice);
  });
  return take_text(code, choice);
}

}  // namespace cubinery_python
