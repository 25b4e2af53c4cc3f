#include "tuner/gdn/gdn_operands.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "tuner/gdn/rounding.h"

namespace cubinery {
namespace {

using gdn::PrefillArgs;
using gdn::PrefillProblem;

constexpr std::int64_t kLeastL2Bytes = 60'000'000;

std::vector<std::byte> random_rows(const DataOptions& options, DataStream stream, DType dtype,
                                   int dim, bool raw) {
  RowSource source(options, stream, 0, 0, dim, raw);
  std::vector<float> rows;
  for (std::int64_t r = 0; r < GdnPatterns::kRows; ++r) {
    const std::vector<float>& next = source.next();
    rows.insert(rows.end(), next.begin(), next.end());
  }
  return to_bytes(dtype, rows);
}

std::vector<std::byte> integers(DType dtype, const std::vector<std::int64_t>& values) {
  const std::size_t size = idx(size_of(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_integer(dtype, bytes.data() + i * size, values[i]);
  }
  return bytes;
}

}  // namespace

int rotation(std::size_t bytes_per_set, std::int64_t l2_bytes) {
  const std::size_t cold = 4 * idx(std::max(l2_bytes, kLeastL2Bytes));
  return static_cast<int>(
      std::max<std::size_t>(3, cold / std::max<std::size_t>(1, bytes_per_set) + 1));
}

GdnPatterns::GdnPatterns(const PrefillProblem& p, const DataOptions& options)
    : q(random_rows(options, DataStream::kQ, p.dtype, p.key_dim, p.inputs.use_qk_l2norm)),
      k(random_rows(options, DataStream::kK, p.dtype, p.key_dim, p.inputs.use_qk_l2norm)),
      v(random_rows(options, DataStream::kV, p.dtype, p.value_dim, true)),
      state(random_rows(options, DataStream::kState, p.states.dtype, p.value_dim, true)),
      decay(idx(p.heads.count())) {
  const std::size_t heads = decay.size();
  std::vector<float> gates(idx(kRows) * heads), betas(gates.size());
  std::vector<float> a_log, bias;
  for (std::size_t h = 0; h < heads; ++h) {
    GateSource source(p.inputs.gate_mode, p.inputs.beta_mode, options, 0,
                      static_cast<std::int64_t>(h));
    a_log.push_back(source.a_log());
    bias.push_back(source.dt_bias());
    for (std::size_t at = h; at < gates.size(); at += heads) {
      gates[at] = source.next_gate();
      betas[at] = source.next_beta();
      decay[h] -= gates[at];
    }
  }
  if (p.inputs.gate_mode != gdn::GateMode::kNone) g = to_bytes(p.inputs.gate_dtype, gates);
  if (p.inputs.beta_mode != gdn::BetaMode::kOne) beta = to_bytes(p.inputs.beta_dtype, betas);
  if (p.inputs.gate_mode != gdn::GateMode::kComputed) return;
  A_log = to_bytes(p.inputs.a_log_dtype, a_log);
  dt_bias = to_bytes(p.inputs.dt_bias_dtype, bias);
}

GdnOperands::GdnOperands(const PrefillProblem& problem, Options options)
    : problem_(problem),
      options_(std::move(options)),
      extent_{.lengths = options_.lengths},
      patterns_(problem, options_.data) {
  extent_.separate_out =
      options_.separate_out && problem.states.has_initial && problem.states.store;
  for (const std::int64_t length : extent_.lengths) {
    extent_.checkpoints += checkpoints_of(problem, length);
  }
  const std::int64_t sequences = extent_.sequences();
  const bool pool = problem.states.location == gdn::StateLocation::kPool;
  extent_.slots = sequences;
  std::size_t bytes = 0;  // of a set
  tensors_ = tensors_of(problem, extent_);
  for (const auto& [name, tensor] : kTensors) bytes += bytes_of(tensor_of(tensors_, tensor));
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
                                        const PrefillProblem& problem, Options options) {
  GdnOperands operands(problem, std::move(options));
  CUBINERY_RETURN_IF_ERROR(operands.allocate(device));
  CUBINERY_RETURN_IF_ERROR(operands.fill());
  CUBINERY_RETURN_IF_ERROR(operands.fill_bounds());
  CUBINERY_RETURN_IF_ERROR(operands.fill_indices());
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
  for (const auto& [name, tensor] : kTensors) {
    const bool state = tensor == GdnTensor::kState || tensor == GdnTensor::kStateOut;
    const bool shared = (pool && state) || tensor == GdnTensor::kCuSeqlens ||
                        tensor == GdnTensor::kCheckpointCuStarts || tensor == GdnTensor::kALog ||
                        tensor == GdnTensor::kDtBias;
    Column& column = columns_.emplace_back();
    CUBINERY_RETURN_IF_ERROR(allocate(bytes_of(tensor_of(tensors_, tensor)), shared, &column));
  }
  return allocate(options_.workspace_bytes, false, &workspace_);
}

const GdnOperands::Column& GdnOperands::column(GdnTensor tensor) const {
  return columns_[static_cast<std::size_t>(tensor)];
}

Status GdnOperands::fill() const {
  const std::pair<GdnTensor, const std::vector<std::byte>*> patterns[] = {
      {GdnTensor::kQ, &patterns_.q},
      {GdnTensor::kK, &patterns_.k},
      {GdnTensor::kV, &patterns_.v},
      {GdnTensor::kG, &patterns_.g},
      {GdnTensor::kBeta, &patterns_.beta},
      {GdnTensor::kALog, &patterns_.A_log},
      {GdnTensor::kDtBias, &patterns_.dt_bias},
      {GdnTensor::kState, &patterns_.state}};
  for (const auto& [tensor, pattern] : patterns) {
    const DeviceMemory& memory = column(tensor).memory;
    if (memory.bytes() == 0) continue;
    CUBINERY_RETURN_IF_ERROR(memory.fill(*pattern));
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
  CUBINERY_RETURN_IF_ERROR(column(GdnTensor::kCuSeqlens).memory.upload(integers(dtype, bounds)));
  if (problem_.checkpoints == gdn::Checkpoints::kNone) return {};
  return column(GdnTensor::kCheckpointCuStarts).memory.upload(integers(dtype, checkpoints));
}

Status GdnOperands::fill_indices() {
  const Column& indices = column(GdnTensor::kStateIndices);
  if (indices.memory.bytes() == 0) return {};
  for (std::size_t set = 0; set < slots_.size(); ++set) {
    CUBINERY_RETURN_IF_ERROR(indices.memory.upload(
        integers(problem_.states.index_dtype, slots_[set]), set * indices.stride));
  }
  return {};
}

gdn::PrefillSize GdnOperands::size() const {
  const std::vector<std::int64_t>& lengths = extent_.lengths;
  const auto longest = std::max_element(lengths.begin(), lengths.end());
  return {.tokens = extent_.tokens(),
          .sequences = extent_.sequences(),
          .max_seqlen = longest == lengths.end() ? 0 : *longest};
}

PrefillArgs GdnOperands::args(int set) const {
  PrefillArgs args = tensors_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    Tensor& tensor = tensor_of(args, kTensors[i].tensor);
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
