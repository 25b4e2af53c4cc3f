// DLPack's tensors as the library's.  The good path allocates nothing.
#pragma once

#include <dlpack/dlpack.h>

#include "cubinery/status.h"
#include "cubinery/tensor.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery::capi {

// NULL is an absent tensor.  kInvalidArgument names the tensor, what it is and what is accepted:
// memory of CUDA device `device` or managed memory, a dtype of DType, 1 to Tensor::kMaxRank
// dimensions.
Status from_dlpack(TensorName name, const DLTensor* given, int device, Tensor* tensor);

}  // namespace cubinery::capi
