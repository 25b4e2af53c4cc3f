#include "harness/gdn_operands.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "harness/rounding.h"

namespace cubinery {
namespace {

constexpr std::int64_t kLeastL2Bytes = 60'000'000;
constexpr std::int64_t kRowsOfChannels = 61;  // of a pattern; likewise prime

std::vector<float> pattern_of(const GdnTensorInfo& info, const GdnProblem& problem,
                              const DataOptions& options) {
  const auto draw = [&](std::int64_t h, std::int64_t rows) {
    return info.draw({problem, options, /*n=*/0, h, rows});
  };
  if (info.kind == GdnKind::kColumns || info.kind == GdnKind::kTaps) return draw(0, 1);
  const bool has_channels = info.kind == GdnKind::kChannels || info.kind == GdnKind::kConvStates;
  if (has_channels) return draw(0, kRowsOfChannels);
  const bool by_head = info.kind == GdnKind::kScalars || info.kind == GdnKind::kHeads;
  if (!by_head) return draw(0, GdnPatterns::kRows);
  const std::size_t rows = info.kind == GdnKind::kHeads ? 1 : GdnPatterns::kRows;
  const std::size_t heads = idx(problem.heads.count());
  std::vector<float> numbers(rows * heads);
  for (std::size_t h = 0; h < heads; ++h) {
    const std::vector<float> drawn = draw(static_cast<std::int64_t>(h), rows);
    for (std::size_t r = 0; r < rows; ++r) numbers[r * heads + h] = drawn[r];
  }
  return numbers;
}

}  // namespace

int rotation(std::size_t bytes_per_set, std::int64_t l2_bytes) {
  const std::size_t cold = 4 * idx(std::max(l2_bytes, kLeastL2Bytes));
  return static_cast<int>(
      std::max<std::size_t>(3, cold / std::max<std::size_t>(1, bytes_per_set) + 1));
}

GdnPatterns::GdnPatterns(const GdnProblem& problem, const DataOptions& options) {
  for (const GdnTensorInfo& info : kTensors) {
    const Tensor tensor = info.form(problem, {});
    if (info.draw == nullptr || !tensor.present()) continue;
    patterns_[static_cast<std::size_t>(info.tensor)] =
        to_bytes(tensor.dtype, pattern_of(info, problem, options));
  }
  for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
    const std::vector<float> gates =
        draw_gates({problem, options, /*n=*/0, h, kRows}, &GateSource::next_gate);
    decay_.push_back(std::accumulate(gates.begin(), gates.end(), 0.0, std::minus<>()));
  }
}

GdnOperands::GdnOperands(const GdnProblem& problem, Options options)
    : problem_(problem),
      options_(std::move(options)),
      extent_{.lengths = options_.lengths},
      patterns_(problem, options_.data) {
  extent_.separate_out =
      options_.separate_out && problem.states.has_initial && problem.states.store;
  for (const std::int64_t length : extent_.lengths) {
    extent_.checkpoints += checkpoints_of(problem, length);
  }
  extent_.parents = options_.parents;
  const std::int64_t sequences = extent_.sequences();
  const bool pool = problem.states.location == gdn::StateLocation::kPool;
  extent_.slots = sequences;
  std::size_t bytes = 0;  // of a set
  tensors_ = tensors_of(problem, extent_);
  for (const GdnTensorInfo& info : kTensors) bytes += bytes_of(info.in(tensors_));
  sets_ = rotation(bytes, options_.l2_bytes);
  // Slot 0 is nobody's: it may mean padding.
  if (pool) extent_.slots = sequences * sets_ + 1;
  tensors_ = tensors_of(problem, extent_);
  Random random(options_.data.seed, static_cast<std::uint64_t>(DataStream::kIndices));
  const std::vector<std::int64_t> order = random.permutation(1, sequences * sets_);
  for (std::int64_t set = 0; set < sets_; ++set) {
    std::vector<std::int64_t>& slots = slots_.emplace_back();
    for (std::int64_t n = 0; n < sequences; ++n) {
      slots.push_back(pool ? order[idx(set * sequences + n)] : n);
    }
  }
}

Result<GdnOperands> GdnOperands::create(const std::shared_ptr<const Device>& device,
                                        const GdnProblem& problem, Options options) {
  GdnOperands operands(problem, std::move(options));
  CUBINERY_RETURN_IF_ERROR(operands.allocate(device));
  CUBINERY_RETURN_IF_ERROR(operands.fill());
  CUBINERY_RETURN_IF_ERROR(operands.fill_bounds());
  CUBINERY_RETURN_IF_ERROR(operands.fill_indices());
  CUBINERY_RETURN_IF_ERROR(operands.fill_parents());
  return operands;
}

