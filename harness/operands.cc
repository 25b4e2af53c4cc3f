#include "harness/operands.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "harness/draw.h"
#include "harness/rounding.h"

namespace cubinery {
namespace {

constexpr std::int64_t kLeastL2Bytes = 60'000'000;
constexpr std::int64_t kRowsOfChannels = 61;  // of a pattern; likewise prime
constexpr std::int64_t kConvNumbers = 1'000'003;

std::vector<float> pattern_of(const TensorInfo& info, const GdnProblem& problem,
                              const DataOptions& options) {
  const auto draw = [&](std::int64_t h, std::int64_t rows) {
    return drawn({problem, options, /*n=*/0, h, rows}, info.id);
  };
  if (info.kind == TensorKind::kColumns || info.kind == TensorKind::kTaps) return draw(0, 1);
  const bool has_channels =
      info.kind == TensorKind::kChannels || info.kind == TensorKind::kConvStates;
  if (has_channels) return draw(0, kRowsOfChannels);
  const bool by_head = info.kind == TensorKind::kScalars || info.kind == TensorKind::kHeads;
  if (!by_head) return draw(0, GdnPatterns::kRows);
  const std::int64_t rows = info.kind == TensorKind::kHeads ? 1 : GdnPatterns::kRows;
  const std::size_t heads = idx(problem.heads.count());
  std::vector<float> numbers;
  for (std::size_t h = 0; h < heads; ++h) {
    const std::vector<float> drawn = draw(static_cast<std::int64_t>(h), rows);
    const std::size_t width = drawn.size() / idx(rows);
    numbers.resize(drawn.size() * heads);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      numbers[(i / width * heads + h) * width + i % width] = drawn[i];
    }
  }
  return numbers;
}

// Whether all sets have one.
template <class Problem>
bool is_shared(const Problem& problem, TensorKind kind) {
  switch (kind) {
    case TensorKind::kStates:
    case TensorKind::kConvStates:
      return problem.states.location == gdn::StateLocation::kPool;
    case TensorKind::kBounds:
    case TensorKind::kHeads:
    case TensorKind::kColumns:
    case TensorKind::kParents:
    case TensorKind::kPlaces:
      return true;
    default:
      return false;
  }
}

bool is_integral(TensorKind kind) {
  return kind == TensorKind::kBounds || kind == TensorKind::kIndices ||
         kind == TensorKind::kCounts || kind == TensorKind::kParents || kind == TensorKind::kPlaces;
}

GdnProblem with_options(GdnProblem problem, const OperandOptions& options) {
  problem.tree = options.parents.has_value();
  problem.parents_dtype = options.parents.value_or(problem.parents_dtype);
  return problem;
}
gdn::ConvProblem with_options(const gdn::ConvProblem& problem, const OperandOptions&) {
  return problem;
}

std::vector<std::byte> bytes_for(const GdnPatterns& patterns, TensorId id, const Tensor&) {
  return patterns.of(id);
}
std::vector<std::byte> bytes_for(const ConvPatterns& patterns, TensorId id, const Tensor& tensor) {
  return patterns.of(id, tensor);
}

Random slot_random(const GdnProblem&, std::uint64_t seed) {
  return Random(seed, static_cast<std::uint64_t>(DataStream::kIndices));
}
Random slot_random(const gdn::ConvProblem&, std::uint64_t seed) { return conv_slot_random(seed); }

}  // namespace

int rotation(std::size_t bytes_per_set, std::int64_t l2_bytes) {
  const std::size_t cold = 4 * idx(std::max(l2_bytes, kLeastL2Bytes));
  return static_cast<int>(
      std::max<std::size_t>(3, cold / std::max<std::size_t>(1, bytes_per_set) + 1));
}

GdnPatterns::GdnPatterns(const GdnProblem& problem, const DataOptions& options) {
  const TensorSet tensors = tensors_of(problem, {});
  for (const TensorInfo& info : kTensors) {
    if (!is_drawn(info.id) || !tensors.has(info.id)) continue;
    patterns_[index_of(info.id)] =
        to_bytes(tensors[info.id].dtype, pattern_of(info, problem, options));
  }
  for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
    const std::vector<float> gates = drawn_gates({problem, options, /*n=*/0, h, kRows});
    decay_.push_back(std::accumulate(gates.begin(), gates.end(), 0.0, std::minus<>()));
  }
}

