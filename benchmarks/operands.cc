#include "benchmarks/operands.h"

#include <utility>

#include "harness/rounding.h"

namespace cubinery::bench {

GdnOperands make_operands(const Gpu& gpu, const GdnProblem& problem, GdnOperands::Options options) {
  options.l2_bytes = gpu_identity(gpu.context()).value().l2_bytes;
  return GdnOperands::create(gpu.device(), problem, std::move(options)).value();
}

std::vector<double> values(const GdnOperands& operands, GdnTensor tensor, std::int64_t first,
                           std::int64_t count) {
  const DType dtype = tensor_of(operands.args(0), tensor).dtype;
  const std::size_t size = idx(size_of(dtype));
  std::vector<std::byte> bytes(idx(count) * size);
  operands.download(tensor, 0, idx(first) * size, bytes).value();
  return from_bytes(dtype, bytes);
}

}  // namespace cubinery::bench
