#include "benchmarks/operands.h"

#include <utility>

#include "tuner/gdn/random.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::bench {

GdnOperands make_operands(const Gpu& gpu, const gdn::PrefillProblem& problem,
                          GdnOperands::Options options) {
  options.l2_bytes = gpu_identity(gpu.context()).value().l2_bytes;
  return GdnOperands::create(device_of(gpu.context()).value(), problem, std::move(options)).value();
}

std::vector<std::byte> normal_bytes(DType dtype, std::size_t count, std::uint64_t stream) {
  Random random(1, stream);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return to_bytes(dtype, values);
}

std::vector<double> values(DType dtype, const DeviceBuffer& buffer, std::int64_t first,
                           std::int64_t count) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  return from_bytes(dtype, buffer.download(idx(first) * size, idx(count) * size));
}

std::vector<double> values(const GdnOperands& operands, Tensor gdn::PrefillArgs::*member,
                           std::int64_t first, std::int64_t count) {
  const DType dtype = (operands.args(0).*member).dtype;
  const std::size_t size = idx(size_of(dtype));
  std::vector<std::byte> bytes(idx(count) * size);
  operands.download(member, 0, idx(first) * size, bytes).value();
  return from_bytes(dtype, bytes);
}

DeviceBuffer upload(const Gpu& gpu, const std::vector<std::byte>& bytes) {
  DeviceBuffer buffer(gpu, bytes.size());
  buffer.upload(bytes);
  return buffer;
}

}  // namespace cubinery::bench
