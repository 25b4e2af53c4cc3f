// Where the rows of a token, its numbers and the matrix of a state lie (common/params.h).
#pragma once

#include "common/params.h"
#include "common/types.cuh"

namespace cubinery::dev {

__device__ inline long long offset_of(const TokenStrides& stride, TokenStrides::At at) {
  return at.batch * stride.batch + at.token * stride.token + at.head * stride.head;
}
__device__ inline long long offset_of(const RequestStrides& stride, RequestStrides::At at) {
  return at.request * stride.request + at.head * stride.head;
}

// The head of a tensor for a head of the operator.  Divisions take longest of what stands in front
// of a kernel's first load.
template <class Strides>
__device__ int own_head(const InputRows<Strides>& rows, int h) {
  return rows.group == 1 ? h : h / rows.group;
}

// The row for a head of the operator.
template <DType kDType, class Strides>
__device__ const Storage<kDType>* row_at(const InputRows<Strides>& rows, typename Strides::At at) {
  at.head /= rows.group;
  return as<kDType>(rows.data) + offset_of(rows.stride, at);
}
template <DType kDType, class Strides>
__device__ Storage<kDType>* row_at(const OutputRows<Strides>& rows, typename Strides::At at) {
  return as<kDType>(rows.data) + offset_of(rows.stride, at);
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

template <DType kDType, class Strides>
__device__ float load(const Scalars<Strides>& scalars, typename Strides::At at) {
  return load<kDType>(scalars.data, offset_of(scalars.stride, at));
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