Status GdnOperands::allocate(const std::shared_ptr<const Device>& device) {
  const auto allocate = [&](std::size_t bytes, bool shared, Column* column) -> Status {
    column->stride = shared ? 0 : aligned(bytes);
    const std::size_t all = shared ? bytes : column->stride * idx(sets_);
    if (all == 0) return {};
    Result<DeviceMemory> memory = DeviceMemory::allocate(device, all);
    if (!memory) return std::move(memory).error();
    column->memory = std::move(*memory);
    return {};
  };
  const bool pool = problem_.states.location == gdn::StateLocation::kPool;
  for (const GdnTensorInfo& info : kTensors) {
    const bool is_state = info.kind == GdnKind::kStates || info.kind == GdnKind::kConvStates;
    const bool shared = (pool && is_state) || info.kind == GdnKind::kBounds ||
                        info.kind == GdnKind::kHeads || info.kind == GdnKind::kColumns ||
                        info.kind == GdnKind::kParents;
    Column& column = columns_.emplace_back();
    CUBINERY_RETURN_IF_ERROR(allocate(bytes_of(info.in(tensors_)), shared, &column));
  }
  return allocate(options_.workspace_bytes, false, &workspace_);
}

const GdnOperands::Column& GdnOperands::column(GdnTensor tensor) const {
  return columns_[static_cast<std::size_t>(tensor)];
}

Status GdnOperands::fill() const {
  for (const GdnTensorInfo& info : kTensors) {
    const DeviceMemory& memory = column(info.tensor).memory;
    if (info.draw == nullptr || memory.bytes() == 0) continue;
    CUBINERY_RETURN_IF_ERROR(memory.fill(patterns_.of(info.tensor)));
  }
  return {};
}

Status GdnOperands::fill_bounds() const {
  if (!problem_.varlen) return {};
  std::vector<std::int64_t> bounds{0}, checkpoints{0};
  for (const std::int64_t length : extent_.lengths) {
    bounds.push_back(bounds.back() + length);
    checkpoints.push_back(checkpoints.back() + checkpoints_of(problem_, length));
  }
  const DType dtype = problem_.cu_seqlens_dtype;
  CUBINERY_RETURN_IF_ERROR(
      column(GdnTensor::kCuSeqlens).memory.upload(integer_bytes(dtype, bounds)));
  if (problem_.checkpoints == gdn::Checkpoints::kNone) return {};
  return column(GdnTensor::kCheckpointCuStarts).memory.upload(integer_bytes(dtype, checkpoints));
}

Status GdnOperands::fill_indices() {
  const Column& indices = column(GdnTensor::kStateIndices);
  if (indices.memory.bytes() == 0) return {};
  for (std::size_t set = 0; set < slots_.size(); ++set) {
    CUBINERY_RETURN_IF_ERROR(indices.memory.upload(
        integer_bytes(problem_.states.index_dtype, slots_[set]), set * indices.stride));
  }
  return {};
}

Status GdnOperands::fill_parents() const {
  if (!options_.parents || extent_.tokens() == 0) return {};
  std::vector<std::int64_t> parents;
  for (std::int64_t n = 0; n < extent_.sequences(); ++n) {
    const auto drawn = draw_parents(options_.data, n, extent_.lengths[idx(n)]);
    parents.insert(parents.end(), drawn.begin(), drawn.end());
  }
  return column(GdnTensor::kParents).memory.upload(integer_bytes(*options_.parents, parents));
}

gdn::PrefillSize GdnOperands::size() const {
  const std::vector<std::int64_t>& lengths = extent_.lengths;
  const auto longest = std::max_element(lengths.begin(), lengths.end());
  return {.tokens = extent_.tokens(),
          .sequences = extent_.sequences(),
          .max_seqlen = longest == lengths.end() ? 0 : *longest};
}

GdnArgs GdnOperands::args(int set) const {
  GdnArgs args = tensors_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    Tensor& tensor = kTensors[i].in(args);
    if (!tensor.present()) continue;
    tensor.data =
        static_cast<std::byte*>(columns_[i].memory.data()) + idx(set) * columns_[i].stride;
  }
  args.scale = options_.scale;
  if (problem_.varlen) args.max_seqlen = size().max_seqlen;
  return args;
}

Status GdnOperands::download(GdnTensor tensor, int set, std::size_t offset,
                             std::span<std::byte> to) const {
  const Column& from = column(tensor);
  return from.memory.download(to, idx(set) * from.stride + offset);
}

gdn::Workspace GdnOperands::workspace(int set) const {
  if (workspace_.memory.bytes() == 0) return {};
  return {.data = static_cast<std::byte*>(workspace_.memory.data()) + idx(set) * workspace_.stride,
          .bytes = options_.workspace_bytes};
}

}  // namespace cubinery
