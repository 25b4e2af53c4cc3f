// Operands of the benchmarks: made on the host, compared on the host.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmarks/bench.h"
#include "cubinery/dtype.h"
#include "tuner/gdn/gdn_operands.h"

namespace cubinery::bench {

// The tuner's operands on this device.
GdnOperands make_operands(const Gpu& gpu, const gdn::PrefillProblem& problem,
                          GdnOperands::Options options);

// Random::normal() of that stream, in `dtype`.
std::vector<std::byte> normal_bytes(DType dtype, std::size_t count, std::uint64_t stream);

// `count` elements from element `first` on: of a buffer, of a tensor of set 0.
std::vector<double> values(DType dtype, const DeviceBuffer& buffer, std::int64_t first,
                           std::int64_t count);
std::vector<double> values(const GdnOperands& operands, Tensor gdn::PrefillArgs::*member,
                           std::int64_t first, std::int64_t count);

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
