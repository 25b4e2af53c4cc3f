// Where DLPack's tensors lie, for the C library and the Python module.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>

namespace cubinery::capi {

// The address of element [0, ..., 0]; null where the tensor has none.  False: it would be beyond
// the end of the address space.
inline bool first_element(const DLTensor& tensor, void** data) {
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  std::uintptr_t address = 0;
  if (base != 0 && __builtin_add_overflow(base, tensor.byte_offset, &address)) return false;
  *data = reinterpret_cast<void*>(address);
  return true;
}

}  // namespace cubinery::capi
