#include "harness/conv_operands.h"

#include <algorithm>
#include <utility>

#include "harness/gdn_operands.h"
#include "harness/rounding.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery {
namespace {

// Numbers that tensors are made of by repetition, which saves time of the host.  A prime, so that
// the rows that one channel sees are not the same few.
constexpr std::int64_t kPattern = 1'000'003;

bool is_shared(const gdn::ConvProblem& problem, ConvKind kind) {
  return kind == ConvKind::kStates && problem.states.location == gdn::StateLocation::kPool;
}

bool is_integral(ConvKind kind) {
  return kind == ConvKind::kBounds || kind == ConvKind::kFlags || kind == ConvKind::kCounts ||
         kind == ConvKind::kIndices;
}

}  // namespace

ConvOperands::ConvOperands(const gdn::ConvProblem& problem, Options options)
    : problem_(problem), options_(std::move(options)) {
  ConvForm& form = options_.form;
  form = conv_form(problem, std::move(form));
  const std::int64_t sequences = form.sequences();
  // Each index names a slot of its own.
  const auto indices = [&] {
    return elements_of(tensors_.states.indices) + elements_of(tensors_.states.out_indices);
  };
  form.slots = sequences;
  tensors_ = tensors_of(problem, form);
  std::size_t bytes = 0;  // of a set
  for (const ConvTensorInfo& info : conv_tensors()) bytes += bytes_of(info.in(tensors_));
  if (options_.sets == 0) options_.sets = rotation(bytes, options_.l2_bytes);
  // Slot 0 is nobody's: it may mean padding.
  const bool pool = problem.states.location == gdn::StateLocation::kPool;
  const std::int64_t each = pool ? indices() : sequences;
  form.slots = each * options_.sets + 1;
  tensors_ = tensors_of(problem, form);
  Random random(options_.seed, conv_tensors().size());
  const std::vector<std::int64_t> order = random.permutation(1, each * options_.sets);
  for (std::int64_t set = 0; set < options_.sets; ++set) {
    std::vector<std::int64_t>& slots = slots_.emplace_back();
    for (std::int64_t n = 0; n < each; ++n) {
      slots.push_back(pool ? order[idx(set * each + n)] : n);
    }
  }
}

Result<ConvOperands> ConvOperands::create(const std::shared_ptr<const Device>& device,
                                          const gdn::ConvProblem& problem, Options options) {
  ConvOperands operands(problem, std::move(options));
  CUBINERY_RETURN_IF_ERROR(operands.allocate(device));
  for (const ConvTensorInfo& info : conv_tensors()) CUBINERY_RETURN_IF_ERROR(operands.fill(info));
  return operands;
}

Status ConvOperands::allocate(const std::shared_ptr<const Device>& device) {
  for (const ConvTensorInfo& info : conv_tensors()) {
    Column& column = columns_.emplace_back();
    const std::size_t bytes = bytes_of(info.in(tensors_));
    const bool shared = is_shared(problem_, info.kind);
    column.stride = shared ? 0 : aligned(bytes);
    const std::size_t all = shared ? bytes : column.stride * idx(options_.sets);
    if (all == 0) continue;
    Result<DeviceMemory> memory = DeviceMemory::allocate(device, all);
    if (!memory) return std::move(memory).error();
    column.memory = std::move(*memory);
  }
  return {};
}

// What a tensor of integers holds.
std::vector<std::int64_t> ConvOperands::integers(const ConvTensorInfo& info, int set) const {
  const ConvForm& form = options_.form;
  if (info.kind == ConvKind::kIndices) {
    const std::int64_t read = elements_of(tensors_.states.indices);
    const auto own = slots(set).begin() + (info.tensor == ConvTensor::kStateIndices ? 0 : read);
    return {own, own + elements_of(info.in(const_cast<gdn::ConvArgs&>(tensors_)))};
  }
  std::vector<std::int64_t> values;
  if (info.kind == ConvKind::kBounds) {
    const bool tokens = info.tensor == ConvTensor::kCuSeqlens;
    values.push_back(0);
    for (const std::int64_t length : form.lengths) {
      values.push_back(values.back() + (tokens ? length : gdn::checkpoints_of(problem_, length)));
    }
    return values;
  }
  Random random(options_.seed + idx(set), static_cast<std::uint64_t>(info.tensor));
  const bool counts = info.kind == ConvKind::kCounts;
  const std::int64_t most = stores_every(problem_) ? form.steps : form.columns - problem_.width + 2;
  const std::int64_t choices = counts ? most : 2;
  for (std::int64_t n = 0; n < form.sequences(); ++n) {
    values.push_back(random.below(choices) + (counts ? 1 : 0));
  }
  return values;
}

Status ConvOperands::fill(const ConvTensorInfo& info) {
  const Tensor& tensor = info.in(tensors_);
  const Column& column = this->column(info.tensor);
  if (column.memory.bytes() == 0) return {};
  if (is_integral(info.kind)) {
    for (int set = 0; set < options_.sets; ++set) {
      CUBINERY_RETURN_IF_ERROR(column.memory.upload(
          integer_bytes(tensor.dtype, integers(info, set)), idx(set) * column.stride));
    }
    return {};
  }
  if (info.draw == nullptr) return {};
  Random random(options_.seed, static_cast<std::uint64_t>(info.tensor));
  std::vector<float> numbers(idx(std::min(elements_of(tensor), kPattern)));
  for (float& number : numbers) number = info.draw(random);
  return column.memory.fill(to_bytes(tensor.dtype, numbers));
}

gdn::ConvSize ConvOperands::size() const {
  const ConvForm& form = options_.form;
  return {.sequences = form.sequences(), .tokens = form.tokens(), .channels = form.channels};
}

gdn::ConvArgs ConvOperands::args(int set) const {
  gdn::ConvArgs args = tensors_;
  for (const ConvTensorInfo& info : conv_tensors()) {
    Tensor& tensor = info.in(args);
    if (!tensor.present()) continue;
    const Column& column = this->column(info.tensor);
    if (column.memory.bytes() == 0) continue;
    tensor.data = static_cast<std::byte*>(column.memory.data()) + idx(set) * column.stride;
  }
  args.scale = options_.scale;
  return args;
}

Status ConvOperands::download(ConvTensor tensor, int set, std::size_t offset,
                              std::span<std::byte> to) const {
  const Column& from = column(tensor);
  return from.memory.download(to, idx(set) * from.stride + offset);
}

}  // namespace cubinery
