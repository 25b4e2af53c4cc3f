// Where the rows of a token, its numbers and the matrix of a state lie (common/params.h).
#pragma once

#include "common/params.h"
#include "common/types.cuh"

namespace cubinery::dev {

__device__ inline long long offset_of(const TokenStrides& stride, long long batch, long long token,
                                      int h) {
  return batch * stride.batch + token * stride.token + h * stride.head;
}

// The row for head h of the operator.
template <DType kDType>
__device__ const Storage<kDType>* row_at(const TokenRows& rows, long long batch, long long token,
                                         int h) {
  return as<kDType>(rows.data) + offset_of(rows.stride, batch, token, h / rows.group);
}
template <DType kDType>
__device__ Storage<kDType>* row_at(const OutputRows& rows, long long batch, long long token,
                                   int h) {
  return as<kDType>(rows.data) + offset_of(rows.stride, batch, token, h);
}

// The matrix of a slot and head.
template <DType kDType>
__device__ const Storage<kDType>* matrix_at(const ReadStates& states, long long slot, int h) {
  return as<kDType>(states.data) + slot * states.stride.slot + h * states.stride.head;
}
template <DType kDType>
__device__ Storage<kDType>* matrix_at(const WrittenStates& states, long long slot, int h) {
  return as<kDType>(states.data) + slot * states.stride.slot + h * states.stride.head;
}

template <DType kDType>
__device__ float load(const TokenScalars& scalars, long long batch, long long token, int h) {
  return load<kDType>(scalars.data, offset_of(scalars.stride, batch, token, h));
}

template <DType kDType>
__device__ float load(const StridedVector& vector, long long i) {
  return load<kDType>(vector.data, i * vector.stride);
}

// Of a vector of integers.
template <DType kDType>
__device__ long long load_index(const StridedVector& vector, long long i) {
  return as<kDType>(vector.data)[i * vector.stride];
}

}  // namespace cubinery::dev
