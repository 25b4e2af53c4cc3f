// Making and filling the memory of a GdnCase, and finding the way in it.
#include "harness/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "harness/draw.h"
#include "harness/rounding.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

constexpr std::int64_t kSpareSlots = 3;  // of pools

bool writes_elsewhere(const CaseOptions& options) {
  return options.write_indices || !options.write.empty();
}

// Where the checkpoints of each sequence begin, and where all end.
std::vector<std::int64_t> checkpoint_starts(const GdnProblem& problem, const CaseShape& shape,
                                            const CaseOptions& options) {
  const bool keeps_none = options.padding.slot_id && !options.padding.is_computed();
  const std::int64_t spare = problem.varlen ? shape.spare_checkpoints : 0;
  std::vector<std::int64_t> starts{spare};
  for (std::size_t n = 0; n < shape.lengths.size(); ++n) {
    const bool has_room =
        !problem.varlen || !keeps_none || static_cast<std::int64_t>(n) != options.padded;
    const std::int64_t kept = has_room ? checkpoints_of(problem, shape.lengths[n]) : 0;
    starts.push_back(starts.back() + kept + spare);
  }
  return starts;
}

Extent extent_of(const GdnProblem& problem, const CaseShape& shape, const CaseOptions& options) {
  Extent extent{.lengths = shape.lengths};
  const bool pool = problem.states.location == gdn::StateLocation::kPool;
  std::int64_t used = (writes_elsewhere(options) ? 2 : 1) * extent.sequences();
  extent.checkpoints = checkpoint_starts(problem, shape, options).back();
  if (problem.checkpoints == gdn::Checkpoints::kAt) {
    extent.offsets = options.offsets;
    extent.checkpoints = extent.sequences() * options.offsets + kSpareSlots;
    extent.checkpoints_in_pool = options.checkpoints_in_pool;
    if (options.checkpoints_in_pool) used += extent.sequences() * options.offsets;
  }
  extent.slots = options.slots != 0 ? options.slots : used + kSpareSlots;
  extent.separate_out = options.separate_out;
  extent.bare_gates = options.bare_gates;
  extent.write_indices = pool && writes_elsewhere(options);
  extent.spare_tokens = shape.lead + shape.tail;
  extent.has_flags = options.fresh_every != 0 && problem.states.has_initial;
  return extent;
}

// work(count, head) of all, on all processors.
void for_each(std::int64_t count, std::int64_t heads,
              const std::function<void(std::int64_t, std::int64_t)>& work) {
  on_all_processors(idx(count * heads), [&](std::size_t unit) {
    work(static_cast<std::int64_t>(unit) / heads, static_cast<std::int64_t>(unit) % heads);
  });
}

// As the launch has it.
GdnProblem launched(GdnProblem problem, const CaseOptions& options) {
  problem.tree = options.parents.has_value();
  problem.parents_dtype = options.parents.value_or(problem.parents_dtype);
  problem.checkpoint_every =
      static_cast<int>(options.checkpoint_every.value_or(problem.checkpoint_every));
  return problem;
}

}  // namespace

void on_all_processors(std::size_t count, const std::function<void(std::size_t)>& work) {
  on_threads(count, std::max(1u, std::thread::hardware_concurrency()), work);
}

std::string CaseShape::text() const {
  return fmt::format("{} sequences of tokens {}, lead {}, tail {}, spare checkpoints {}",
                     lengths.size(), fmt::join(lengths, " "), lead, tail, spare_checkpoints);
}

CaseShape uniform(std::int64_t count, std::int64_t tokens) {
  return {.lengths = std::vector<std::int64_t>(idx(count), tokens)};
}