std::vector<std::byte> ConvPatterns::of(TensorId id, const Tensor& tensor) const {
  if (!is_conv_drawn(id)) return {};
  Random random = conv_random(seed_, id);
  std::vector<float> numbers(idx(std::min(elements_of(tensor), kConvNumbers)));
  for (float& number : numbers) number = draw_conv(id, random);
  return to_bytes(tensor.dtype, numbers);
}

template <class Problem>
Operands<Problem>::Operands(const Problem& problem, Options options)
    : problem_(with_options(problem, options)),
      options_(std::move(options)),
      extent_(completed(problem_, {.lengths = options_.lengths, .channels = options_.channels})),
      patterns_(problem_, options_.data) {
  extent_.separate_out =
      options_.separate_out && problem.states.has_initial && problem.states.store;
  extent_.slots = extent_.sequences();
  tensors_ = tensors_of(problem_, extent_);
  sets_ = rotation(tensors_.bytes(), options_.l2_bytes);
  // Each index names a slot of its own.
  const bool pool = problem.states.location == gdn::StateLocation::kPool;
  const std::int64_t each = pool ? elements_of(tensors_[TensorId::kStateIndices]) +
                                       elements_of(tensors_[TensorId::kStateOutIndices])
                                 : extent_.sequences();
  // Slot 0 is nobody's: it may mean padding.
  extent_.slots = each * sets_ + 1;
  tensors_ = tensors_of(problem_, extent_);
  draw_slots(each);
}

template <class Problem>
void Operands<Problem>::draw_slots(std::int64_t each) {
  const bool pool = problem_.states.location == gdn::StateLocation::kPool;
  Random random = slot_random(problem_, options_.data.seed);
  const std::vector<std::int64_t> order = random.permutation(1, each * sets_);
  for (std::int64_t set = 0; set < sets_; ++set) {
    std::vector<std::int64_t>& slots = slots_.emplace_back();
    for (std::int64_t n = 0; n < each; ++n) {
      slots.push_back(pool ? order[idx(set * each + n)] : n);
    }
  }
}

template <class Problem>
Result<Operands<Problem>> Operands<Problem>::create(const std::shared_ptr<const Device>& device,
                                                    const Problem& problem, Options options) {
  Operands operands(problem, std::move(options));
  CUBINERY_RETURN_IF_ERROR(operands.allocate(device));
  for (const TensorInfo& info : operands.tensors_.list) {
    CUBINERY_RETURN_IF_ERROR(operands.fill(info));
  }
  return operands;
}

template <class Problem>
Status Operands<Problem>::allocate(const std::shared_ptr<const Device>& device) {
  const auto allocate = [&](std::size_t bytes, bool shared, Column* column) -> Status {
    column->stride = shared ? 0 : aligned(bytes);
    const std::size_t all = shared ? bytes : column->stride * idx(sets_);
    if (all == 0) return {};
    Result<DeviceMemory> memory = DeviceMemory::allocate(device, all);
    if (!memory) return std::move(memory).error();
    column->memory = std::move(*memory);
    return {};
  };
  for (const TensorInfo& info : tensors_.list) {
    CUBINERY_RETURN_IF_ERROR(allocate(bytes_of(tensors_[info.id]), is_shared(problem_, info.kind),
                                      &columns_[index_of(info.id)]));
  }
  return allocate(options_.workspace_bytes, false, &workspace_);
}

template <class Problem>
Status Operands<Problem>::fill(const TensorInfo& info) const {
  const Tensor& tensor = tensors_[info.id];
  const Column& column = this->column(info.id);
  if (column.memory.bytes() == 0) return {};
  if (!is_integral(info.kind)) {
    const std::vector<std::byte> pattern = bytes_for(patterns_, info.id, tensor);
    return pattern.empty() ? Status() : column.memory.fill(pattern);
  }
  for (int set = 0; set < (column.stride == 0 ? 1 : sets_); ++set) {
    CUBINERY_RETURN_IF_ERROR(column.memory.upload(integer_bytes(tensor.dtype, integers(info, set)),
                                                  idx(set) * column.stride));
  }
  return {};
}

