// Tensors in memory that host and device share, as examples use them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <vector>

#include "cubinery/tensor.h"

inline void* managed(std::size_t bytes) {
  void* data = nullptr;
  if (cudaMallocManaged(&data, bytes) != cudaSuccess) std::exit(2);
  return data;
}

// Random values of f32, or of bf16.
inline cubinery::Tensor values(cubinery::DType dtype, float mean, float spread,
                               std::initializer_list<std::int64_t> shape) {
  static std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  void* data = managed(static_cast<std::size_t>(count * size_of(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = mean + spread * normal(random);
    const auto high = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    if (dtype == cubinery::DType::kBF16) static_cast<std::uint16_t*>(data)[i] = high;
    if (dtype == cubinery::DType::kF32) static_cast<float*>(data)[i] = x;
  }
  return cubinery::Tensor::contiguous(data, dtype, shape);
}

// Slots, bounds, counts: i32.
inline cubinery::Tensor numbers(const std::vector<std::int32_t>& list,
                                std::initializer_list<std::int64_t> shape) {
  auto* data = static_cast<std::int32_t*>(managed(list.size() * sizeof list[0]));
  std::copy(list.begin(), list.end(), data);
  return cubinery::Tensor::contiguous(data, cubinery::DType::kI32, shape);
}

// Element i of values() without gaps, and `count` of them from there on.
inline double value(const cubinery::Tensor& x, std::int64_t i) {
  if (x.dtype == cubinery::DType::kF32) return static_cast<const float*>(x.data)[i];
  const std::uint32_t high = static_cast<const std::uint16_t*>(x.data)[i];
  return std::bit_cast<float>(high << 16);
}
inline std::vector<double> values(const cubinery::Tensor& x, std::int64_t i, int count) {
  std::vector<double> found;
  while (count-- > 0) found.push_back(value(x, i++));
  return found;
}