GdnCase::GdnCase(const GdnProblem& problem, const CaseShape& shape, const CaseOptions& options)
    : problem_(launched(problem, options)),
      options_(options),
      sequences_(static_cast<std::int64_t>(shape.lengths.size())),
      heads_(problem.heads.count()),
      layout_(tensors_of(problem_, extent_of(problem_, shape, options)),
              {.placement = options.placement,
               .head_gap = options.head_gap,
               .slot_gap = options.slot_gap,
               .out_slot_gap = options.out_slot_gap}),
      memory_(layout_.memory()) {
  tokens_ = layout_.tensors()[TensorId::kO].shape[token_dimension()];
  fill_bounds(shape);
  fill_indices();
  fill_places();
  fill_parents();
  for (const TensorInfo& info : kTensors) fill(info);
  fill_flags();
}

void GdnCase::fill_bounds(const CaseShape& shape) {
  if (!problem_.varlen) return;
  const std::vector<std::int64_t> checkpoints = checkpoint_starts(problem_, shape, options_);
  std::int64_t bound = shape.lead;
  for (std::size_t n = 0; n <= shape.lengths.size(); ++n) {
    const auto i = static_cast<std::int64_t>(n);
    const DType dtype = problem_.cu_seqlens_dtype;
    store_integer(dtype, at(vector_at(TensorId::kCuSeqlens, i)), bound);
    if (layout_.tensors().has(TensorId::kCheckpointCuStarts)) {
      store_integer(dtype, at(vector_at(TensorId::kCheckpointCuStarts, i)), checkpoints[n]);
    }
    if (n < shape.lengths.size()) bound += shape.lengths[n];
  }
}

void GdnCase::fill_parents() {
  if (!options_.parents) return;
  for (std::int64_t n = 0; n < sequences_; ++n) {
    const std::vector<std::int64_t> parents = draw_parents(options_.data(), n, length(n));
    for (std::int64_t t = 0; t < length(n); ++t) {
      store_integer(*options_.parents, at(parent_at(n, t)), parents[idx(t)]);
    }
  }
}

// Slots of the pool that anything may have.
std::vector<std::int64_t> GdnCase::slot_order() const {
  Random random(options_.seed, static_cast<std::uint64_t>(DataStream::kIndices));
  return random.permutation(1, layout_.tensors()[TensorId::kState].shape[0] - 1);
}

void GdnCase::fill_indices() {
  const TensorSet& tensors = layout_.tensors();
  if (!tensors.has(TensorId::kStateIndices)) return;
  const std::vector<std::int64_t> order = slot_order();
  const auto fill = [&](TensorId indices, const std::vector<std::int64_t>& given,
                        std::int64_t skip) {
    for (std::int64_t n = 0; n < sequences_; ++n) {
      std::int64_t slot = given.empty() ? order.at(idx(skip + n)) : given.at(idx(n));
      if (n == options_.padded) slot = options_.padding.slot_id.value_or(slot);
      store_integer(problem_.states.index_dtype, at(vector_at(indices, n)), slot);
    }
  };
  fill(TensorId::kStateIndices, options_.read, 0);
  if (!tensors.has(TensorId::kStateOutIndices)) return;
  fill(TensorId::kStateOutIndices, options_.write, sequences_);
}

// Drawn offsets are from none to the whole sequence, and each fifth slot says that there is none.
void GdnCase::fill_places() {
  if (problem_.checkpoints != gdn::Checkpoints::kAt) return;
  Random random(options_.seed, static_cast<std::uint64_t>(DataStream::kCheckpoints));
  const std::int64_t count = options_.offsets;
  const bool has_rows = layout_.tensors().has(TensorId::kCheckpoints);
  const std::int64_t skip = (writes_elsewhere(options_) ? 2 : 1) * sequences_;
  const std::vector<std::int64_t> order =
      has_rows ? random.permutation(0, sequences_ * count) : slot_order();
  std::vector<std::int64_t> drawn;
  for (std::int64_t at = 0; at < sequences_ * count; ++at) {
    const std::int64_t n = at / count, grain = offset_grain(problem_);
    if (at % count == 0) drawn = random.ascending(count, length(n) / grain);
    std::int64_t offset = grain * drawn[idx(at % count)];
    std::int64_t slot = options_.padding.slot_id.value_or(-1);
    if (!options_.checkpoint_offsets.empty()) offset = options_.checkpoint_offsets.at(idx(at));
    if (!options_.checkpoint_slots.empty()) {
      slot = options_.checkpoint_slots.at(idx(at));
    } else if (at % 5 != 4) {
      slot = order.at(idx(has_rows ? at : skip + at));
    }
    store_integer(DType::kI32, this->at(place_at(TensorId::kCheckpointOffsets, n, at % count)),
                  offset);
    store_integer(problem_.states.index_dtype,
                  this->at(place_at(TensorId::kCheckpointSlots, n, at % count)), slot);
  }
}

