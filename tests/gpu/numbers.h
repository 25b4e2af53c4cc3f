// Integers on the device: counts, indices, bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "harness/rounding.h"
#include "tests/gpu/gpu_test.h"

namespace cubinery::test {

// A tensor on the device with these numbers.
class Numbers {
 public:
  Numbers(DType dtype, std::initializer_list<std::int64_t> shape,
          const std::vector<std::int64_t>& numbers)
      : buffer_(gpu(), numbers.size() * idx(size_of(dtype))),
        tensor_(Tensor::contiguous(buffer_.data(), dtype, shape)) {
    set(numbers);
  }
  void set(const std::vector<std::int64_t>& numbers) const {
    std::vector<std::byte> bytes(buffer_.bytes());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      store_integer(tensor_.dtype, bytes.data() + i * idx(size_of(tensor_.dtype)), numbers[i]);
    }
    buffer_.upload(bytes);
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  DeviceBuffer buffer_;
  Tensor tensor_;
};

}  // namespace cubinery::test
