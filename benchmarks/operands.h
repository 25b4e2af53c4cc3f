// Operands of the benchmarks: made on the host, compared on the host.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "benchmarks/bench.h"
#include "cubinery/dtype.h"

namespace cubinery::bench {

inline std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

// `values` as a tensor of `dtype` holds them, and back.
std::vector<std::byte> to_bytes(DType dtype, std::span<const float> values);
std::vector<double> from_bytes(DType dtype, std::span<const std::byte> bytes);

// Random::normal() of that stream, in `dtype`.
std::vector<std::byte> normal_bytes(DType dtype, std::size_t count, std::uint64_t stream);

// `count` elements of `buffer` from element `first` on.
std::vector<double> values(DType dtype, const DeviceBuffer& buffer, std::int64_t first,
                           std::int64_t count);

DeviceBuffer upload(const Gpu& gpu, const std::vector<std::byte>& bytes);

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Error of many values: root of the sum of squares, relative to that of the expected ones.
class RelativeRms {
 public:
  void add(double actual, double expected) {
    ++count_;
    square_ += (actual - expected) * (actual - expected);
    norm_ += expected * expected;
  }
  bool empty() const { return count_ == 0; }
  double value() const { return std::sqrt(square_ / norm_); }

 private:
  std::int64_t count_ = 0;
  double square_ = 0;
  double norm_ = 0;
};

// Of one launch, against the double reference.
struct Errors {
  RelativeRms o;
  RelativeRms state;  // may be empty
};

}  // namespace cubinery::bench
