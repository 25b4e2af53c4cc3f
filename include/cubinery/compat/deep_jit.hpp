// DeepJIT's public C++ interface for CUDA, on cubinery's runtime: a kernel library that was written
// for DeepJIT builds on cubinery when this is what it includes,
//
//     #include <cubinery/compat/deep_jit.hpp>  // was <deep_jit/backend/cuda/backend.hpp>
//
// or, with no line changed, when its include path has <prefix>/include/cubinery/compat in place of
// DeepJIT's include/.  Link libcubinery; CUDA's headers are needed, neither Torch nor pybind11 is.
//
// As there, errors are exceptions (deep_jit::exception::Exception) and the environment is read
// under the library's prefix, or else under DJ_.  What cubinery's cache could not answer for is
// refused with an exception that says what there is in its place.  docs/switching.md, "Coming from
// DeepJIT", has the calls one by one, the variables, and what differs.
#pragma once

#include "cubinery/compat/deep_jit/backend/cuda/backend.hpp"
