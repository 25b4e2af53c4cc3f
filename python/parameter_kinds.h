// What the parameters of a C++ kernel are, as far as its mangled symbol says.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace cubinery_python {

enum class ParameterKind {
  kUnknown,  // extern "C", or a type that is not read here: classes, enumerations...
  kSigned,
  kUnsigned,
  kCharacter,  // char: an integer of any sign
  kBool,
  kFloat,  // float, double
  kPointer,
  kCudaNumber,  // a class of CUDA's that is a number: __half, __nv_bfloat16...
};

// bytes: the size of each parameter.  Reads the mangling of the Itanium C++ ABI, which NVRTC and
// nvcc use on Linux; from the first type on that is not read here, parameters are kUnknown.
std::vector<ParameterKind> kinds_of(std::string_view symbol, std::span<const std::size_t> bytes);

}  // namespace cubinery_python
