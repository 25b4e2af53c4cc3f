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
    : q(random_rows(options, DataStream::kQ, p.dtype, p.key_dim, p.use_qk_l2norm)),
      k(random_rows(options, DataStream::kK, p.dtype, p.key_dim, p.use_qk_l2norm)),
      v(random_rows(options, DataStream::kV, p.dtype, p.value_dim, true)),
      state(random_rows(options, DataStream::kState, p.state_dtype, p.value_dim, true)),
      decay(idx(p.heads())) {
  const std::size_t heads = decay.size();
  std::vector<float> gates(idx(kRows) * heads), betas(gates.size());
  std::vector<float> a_log, bias;
  for (std::size_t h = 0; h < heads; ++h) {
    GateSource source(p.gate_mode, p.beta_mode, options, 0, static_cast<std::int64_t>(h));
    a_log.push_back(source.a_log());
    bias.push_back(source.dt_bias());
    for (std::size_t at = h; at < gates.size(); at += heads) {
      gates[at] = source.next_gate();
      betas[at] = source.next_beta();
      decay[h] -= gates[at];
    }
  }
  if (p.gate_mode != gdn::GateMode::kNone) g = to_bytes(p.gate_dtype, gates);
  if (p.beta_mode != gdn::BetaMode::kOne) beta = to_bytes(p.beta_dtype, betas);
  if (p.gate_mode != gdn::GateMode::kComputed) return;
  A_log = to_bytes(p.a_log_dtype, a_log);
  dt_bias = to_bytes(p.dt_bias_dtype, bias);
}

GdnOperands::GdnOperands(const PrefillProblem& problem, Options options)
    : problem_(problem),
      options_(std::move(options)),
      extent_{.lengths = options_.lengths},
      patterns_(problem, options_.data) {
  extent_.separate_out = options_.separate_out && problem.has_initial_state && problem.store_state;
  for (const std::int64_t length : extent_.lengths) {
    extent_.checkpoints += checkpoints_of(problem, length);
  }
  const std::int64_t sequences = extent_.sequences();
  const bool pool = problem.state_location == gdn::StateLocation::kPool;
  extent_.slots = sequences;
  std::size_t bytes = 0;  // of a set
  tensors_ = tensors_of(problem, extent_);
  for (const auto& [name, member] : kTensors) bytes += bytes_of(tensors_.*member);
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
  const bool pool = problem_.state_location == gdn::StateLocation::kPool;
  for (const auto& [name, member] : kTensors) {
    const bool state = member == &PrefillArgs::state || member == &PrefillArgs::state_out;
    const bool shared = (pool && state) || member == &PrefillArgs::cu_seqlens ||
                        member == &PrefillArgs::checkpoint_cu_starts ||
                        member == &PrefillArgs::A_log || member == &PrefillArgs::dt_bias;
    Column& column = columns_.emplace_back();
    CUBINERY_RETURN_IF_ERROR(allocate(bytes_of(tensors_.*member), shared, &column));
  }
  return allocate(options_.workspace_bytes, false, &workspace_);
}

const GdnOperands::Column& GdnOperands::column(Tensor PrefillArgs::*member) const {
  const auto at = std::find_if(std::begin(kTensors), std::end(kTensors),
                               [&](const TensorMember& tensor) { return tensor.member == member; });
  return columns_[idx(at - std::begin(kTensors))];
}

Status GdnOperands::fill() const {
  const std::pair<Tensor PrefillArgs::*, const std::vector<std::byte>*> patterns[] = {
      {&PrefillArgs::q, &patterns_.q},
      {&PrefillArgs::k, &patterns_.k},
      {&PrefillArgs::v, &patterns_.v},
      {&PrefillArgs::g, &patterns_.g},
      {&PrefillArgs::beta, &patterns_.beta},
      {&PrefillArgs::A_log, &patterns_.A_log},
      {&PrefillArgs::dt_bias, &patterns_.dt_bias},
      {&PrefillArgs::state, &patterns_.state}};
  for (const auto& [member, pattern] : patterns) {
    const DeviceMemory& memory = column(member).memory;
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
  CUBINERY_RETURN_IF_ERROR(column(&PrefillArgs::cu_seqlens).memory.upload(integers(dtype, bounds)));
  if (problem_.checkpoints == gdn::Checkpoints::kNone) return {};
  return column(&PrefillArgs::checkpoint_cu_starts).memory.upload(integers(dtype, checkpoints));
}

Status GdnOperands::fill_indices() {
  const Column& indices = column(&PrefillArgs::state_indices);
  if (indices.memory.bytes() == 0) return {};
  for (std::size_t set = 0; set < slots_.size(); ++set) {
    CUBINERY_RETURN_IF_ERROR(
        indices.memory.upload(integers(problem_.index_dtype, slots_[set]), set * indices.stride));
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
    Tensor& tensor = args.*kTensors[i].member;
    if (!tensor.present()) continue;
    tensor.data =
        static_cast<std::byte*>(columns_[i].memory.data()) + idx(set) * columns_[i].stride;
  }
  args.scale = options_.scale;
  if (problem_.varlen) args.max_seqlen = size().max_seqlen;
  return args;
}

Status GdnOperands::download(Tensor PrefillArgs::*member, int set, std::size_t offset,
                             std::span<std::byte> to) const {
  const Column& from = column(member);
  return from.memory.download(to, idx(set) * from.stride + offset);
}

gdn::Workspace GdnOperands::workspace(int set) const {
  if (workspace_.memory.bytes() == 0) return {};
  return {.data = static_cast<std::byte*>(workspace_.memory.data()) + idx(set) * workspace_.stride,
          .bytes = options_.workspace_bytes};
}

}  // namespace cubinery