// Where the sequences' tokens or checkpoints begin, and where all end.
template <class Problem>
std::vector<std::int64_t> Operands<Problem>::bounds(TensorId id) const {
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t length : extent_.lengths) {
    const bool of_tokens = id == TensorId::kCuSeqlens;
    bounds.push_back(bounds.back() + (of_tokens ? length : checkpoints_of(problem_, length)));
  }
  return bounds;
}

// What a tensor of integers holds.
template <class Problem>
std::vector<std::int64_t> Operands<Problem>::integers(const TensorInfo& info, int set) const {
  if (info.kind == TensorKind::kBounds) return bounds(info.id);
  if (info.kind == TensorKind::kIndices) {
    const bool read = info.id == TensorId::kStateIndices;
    const std::int64_t skipped = read ? 0 : elements_of(tensors_[TensorId::kStateIndices]);
    const auto own = slots(set).begin() + skipped;
    return {own, own + elements_of(tensors_[info.id])};
  }
  std::vector<std::int64_t> values;
  if (info.kind == TensorKind::kPlaces) {
    // The last that a sequence can have, in rows one behind the other.
    for (std::int64_t i = 0; i < elements_of(tensors_[info.id]); ++i) {
      const std::int64_t length = extent_.lengths[idx(i / extent_.offsets)];
      const bool is_row = info.id == TensorId::kCheckpointSlots;
      values.push_back(is_row ? i : length / offset_grain(problem_) * offset_grain(problem_));
    }
    return values;
  }
  if (info.kind == TensorKind::kParents) {
    for (std::int64_t n = 0; n < extent_.sequences(); ++n) {
      const auto drawn = draw_parents(options_.data, n, extent_.lengths[idx(n)]);
      values.insert(values.end(), drawn.begin(), drawn.end());
    }
    return values;
  }
  if constexpr (kIsConv) {
    Random random = conv_random(options_.data.seed + idx(set), info.id);
    const std::int64_t most =
        stores_every(problem_) ? extent_.steps : extent_.columns - problem_.width + 2;
    for (std::int64_t n = 0; n < extent_.sequences(); ++n) values.push_back(random.below(most) + 1);
  }
  return values;
}

template <class Problem>
typename Operands<Problem>::Size Operands<Problem>::size() const {
  const std::int64_t tokens = extent_.tokens(), sequences = extent_.sequences();
  if constexpr (kIsConv) {
    return {.sequences = sequences, .tokens = tokens, .channels = extent_.channels};
  } else {
    const auto longest = std::max_element(extent_.lengths.begin(), extent_.lengths.end());
    return {.tokens = tokens,
            .sequences = sequences,
            .max_seqlen = longest == extent_.lengths.end() ? 0 : *longest};
  }
}

template <class Problem>
typename Operands<Problem>::Args Operands<Problem>::args(int set) const {
  TensorSet tensors = tensors_;
  for (const TensorInfo& info : tensors.list) {
    const Column& column = this->column(info.id);
    if (!tensors.has(info.id) || column.memory.bytes() == 0) continue;
    tensors[info.id].data =
        static_cast<std::byte*>(column.memory.data()) + idx(set) * column.stride;
  }
  Args args = args_of<Args>(tensors);
  // As engines pad, though no index here is.
  if (problem_.states.location == gdn::StateLocation::kPool) args.pad_slot_id = -1;
  if (problem_.inputs.gate_mode == gdn::GateMode::kLowerBound) args.lower_bound = kLowerBound;
  if constexpr (kIsConv) {
    args.scale = options_.scale.value_or(1);
  } else {
    args.scale = options_.scale;
    if (problem_.varlen) args.max_seqlen = size().max_seqlen;
  }
  return args;
}

template <class Problem>
Status Operands<Problem>::download(TensorId tensor, int set, std::size_t offset,
                                   std::span<std::byte> to) const {
  const Column& from = column(tensor);
  return from.memory.download(to, idx(set) * from.stride + offset);
}

template <class Problem>
gdn::Workspace Operands<Problem>::workspace(int set) const {
  if (workspace_.memory.bytes() == 0) return {};
  return {.data = static_cast<std::byte*>(workspace_.memory.data()) + idx(set) * workspace_.stride,
          .bytes = options_.workspace_bytes};
}

template class Operands<GdnProblem>;
template class Operands<gdn::ConvProblem>;

}  // namespace cubinery
