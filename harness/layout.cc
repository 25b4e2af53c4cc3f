#include "harness/layout.h"

#include <algorithm>

namespace cubinery {

namespace {

constexpr std::int64_t kRowGap = 16;  // Placement::kRank4

void insert_front(Tensor* tensor) {
  std::copy_backward(tensor->shape.begin(), tensor->shape.begin() + tensor->rank,
                     tensor->shape.begin() + tensor->rank + 1);
  tensor->shape[0] = 1;
  ++tensor->rank;
}

}  // namespace

GdnLayout::GdnLayout(const TensorSet& tensors, const LayoutOptions& options)
    : options_(options), tensors_(tensors) {
  for (const TensorInfo& info : tensors_.list) {
    Tensor* const tensor = &tensors_[info.id];
    Spot* const spot = &spots_[index_of(info.id)];
    spot->piece = index_of(info.id);
    if (!tensor->present()) continue;
    const bool out = info.id == TensorId::kStateOut || info.id == TensorId::kConvStateOut;
    const std::int64_t row_gap = out ? options.out_slot_gap : options.slot_gap;
    if (info.kind == TensorKind::kChannels) {
      place_channels(tensor, spot);
    } else if (info.axes[2] == gdn::Axis::kColumns) {
      place_conv_states(tensor, row_gap, spot);
    } else if (is_of_tokens(info.kind)) {
      place_rows(tensor, spot);
    } else if (tensor->rank == 1) {
      place_vector(tensor, spot);
    } else if (tensor->rank == 2) {
      place_table(tensor, spot);
    } else {
      place_matrices(tensor, row_gap, spot);
    }
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

// [batch, tokens, heads, dim], or without batch or dim; heads before tokens as the problem says.
void GdnLayout::place_rows(Tensor* tensor, Spot* spot) const {
  if (tensors_.varlen && has_batch_dimension()) insert_front(tensor);
  const std::size_t t = token_dimension(), h = head_dimension();
  const std::int64_t batch = has_batch_dimension() ? tensor->shape[0] : 1;
  const std::int64_t heads = tensor->shape[h];
  const std::int64_t tokens = std::max<std::int64_t>(tensor->shape[t], 1);
  const std::size_t d = std::max(t, h) + 1;
  const std::int64_t width = idx(tensor->rank) > d ? tensor->shape[d] : 1;
  const bool heads_first =
      tensors_.heads_first != (options_.placement == Placement::kTransposedHeads);
  const std::int64_t gap = options_.placement == Placement::kRank4 ? kRowGap : 0;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
  if (options_.placement == Placement::kUnaligned) {
    spot->first = 1;
    head_stride = width + 1;
    token_stride = heads * head_stride + 1;
    batch_stride = tokens * token_stride + 1;
  } else if (heads_first && options_.placement != Placement::kPackedRows) {
    token_stride = width + gap;
    head_stride = tokens * token_stride + gap;
    batch_stride = heads * head_stride + gap;
  } else {
    head_stride = width;
    token_stride = heads * width + gap;
    batch_stride = tokens * token_stride + gap;
  }
  tensor->strides = {};
  if (has_batch_dimension()) tensor->strides[0] = batch_stride;
  tensor->strides[t] = token_stride;
  tensor->strides[h] = head_stride;
  if (idx(tensor->rank) > d) tensor->strides[d] = 1;
  if (batch * tensor->shape[t] == 0) return;
  spot->elements = spot->first + (batch - 1) * batch_stride + (tokens - 1) * token_stride +
                   (heads - 1) * head_stride + width;
}

// [batch, tokens, channels], or without batch.
void GdnLayout::place_channels(Tensor* tensor, Spot* spot) const {
  if (tensors_.varlen && has_batch_dimension()) insert_front(tensor);
  const std::size_t t = token_dimension();
  const std::int64_t tokens = tensor->shape[t], stride = tensor->shape[t + 1] + vector_gap();
  tensor->strides = {};
  if (has_batch_dimension()) tensor->strides[0] = tokens * stride;
  tensor->strides[t] = stride;
  tensor->strides[t + 1] = 1;
  spot->first = vector_gap();
  spot->elements = spot->first + (has_batch_dimension() ? tensor->shape[0] : 1) * tokens * stride;
}

void GdnLayout::place_matrices(Tensor* tensor, std::int64_t row_gap, Spot* spot) const {
  tensor->strides[1] = tensor->shape[2] * tensor->shape[3] + options_.head_gap;
  tensor->strides[0] = tensor->shape[1] * tensor->strides[1] + row_gap;
  spot->elements = tensor->shape[0] * tensor->strides[0];
}

// Those with steps have no gaps.
void GdnLayout::place_conv_states(Tensor* tensor, std::int64_t row_gap, Spot* spot) const {
  if (tensor->rank == 4) {
    spot->elements = elements_of(*tensor);
    return;
  }
  const std::int64_t channels = tensor->shape[1], columns = tensor->shape[2];
  std::int64_t row = channels * columns;
  if (tensors_.channels_first) {
    tensor->strides[2] = channels + vector_gap();
    row = columns * tensor->strides[2];
  }
  const std::int64_t vectors = (row_gap + kConvVector - 1) / kConvVector;
  tensor->strides[0] = row + vectors * kConvVector + vector_gap();
  spot->first = vector_gap();
  spot->elements = spot->first + tensor->shape[0] * tensor->strides[0];
}

void GdnLayout::place_vector(Tensor* tensor, Spot* spot) const {
  tensor->strides[0] = options_.placement == Placement::kUnaligned ? 2 : 1;
  spot->elements = tensor->shape[0] * tensor->strides[0];
}

void GdnLayout::place_table(Tensor* tensor, Spot* spot) const {
  const std::int64_t gap = options_.placement == Placement::kUnaligned ? 1 : 0;
  tensor->strides[1] = 1 + gap;
  tensor->strides[0] = tensor->shape[1] * tensor->strides[1] + gap;
  spot->elements = tensor->shape[0] * tensor->strides[0];
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
