#include "benchmarks/operands.h"

#include "tests/random.h"
#include "tests/rounding.h"

namespace cubinery::bench {

std::vector<std::byte> to_bytes(DType dtype, std::span<const float> values) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    test::store(dtype, bytes.data() + i * size, values[i]);
  }
  return bytes;
}

std::vector<double> from_bytes(DType dtype, std::span<const std::byte> bytes) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = test::load(dtype, bytes.data() + i * size);
  }
  return values;
}

std::vector<std::byte> normal_bytes(DType dtype, std::size_t count, std::uint64_t stream) {
  test::Random random(1, stream);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return to_bytes(dtype, values);
}

std::vector<double> values(DType dtype, const DeviceBuffer& buffer, std::int64_t first,
                           std::int64_t count) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  return from_bytes(dtype, buffer.download(idx(first) * size, idx(count) * size));
}

DeviceBuffer upload(const Gpu& gpu, const std::vector<std::byte>& bytes) {
  DeviceBuffer buffer(gpu, bytes.size());
  buffer.upload(bytes);
  return buffer;
}

}  // namespace cubinery::bench
