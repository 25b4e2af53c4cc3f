// The kernels that Python's tests launch on a GPU that is not there.
#pragma once

#include <cstddef>
#include <map>
#include <string>

// By kernel, the bytes of its parameter.
const std::map<std::string, std::size_t>& param_bytes();
