#include "harness/layout.h"

#include <algorithm>
#include <utility>

namespace cubinery {

namespace {

constexpr std::int64_t kRowGap = 16;  // Placement::kRank4

template <class Values, class Value>
void insert_front(Values* values, Value value) {
  std::copy_backward(values->begin(), values->end() - 1, values->end());
  values->front() = value;
}

// One state for each of the sequences or slots.
bool is_conv_state(const TensorInfo& info) { return info.axes[2] == gdn::Axis::kColumns; }

}  // namespace

GdnLayout::GdnLayout(const TensorSet& tensors, const LayoutOptions& options)
    : options_(options), tensors_(tensors) {
  for (const TensorInfo& info : tensors_.list) {
    spots_[index_of(info.id)].piece = index_of(info.id);
    if (tensors_.has(info.id)) place(info);
  }
  if (options.placement == Placement::kPackedRows && tensors_.has(TensorId::kQ)) pack_rows();
}

bool GdnLayout::has_batch_dimension() const {
  return !tensors_.varlen || options_.placement == Placement::kRank4;
}

std::size_t GdnLayout::token_dimension() const {
  const bool heads_first = tensors_.heads_first;
  return (has_batch_dimension() ? 1u : 0u) + (heads_first ? 1u : 0u);
}

std::size_t GdnLayout::head_dimension() const {
  const bool heads_first = tensors_.heads_first;
  return heads_first ? token_dimension() - 1 : token_dimension() + 1;
}

// Between rows, and states, of channels, and in front of the first.
std::int64_t GdnLayout::vector_gap() const {
  if (options_.placement == Placement::kRank4) return kRowGap;
  return options_.placement == Placement::kUnaligned ? kConvVector : 0;
}

// Of q, k, v, gates and o in memory.
bool GdnLayout::lies_heads_first() const {
  if (options_.placement == Placement::kPackedRows) return false;
  return tensors_.heads_first != (options_.placement == Placement::kTransposedHeads);
}

// Elements in front of the first.
std::int64_t GdnLayout::first_of(const TensorInfo& info) const {
  if (info.kind == TensorKind::kChannels) return vector_gap();
  if (is_conv_state(info)) return tensors_[info.id].rank == 3 ? vector_gap() : 0;
  return is_of_tokens(info.kind) && options_.placement == Placement::kUnaligned ? 1 : 0;
}

// Elements between those of a dimension that counts `axis`.
std::int64_t GdnLayout::gap_of(const TensorInfo& info, gdn::Axis axis) const {
  using gdn::Axis;
  const bool is_first = axis == info.axes[0],
             unaligned = options_.placement == Placement::kUnaligned;
  const bool is_out = info.id == TensorId::kStateOut || info.id == TensorId::kConvStateOut;
  const std::int64_t row_gap = is_out ? options_.out_slot_gap : options_.slot_gap;
  if (info.kind == TensorKind::kChannels) return axis == Axis::kTokens ? vector_gap() : 0;
  if (is_conv_state(info)) {  // those with steps have no gaps
    if (tensors_[info.id].rank > 3) return 0;
    if (axis == Axis::kColumns) return tensors_.channels_first ? vector_gap() : 0;
    const std::int64_t vectors = (row_gap + kConvVector - 1) / kConvVector;
    return is_first ? vectors * kConvVector + vector_gap() : 0;
  }
  if (info.axes[3] == Axis::kStateColumns) {
    return axis == Axis::kHeads ? options_.head_gap : is_first ? row_gap : 0;
  }
  if (axis == Axis::kDecayDim || (axis == info.axes[3] && axis != Axis::kNone)) return 0;
  if (unaligned) return 1;
  if (!is_of_tokens(info.kind) || options_.placement != Placement::kRank4) return 0;
  return is_first || axis == Axis::kTokens || lies_heads_first() ? kRowGap : 0;
}

void GdnLayout::place(const TensorInfo& info) {
  Tensor& tensor = tensors_[info.id];
  Dims& dims = tensors_.dims[index_of(info.id)];
  const bool has_heads = is_of_tokens(info.kind) && info.kind != TensorKind::kChannels;
  if (is_of_tokens(info.kind) && tensors_.varlen && has_batch_dimension()) {
    insert_front(&tensor.shape, 1);
    insert_front(&dims, gdn::Axis::kSequences);
    ++tensor.rank;
  }
  PerDim order = memory_order(tensors_, info), gaps{};
  if (has_heads && lies_heads_first() != tensors_.heads_first) {
    std::swap(order[token_dimension()], order[head_dimension()]);
  }
  for (std::size_t d = 0; d < idx(tensor.rank); ++d) gaps[d] = gap_of(info, dims[d]);
  Spot& spot = spots_[index_of(info.id)];
  spot.first = first_of(info);
  spot.elements = set_strides(&tensor, order, gaps);
  if (spot.elements > 0) spot.elements += spot.first;
}

// q, k and v, the first of all, become slices of one [batch, tokens, channels] tensor.
void GdnLayout::pack_rows() {
  std::int64_t channels = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor& tensor = tensors_.tensors[i];
    spots_[i].piece = 0;
    spots_[i].first = channels;
    channels += tensor.shape[head_dimension()] * tensor.strides[head_dimension()];
  }
  for (std::size_t i = 0; i < 3; ++i) {
    Tensor& tensor = tensors_.tensors[i];
    const std::int64_t tokens = tensor.shape[token_dimension()];
    const std::int64_t batch = has_batch_dimension() ? tensor.shape[0] : 1;
    tensor.strides[token_dimension()] = channels;
    if (has_batch_dimension()) tensor.strides[0] = std::max<std::int64_t>(tokens, 1) * channels;
    spots_[i].elements = i == 0 ? batch * tokens * channels : 0;
  }
}

GdnMemory GdnLayout::memory() const {
  GdnMemory memory(spots_.size());
  for (std::size_t i = 0; i < spots_.size(); ++i) {
    const Tensor& tensor = tensors_.tensors[i];
    if (!tensor.present() || spots_[i].piece != i) continue;
    memory[i].assign(idx(spots_[i].elements * size_of(tensor.dtype)) + 2 * kGuardBytes, kPoison);
  }
  return memory;
}

GdnLayout::Place GdnLayout::at(TensorId tensor, std::int64_t element) const {
  const Spot& spot = spots_[index_of(tensor)];
  const std::int64_t bytes = (spot.first + element) * size_of(tensors_[tensor].dtype);
  return {.piece = spot.piece, .byte = kGuardBytes + idx(bytes)};
}

GdnLayout::Place GdnLayout::row_at(TensorId tensor, std::int64_t batch, std::int64_t token,
                                   std::int64_t head) const {
  const Tensor& x = tensors_[tensor];
  return at(tensor, batch * x.strides[0] + token * x.strides[token_dimension()] +
                        head * x.strides[head_dimension()]);
}

TensorSet GdnLayout::tensors(std::span<void* const> pieces) const {
  TensorSet set = tensors_;
  for (const TensorInfo& info : set.list) {
    Tensor& tensor = set[info.id];
    if (!tensor.present()) continue;
    const Place place = at(info.id, 0);
    tensor.data = static_cast<std::byte*>(pieces[place.piece]) + place.byte;
  }
  return set;
}

}  // namespace cubinery
