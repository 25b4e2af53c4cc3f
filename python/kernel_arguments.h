// What the launches of a kernel take, and Python's values as its parameters.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array_views.h"
#include "parameter_kinds.h"

namespace cubinery_python {

struct Parameter {
  std::string name;  // "argument 2 of scale"
  ParameterKind kind;
  std::size_t bytes;
  std::size_t offset;  // among the bytes of all
};

// Immutable.
class Parameters {
 public:
  Parameters(std::string kernel, std::string_view symbol, std::vector<std::size_t> bytes);

  std::size_t count() const { return list_.size(); }
  const Parameter& operator[](std::size_t i) const { return list_[i]; }
  const std::size_t* sizes() const { return sizes_.data(); }
  std::size_t total_bytes() const { return total_; }

  // Sets the exception of another number of arguments; returns false.
  bool refuse_count(Py_ssize_t given) const;

 private:
  std::string kernel_;
  std::vector<std::size_t> sizes_;
  std::vector<Parameter> list_;
  std::size_t total_ = 0;
};

// The parameters of one launch.  Does not allocate for kernels of usual size.
class PackedArguments {
 public:
  explicit PackedArguments(const Parameters& parameters);
  PackedArguments(const PackedArguments&) = delete;
  PackedArguments& operator=(const PackedArguments&) = delete;

  // Of a tuple with as many arguments as there are parameters: reads each, arrays through `views`,
  // whose stream has been chosen.  False: an exception is set.
  bool read(PyObject* given, ArrayViews* views);
  void* const* pointers() const { return pointers_; }

 private:
  static constexpr std::size_t kUsualCount = 32;
  static constexpr std::size_t kUsualBytes = 512;

  const Parameters& parameters_;
  void** pointers_;
  std::byte* bytes_;
  std::unique_ptr<void*[]> many_pointers_;
  std::unique_ptr<std::byte[]> many_bytes_;
  void* usual_pointers_[kUsualCount];
  alignas(16) std::byte usual_bytes_[kUsualBytes];
};

}  // namespace cubinery_python
