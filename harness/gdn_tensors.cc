#include "harness/gdn_tensors.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery {
namespace {

// Of each batch of the tensors.
std::int64_t tokens_of(const GdnProblem& p, const GdnExtent& extent) {
  if (p.varlen) return extent.tokens() + extent.spare_tokens;
  return extent.lengths.empty() ? 0 : extent.lengths.front();
}

}  // namespace

Tensor token_tensor(const GdnProblem& p, const GdnExtent& extent, DType dtype, int heads, int dim) {
  const bool heads_first = p.token_layout == gdn::TokenLayout::kBHTD;
  const std::int64_t tokens = tokens_of(p, extent);
  std::vector<std::int64_t> shape;
  if (!p.varlen) shape.push_back(extent.sequences());
  shape.push_back(heads_first ? heads : tokens);
  shape.push_back(heads_first ? tokens : heads);
  if (dim != 0) shape.push_back(dim);
  Tensor tensor{.dtype = dtype, .rank = static_cast<int>(shape.size())};
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    tensor.shape[d] = shape[d];
    tensor.strides[d] = stride;
    stride *= shape[d];
  }
  return tensor;
}

Tensor operand_tensor(const GdnProblem& p, const GdnExtent& extent, int heads, int dim) {
  return p.conv.is_there() ? Tensor{} : token_tensor(p, extent, p.dtype, heads, dim);
}

Tensor vector_tensor(DType dtype, std::int64_t count) {
  return Tensor::contiguous(nullptr, dtype, {count});
}

Tensor parents_tensor(const GdnProblem& p, const GdnExtent& extent) {
  const std::int64_t tokens = tokens_of(p, extent);
  if (p.varlen) return vector_tensor(*extent.parents, tokens);
  return Tensor::contiguous(nullptr, *extent.parents, {extent.sequences(), tokens});
}

Tensor matrix_tensor(const GdnProblem& p, std::int64_t rows) {
  const bool kv = p.states.layout == gdn::StateLayout::kKV;
  return Tensor::contiguous(
      nullptr, p.states.dtype,
      {rows, p.heads.count(), kv ? p.key_dim : p.value_dim, kv ? p.value_dim : p.key_dim});
}

Tensor state_tensor(const GdnProblem& p, const GdnExtent& extent) {
  const bool pool = p.states.location == gdn::StateLocation::kPool;
  return matrix_tensor(p, pool ? extent.slots : extent.sequences());
}

int conv_columns(const GdnProblem& p) { return p.conv.width - (p.conv.whole_window ? 0 : 1); }

Tensor conv_state_tensor(const GdnProblem& p, const GdnExtent& extent) {
  const bool pool = p.states.location == gdn::StateLocation::kPool;
  const std::int64_t rows = pool ? extent.slots : extent.sequences();
  const std::int64_t channels = conv_split(p).end, columns = conv_columns(p);
  if (p.conv.state_layout == gdn::ConvStateLayout::kColumns) {
    return Tensor::contiguous(nullptr, p.conv.state_dtype, {rows, channels, columns});
  }
  Tensor tensor = Tensor::contiguous(nullptr, p.conv.state_dtype, {rows, columns, channels});
  std::swap(tensor.shape[1], tensor.shape[2]);
  std::swap(tensor.strides[1], tensor.strides[2]);
  return tensor;
}

std::vector<float> draw_rows(const GdnDraw& draw, DataStream stream, std::int64_t dim, bool raw) {
  RowSource source(draw.data, stream, draw.n, draw.h, dim, raw);
  std::vector<float> numbers;
  numbers.reserve(idx(draw.rows * dim));
  for (std::int64_t r = 0; r < draw.rows; ++r) {
    const std::vector<float>& row = source.next();
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  return numbers;
}

std::vector<float> draw_taps(const GdnDraw& draw, DataStream stream, int count) {
  const std::int64_t all = conv_split(draw.problem).end * count;
  std::vector<float> taps = draw_rows(draw, stream, all, /*raw=*/true);
  for (float& tap : taps) tap *= 0.5f;
  return taps;
}

// Half of the tokens go on from the one in front of them, so that there are long paths.
std::vector<std::int64_t> draw_parents(const DataOptions& data, std::int64_t n,
                                       std::int64_t tokens) {
  Random random = random_of(data.seed, DataStream::kParents, n, 0);
  std::vector<std::int64_t> parents;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool follows = random.uniform() < 0.5;
    const double any = std::floor(random.uniform(-1, static_cast<double>(t)));
    parents.push_back(follows ? t - 1 : static_cast<std::int64_t>(any));
  }
  return parents;
}

std::int64_t GdnExtent::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

GdnArgs tensors_of(const GdnProblem& problem, const GdnExtent& extent) {
  GdnArgs args;
  for (const GdnTensorInfo& info : kTensors) info.in(args) = info.form(problem, extent);
  return args;
}

std::int64_t elements_of(const Tensor& tensor) {
  if (tensor.rank == 0) return 0;
  return std::accumulate(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, std::int64_t{1},
                         std::multiplies<>());
}

std::size_t bytes_of(const Tensor& tensor) {
  return idx(elements_of(tensor)) * idx(size_of(tensor.dtype));
}

std::int64_t checkpoints_of(const GdnProblem& problem, std::int64_t tokens) {
  return gdn::checkpoints_of(problem, tokens);
}

std::int64_t least_bytes(const GdnProblem& problem, const GdnExtent& extent) {
  const int passes = (problem.states.has_initial ? 1 : 0) + (problem.states.store ? 1 : 0);
  std::size_t bytes = idx(passes) * bytes_of(matrix_tensor(problem, extent.sequences()));
  if (problem.conv.is_there()) {
    const std::int64_t inputs = conv_split(problem).end * conv_columns(problem);
    bytes += idx(passes * extent.sequences() * inputs * size_of(problem.conv.state_dtype));
  }
  for (const GdnTensorInfo& info : kTensors) {
    const bool counts = is_of_tokens(info.kind) || info.kind == GdnKind::kIndices ||
                        info.kind == GdnKind::kCheckpoints || info.kind == GdnKind::kParents ||
                        info.kind == GdnKind::kTaps;
    if (counts) bytes += bytes_of(info.form(problem, extent));
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace cubinery