// A state that only new sequences have is NaN everywhere.
void GdnCase::fill_flags() {
  if (!layout_.tensors().has(TensorId::kHasInitialState)) return;
  std::vector<std::int64_t> read;  // by others
  for (std::int64_t n = 0; n < sequences_; ++n) {
    store_integer(DType::kBool, at(vector_at(TensorId::kHasInitialState, n)), is_fresh(n) ? 0 : 1);
    if (!is_fresh(n)) read.push_back(slots_of(n).read);
  }
  for (std::int64_t n = 0; n < sequences_; ++n) {
    const std::int64_t slot = slots_of(n).read;
    if (!slots_of(n).runs() || std::count(read.begin(), read.end(), slot) != 0) continue;
    for (std::int64_t h = 0; h < heads_; ++h) {
      std::byte* const from = at(matrix_at(TensorId::kState, slot, h));
      std::fill(from, from + matrix_bytes(), kPoison);
    }
  }
}

// Gaps keep their poison.  A state that must not be read is NaN everywhere.
void GdnCase::fill(const TensorInfo& info) {
  const Tensor& x = layout_.tensors()[info.id];
  if (!is_drawn(info.id) || !x.present()) return;
  const auto put = [&](std::int64_t n, std::int64_t h, std::int64_t rows, const Place& place,
                       const Step& step) {
    const std::vector<float> numbers = drawn({problem_, options_.data(), n, h, rows}, info.id);
    this->put(x.dtype, place, step, numbers);
  };
  switch (info.kind) {
    case TensorKind::kRows:
    case TensorKind::kScalars:
    case TensorKind::kChannels: {
      const bool has_heads = info.kind != TensorKind::kChannels;
      const std::int64_t heads = has_heads ? x.shape[layout_.head_dimension()] : 1;
      return for_each(sequences_, heads, [&](std::int64_t n, std::int64_t h) {
        put(n, h, length(n), row_at(info.id, n, 0, h), {length(n), x.strides[token_dimension()]});
      });
    }
    case TensorKind::kStates:
      return for_each(x.shape[0] * has_initial(), heads_, [&](std::int64_t row, std::int64_t h) {
        put(row, h, problem_.key_dim, matrix_at(info.id, row, h), {});
      });
    case TensorKind::kConvStates:
      return for_each(x.shape[0] * has_initial(), 1, [&](std::int64_t row, std::int64_t) {
        put(row, 0, x.shape[2], conv_state_at(info.id, row, 0, 0),
            {x.shape[2], x.strides[2], x.strides[1]});
      });
    case TensorKind::kHeads:
      return for_each(1, heads_, [&](std::int64_t, std::int64_t h) {
        put(0, h, 1, vector_at(info.id, h), {});
      });
    default:
      return put(0, 0, 1, layout_.at(info.id, 0), {x.shape[0], x.strides[0], x.strides[1]});
  }
}

void GdnCase::put(DType dtype, const Place& place, const Step& step,
                  const std::vector<float>& numbers) {
  const auto width =
      static_cast<std::int64_t>(numbers.size()) / std::max<std::int64_t>(step.rows, 1);
  std::byte* const first = at(place);
  for (std::int64_t r = 0; r < step.rows; ++r) {
    for (std::int64_t c = 0; c < width; ++c) {
      store(dtype, first + (r * step.row + c * step.column) * size_of(dtype),
            numbers[idx(r * width + c)]);
    }
  }
}

