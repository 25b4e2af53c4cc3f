#include "harness/tensors.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "runtime/gdn/shared/extent.h"

namespace cubinery {
namespace {

using gdn::Axis;
using gdn::ConvProblem;
using gdn::StateLayout;
using gdn::StateLocation;

// Of A_log and dt_bias.
template <class Problem>
bool has_bare_gates(const Problem& p, const Extent& extent, TensorId id) {
  return extent.bare_gates && gdn::may_be_absent(p, gdn::row_of<ArgsOf<Problem>>(id).optional);
}

template <class Problem>
bool in_pool(const Problem& p) {
  return p.states.location == StateLocation::kPool;
}

bool channels_first(const GdnProblem& p) {
  return p.conv.state_layout == gdn::ConvStateLayout::kChannels;
}
bool channels_first(const ConvProblem& p) {
  return p.states.layout == gdn::ConvStateLayout::kChannels;
}

// Extents that only one kind of problem has.
std::int64_t own_extent(const GdnProblem& p, const Extent&, Axis axis) {
  const bool kv = p.states.layout == StateLayout::kKV;
  if (axis == Axis::kChannels) return conv_split(p).end;
  if (axis == Axis::kWidth) return p.conv.width;
  if (axis == Axis::kColumns) return conv_columns(p);
  return kv == (axis == Axis::kStateRows) ? p.key_dim : p.value_dim;
}
std::int64_t own_extent(const ConvProblem& p, const Extent& extent, Axis axis) {
  if (axis == Axis::kChannels) return extent.channels;
  return axis == Axis::kWidth ? p.width : extent.columns;
}

template <class Problem>
std::int64_t extent_of(const Problem& p, const Extent& extent, Axis axis) {
  switch (axis) {
    case Axis::kSequences:
      return extent.sequences();
    case Axis::kTokens:
      if (p.varlen) return extent.tokens() + extent.spare_tokens;
      return extent.lengths.empty() ? 0 : extent.lengths.front();
    case Axis::kBounds:
      return extent.sequences() + 1;
    case Axis::kQHeads:
    case Axis::kKHeads:
    case Axis::kVHeads:
    case Axis::kHeads:
    case Axis::kKeyDim:
    case Axis::kDecayDim:
    case Axis::kValueDim:
      return dim_of(p, axis).extent;
    case Axis::kSlots:
      return in_pool(p) ? extent.slots : extent.sequences();
    case Axis::kCheckpoints:
      return extent.checkpoints;
    case Axis::kOffsets:
      return extent.offsets;
    default:
      return own_extent(p, extent, axis);
  }
}

// Steps that are read, besides the one state that everybody has.
std::int64_t read_steps(const ConvProblem& p, const Extent& extent) {
  return stores_every(p) && p.from_accepted ? extent.steps : 0;
}

// The dimension of steps behind the first; 0: there is none.
std::int64_t steps_of(const GdnProblem&, const Extent&, TensorId) { return 0; }
std::int64_t steps_of(const ConvProblem& p, const Extent& extent, TensorId id) {
  if (id == (in_pool(p) ? TensorId::kStateIndices : TensorId::kState)) return read_steps(p, extent);
  const TensorId written = in_pool(p) ? TensorId::kStateOutIndices : TensorId::kStateOut;
  return stores_every(p) && id == written ? extent.steps : 0;
}

// Of a tensor that the problem may have.
bool is_there(const GdnProblem& p, const Extent& extent, TensorId id) {
  if (id == TensorId::kALog || id == TensorId::kDtBias) return !has_bare_gates(p, extent, id);
  if (id == TensorId::kStateOut || id == TensorId::kConvStateOut) return extent.separate_out;
  if (id == TensorId::kHasInitialState) return extent.has_flags;
  if (id == TensorId::kCheckpoints) return !extent.checkpoints_in_pool;
  return id != TensorId::kStateOutIndices || extent.write_indices;
}
bool is_there(const ConvProblem& p, const Extent& extent, TensorId id) {
  if (id == TensorId::kALog || id == TensorId::kDtBias) return !has_bare_gates(p, extent, id);
  const bool own_steps = stores_every(p) && !steps_in_place(p, extent);
  if (id == TensorId::kState) {
    return p.states.has_initial || !stores_every(p) || in_pool(p);
  }
  if (id == TensorId::kStateOut) {
    if (stores_every(p) && !in_pool(p)) return own_steps;
    return extent.separate_out && p.states.has_initial;
  }
  if (id == TensorId::kStateOutIndices) return own_steps;
  if (id == TensorId::kCheckpoints) return !extent.checkpoints_in_pool;
  return id != TensorId::kHasInitialState || extent.has_flags;
}

// Contiguous.
template <class Problem>
void add_tensor(const Problem& p, const Extent& extent, const TensorInfo& info, DType type,
                TensorSet* set) {
  const bool has_tokens = info.axes[1] == Axis::kTokens;
  Tensor& tensor = (*set)[info.id];
  Dims& dims = set->dims[index_of(info.id)];
  tensor.dtype = type;
  const auto add = [&](Axis axis, std::int64_t count) {
    dims[idx(tensor.rank)] = axis;
    tensor.shape[idx(tensor.rank++)] = count;
  };
  for (const Axis axis : info.axes) {
    if (!gdn::has_axis(p, axis)) continue;
    if (axis == Axis::kSequences && has_tokens && p.varlen) continue;
    add(axis, extent_of(p, extent, axis));
    const std::int64_t steps = tensor.rank == 1 ? steps_of(p, extent, info.id) : 0;
    if (steps > 0) add(Axis::kNone, steps);
  }
  if (gdn::has_heads_first(p) && is_of_tokens(info.kind)) {
    const std::size_t first = p.varlen ? 0 : 1;
    std::swap(dims[first], dims[first + 1]);
    std::swap(tensor.shape[first], tensor.shape[first + 1]);
  }
  set_strides(&tensor, memory_order(*set, info), {});
}

template <class Problem>
TensorSet set_of(const Problem& p, const Extent& extent) {
  using Args = ArgsOf<Problem>;
  TensorSet set{.list = kInfosOf<Args>,
                .varlen = p.varlen,
                .heads_first = gdn::has_heads_first(p),
                .channels_first = channels_first(p)};
  for (const auto& row : gdn::kTensorRows<Args>) {
    if (!row.why_absent(p).empty() || !is_there(p, extent, row.id)) continue;
    add_tensor(p, extent, row, row.type(p), &set);
  }
  return set;
}

// Of a state of one sequence.
template <class Problem>
std::int64_t state_bytes(const Problem& p, const Extent& extent, TensorId id) {
  const auto& row = gdn::row_of<ArgsOf<Problem>>(id);
  if (row.id != id || !row.why_absent(p).empty()) return 0;
  std::int64_t bytes = size_of(row.type(p));
  for (const Axis axis : std::span(row.axes).subspan(1)) {
    if (gdn::has_axis(p, axis)) bytes *= extent_of(p, extent, axis);
  }
  return bytes;
}

std::int64_t stored_states(const GdnProblem& p, const Extent& extent) {
  return p.states.store ? extent.sequences() : 0;
}
std::int64_t stored_states(const ConvProblem& p, const Extent& extent) {
  if (stores_every(p)) return extent.tokens();
  return p.states.store ? extent.sequences() : 0;
}

template <class Problem>
std::int64_t bytes_moved(const Problem& p, const Extent& extent) {
  const std::int64_t read = p.states.has_initial ? extent.sequences() : 0;
  const std::int64_t each =
      state_bytes(p, extent, TensorId::kState) + state_bytes(p, extent, TensorId::kConvState);
  std::int64_t bytes = (read + stored_states(p, extent)) * each;
  const TensorSet set = tensors_of(p, extent);
  for (const TensorInfo& info : set.list) {
    switch (info.kind) {
      case TensorKind::kStates:
      case TensorKind::kConvStates:
      case TensorKind::kHeads:
      case TensorKind::kColumns:
      case TensorKind::kBounds:
      case TensorKind::kPlaces:
        break;
      default:
        bytes += static_cast<std::int64_t>(bytes_of(set[info.id]));
    }
  }
  return bytes;
}

template <class Problem>
void add_checkpoints(const Problem& p, Extent* extent) {
  if (p.checkpoints == gdn::Checkpoints::kAt) {
    if (extent->offsets == 0) extent->offsets = 1;
    const std::int64_t rows = extent->sequences() * extent->offsets;
    if (extent->checkpoints == 0) extent->checkpoints = rows;
    return;
  }
  if (extent->checkpoints != 0) return;
  for (const std::int64_t length : extent->lengths) {
    extent->checkpoints += checkpoints_of(p, length);
  }
}

}  // namespace

std::vector<Padding> every_padding(std::int64_t scratch) {
  std::vector<Padding> all{{}};
  for (const std::int64_t id : {-1, 0, 1000}) {
    all.push_back({.slot_id = id});
    all.push_back({.slot_id = id, .zero = true});
    all.push_back({.slot_id = id, .scratch = scratch});
  }
  return all;
}

std::int64_t Extent::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::size_t TensorSet::bytes() const {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

PerDim memory_order(const TensorSet& set, const TensorInfo& info) {
  PerDim order{};
  std::iota(order.begin(), order.end(), 0);
  const auto rank = idx(set[info.id].rank);
  if (set.channels_first && info.axes[2] == gdn::Axis::kColumns) {
    std::swap(order[rank - 2], order[rank - 1]);
  }
  return order;
}

std::int64_t set_strides(Tensor* tensor, const PerDim& order, const PerDim& gaps) {
  std::int64_t elements = 1;
  for (std::size_t i = idx(tensor->rank); i-- > 0;) {
    const std::size_t d = idx(order[i]);
    tensor->strides[d] = elements + gaps[d];
    elements = tensor->strides[d] * std::max<std::int64_t>(tensor->shape[d], 1);
  }
  return elements_of(*tensor) == 0 ? 0 : elements;
}

TensorSet tensors_of(const GdnProblem& problem, const Extent& extent) {
  return set_of(problem, extent);
}
TensorSet tensors_of(const ConvProblem& problem, const Extent& extent) {
  return set_of(problem, extent);
}

Extent completed(const GdnProblem& problem, Extent extent) {
  add_checkpoints(problem, &extent);
  return extent;
}

Extent completed(const ConvProblem& problem, Extent extent) {
  if (problem.split_qkv) extent.channels = split_channels(problem);
  std::int64_t longest = 1;
  for (const std::int64_t length : extent.lengths) longest = std::max(longest, length);
  if (stores_every(problem) && extent.steps == 0) extent.steps = longest;
  add_checkpoints(problem, &extent);
  if (extent.columns != 0) return extent;
  extent.columns = state_columns(problem);
  if (!has_long_window(problem)) return extent;
  extent.columns = std::max(extent.columns, longest + problem.width - 2);
  return extent;
}

bool steps_in_place(const ConvProblem& problem, const Extent& extent) {
  return problem.from_accepted && !extent.separate_out;
}

std::int64_t elements_of(const Tensor& tensor) {
  if (tensor.rank == 0) return 0;
  return std::accumulate(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, std::int64_t{1},
                         std::multiplies<>());
}

std::size_t bytes_of(const Tensor& tensor) {
  return idx(elements_of(tensor)) * idx(size_of(tensor.dtype));
}

std::int64_t least_bytes(const GdnProblem& problem, const Extent& extent) {
  return bytes_moved(problem, extent);
}
std::int64_t least_bytes(const ConvProblem& problem, const Extent& extent) {
  return bytes_moved(problem, extent);
}

}  // namespace cubinery
