// get_jit() of a library's Python module.  Needs pybind11.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "cubinery/compat/deep_jit/runtime/runtime.hpp"
#include "cubinery/compat/deep_jit/utils/lazy.hpp"

namespace deep_jit {

template <typename Backend>
void register_python_api(pybind11::module_& module, LazyInit<Runtime<Backend>>& jit) {
  using Class = pybind11::class_<Runtime<Backend>, std::shared_ptr<Runtime<Backend>>>;
  Class(module, "Runtime", pybind11::module_local());
  module.def("get_jit", [&jit] { return jit.get(); });
}

}  // namespace deep_jit
