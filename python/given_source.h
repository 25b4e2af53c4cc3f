// What a kernel's text is given with, of functions of the module.
#pragma once

#include <vector>

#include "handles.h"

namespace cubinery_python {

// (Context, source, name, includes, options, forbid_spills, compiler, share_headers)
class GivenSource {
 public:
  // False: an exception is set.
  bool read(PyObject* arguments);

  PyObject* handle() const { return handle_; }
  const CubineryContext* context() const { return context_->handle; }
  const CubineryKernelSource* source() const { return &source_; }

 private:
  PyObject* handle_ = nullptr;
  const Context* context_ = nullptr;
  std::vector<const char*> includes_;
  std::vector<const char*> options_;
  CubineryKernelSource source_ = CUBINERY_KERNEL_SOURCE_INIT;
};

}  // namespace cubinery_python