GdnArgs GdnCase::args(std::span<void* const> pieces) const {
  auto args = args_of<GdnArgs>(layout_.tensors(pieces));
  options_.padding.put_into(&args);
  if (options_.checkpoints_in_pool) {
    args.checkpoints = target() == TensorId::kState ? args.state : args.state_out;
  }
  args.checkpoint_every = options_.checkpoint_every;
  args.scale = options_.scale;
  args.norm_eps = options_.norm_eps;
  if (problem_.inputs.gate_mode == gdn::GateMode::kLowerBound) {
    args.lower_bound = options_.lower_bound;
  }
  args.enable_pdl = options_.enable_pdl;
  return args;
}

GdnCase::Place GdnCase::row_at(TensorId tensor, std::int64_t n, std::int64_t t,
                               std::int64_t h) const {
  return problem_.varlen ? layout_.row_at(tensor, 0, start(n) + t, h)
                         : layout_.row_at(tensor, n, t, h);
}

GdnCase::Place GdnCase::matrix_at(TensorId tensor, std::int64_t row, std::int64_t h) const {
  const Tensor& matrices = layout_.tensors()[tensor];
  return layout_.at(tensor, row * matrices.strides[0] + h * matrices.strides[1]);
}

GdnCase::Place GdnCase::vector_at(TensorId tensor, std::int64_t i) const {
  return layout_.at(tensor, i * layout_.tensors()[tensor].strides[0]);
}

GdnCase::Place GdnCase::place_at(TensorId tensor, std::int64_t n, std::int64_t i) const {
  const Tensor& places = layout_.tensors()[tensor];
  return layout_.at(tensor, n * places.strides[0] + i * places.strides[1]);
}

GdnCase::Place GdnCase::parent_at(std::int64_t n, std::int64_t t) const {
  if (problem_.varlen) return vector_at(TensorId::kParents, start(n) + t);
  const Tensor& parents = layout_.tensors()[TensorId::kParents];
  return layout_.at(TensorId::kParents, n * parents.strides[0] + t * parents.strides[1]);
}

GdnCase::Place GdnCase::tap_at(TensorId tensor, std::int64_t channel, std::int64_t i) const {
  const auto& strides = layout_.tensors()[tensor].strides;
  return layout_.at(tensor, channel * strides[0] + i * strides[1]);
}

GdnCase::Place GdnCase::conv_state_at(TensorId tensor, std::int64_t row, std::int64_t channel,
                                      std::int64_t i) const {
  const auto& strides = layout_.tensors()[tensor].strides;
  return layout_.at(tensor, row * strides[0] + channel * strides[1] + i * strides[2]);
}

std::int64_t GdnCase::parent(std::int64_t n, std::int64_t t) const {
  const Place place = parent_at(n, t);
  return load_integer(*options_.parents, memory_[place.piece].data() + place.byte);
}

std::int64_t GdnCase::integer(TensorId vector, std::int64_t i) const {
  const Place place = vector_at(vector, i);
  return load_integer(layout_.tensors()[vector].dtype, memory_[place.piece].data() + place.byte);
}

std::int64_t GdnCase::start(std::int64_t n) const { return integer(TensorId::kCuSeqlens, n); }

std::int64_t GdnCase::length(std::int64_t n) const {
  return problem_.varlen ? start(n + 1) - start(n) : tokens_;
}

std::int64_t GdnCase::first_checkpoint(std::int64_t n) const {
  return problem_.varlen ? integer(TensorId::kCheckpointCuStarts, n)
                         : n * checkpoints_of(problem_, tokens_);
}

// Those that are there, whether they can be or not.
std::vector<GdnCase::Checkpoint> GdnCase::at_offsets(std::int64_t n) const {
  const auto number = [&](TensorId tensor, std::int64_t i) {
    const Place place = place_at(tensor, n, i);
    return load_integer(layout_.tensors()[tensor].dtype, memory_[place.piece].data() + place.byte);
  };
  std::vector<Checkpoint> found;
  for (std::int64_t i = 0; i < options_.offsets; ++i) {
    const Checkpoint one{number(TensorId::kCheckpointOffsets, i),
                         number(TensorId::kCheckpointSlots, i)};
    const bool is_padding = options_.padding.slot_id == one.row;
    if (one.tokens > 0 && one.row >= 0 && !is_padding) found.push_back(one);
  }
  return found;
}

std::vector<GdnCase::Checkpoint> GdnCase::checkpoints(std::int64_t n) const {
  if (problem_.checkpoints == gdn::Checkpoints::kAt) return at_offsets(n);
  const std::int64_t skip = problem_.checkpoints == gdn::Checkpoints::kAfter ? 1 : 0;
  std::vector<Checkpoint> all;
  for (std::int64_t c = 0; c < checkpoints_of(problem_, length(n)); ++c) {
    all.push_back({(c + skip) * problem_.checkpoint_every, first_checkpoint(n) + c});
  }
  return all;
}

TensorId GdnCase::checkpoint_target() const {
  return options_.checkpoints_in_pool ? target() : TensorId::kCheckpoints;
}

TensorId GdnCase::target() const {
  return layout_.tensors().has(TensorId::kStateOut) ? TensorId::kStateOut : TensorId::kState;
}

TensorId GdnCase::conv_target() const {
  return layout_.tensors().has(TensorId::kConvStateOut) ? TensorId::kConvStateOut
                                                        : TensorId::kConvState;
}

std::vector<float> GdnCase::values_at(const GdnMemory& memory, TensorId tensor, const Place& place,
                                      int count) const {
  const DType dtype = layout_.tensors()[tensor].dtype;
  const std::byte* from = memory[place.piece].data() + place.byte;
  std::vector<float> values(idx(count));
  for (float& value : values) {
    value = load(dtype, from);
    from += size_of(dtype);
  }
  return values;
}

std::vector<float> GdnCase::conv_inputs(const GdnMemory& memory, TensorId tensor, std::int64_t row,
                                        std::int64_t channel) const {
  std::vector<float> inputs;
  for (std::int64_t i = 0; i < conv_columns(problem_); ++i) {
    inputs.push_back(values_at(memory, tensor, conv_state_at(tensor, row, channel, i), 1)[0]);
  }
  return inputs;
}

template <class Real>
std::vector<Real> GdnCase::matrix_values(const GdnMemory& memory, TensorId tensor, std::int64_t row,
                                         std::int64_t h) const {
  const Place place = matrix_at(tensor, row, h);
  const std::byte* const from = memory[place.piece].data() + place.byte;
  const bool kv = problem_.states.layout == gdn::StateLayout::kKV;
  std::vector<Real> matrix;
  matrix.reserve(matrix_elements());
  for (int i = 0; i < problem_.key_dim; ++i) {
    for (int j = 0; j < problem_.value_dim; ++j) {
      const std::int64_t e =
          kv ? std::int64_t{i} * problem_.value_dim + j : std::int64_t{j} * problem_.key_dim + i;
      matrix.push_back(load(problem_.states.dtype, from + e * size_of(problem_.states.dtype)));
    }
  }
  return matrix;
}
template std::vector<double> GdnCase::matrix_values(const GdnMemory&, TensorId, std::int64_t,
                                                    std::int64_t) const;
template std::vector<float> GdnCase::matrix_values(const GdnMemory&, TensorId, std::int64_t,
                                                   std::int64_t) const;

std::span<const std::byte> GdnCase::bytes(const GdnMemory& memory, TensorId tensor) const {
  const std::vector<std::byte>& piece = memory[layout_.at(tensor, 0).piece];
  return std::span(piece).subspan(kGuardBytes, piece.size() - 2 * kGuardBytes);
}

std::size_t GdnCase::matrix_elements() const {
  return idx(problem_.key_dim) * idx(problem_.value_dim);
}

std::size_t GdnCase::matrix_bytes() const {
  return matrix_elements() * idx(size_of(problem_.states.dtype));
}

}  // namespace cubinery
