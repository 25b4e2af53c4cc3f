#include "harness/conv_case.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "gdn_conv/gdn_conv_ref.h"
#include "gdn_decode/gdn_decode_ref.h"
#include "harness/gdn_tensors.h"
#include "harness/rounding.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery {
namespace {

using gdn::ConvArgs;
using gdn::ConvProblem;
using gdn::Padding;

constexpr std::int64_t kSpareConvSlots = 3;  // of pools
constexpr std::int64_t kSpareSteps = 1;
constexpr double kNotCompared = std::numeric_limits<double>::quiet_NaN();

std::size_t piece_of(ConvTensor tensor) { return static_cast<std::size_t>(tensor); }

// An element of a contiguous tensor, or by its offset of any.
const std::byte* element(const GdnMemory& memory, ConvTensor which, DType dtype, std::int64_t i) {
  return memory[piece_of(which)].data() + kGuardBytes + i * size_of(dtype);
}
std::byte* element(GdnMemory* memory, ConvTensor which, DType dtype, std::int64_t i) {
  return (*memory)[piece_of(which)].data() + kGuardBytes + i * size_of(dtype);
}

std::string_view name_of(std::size_t piece) { return conv_tensors()[piece].name; }

}  // namespace

ConvCase::ConvCase(const ConvProblem& problem, ConvCaseOptions options)
    : problem_(problem), options_(std::move(options)) {
  form_ = conv_form(problem, {.lengths = options_.lengths,
                              .channels = options_.channels,
                              .columns = options_.columns,
                              .spare_tokens = options_.lead + options_.tail,
                              .has_flags = options_.has_flags,
                              .separate_out = options_.separate_out});
  if (stores_every(problem)) form_.steps += kSpareSteps;
  if (problem.varlen) form_.checkpoints += form_.sequences() / 2 * options_.spare_checkpoints;
  form_.slots = form_.sequences() * (1 + 2 * form_.steps) + kSpareConvSlots;
  tensors_ = tensors_of(problem, form_);
  for (const ConvTensorInfo& info : conv_tensors()) {
    const Tensor& tensor = info.in(tensors_);
    memory_.emplace_back(tensor.present() ? bytes_of(tensor) + 2 * kGuardBytes : 0, kPoison);
  }
  fill_integers();
  fill();
}

const Tensor& ConvCase::tensor(ConvTensor which) const {
  return info_of(which).in(const_cast<ConvArgs&>(tensors_));
}

std::int64_t ConvCase::integer(ConvTensor which, std::int64_t n) const {
  const DType dtype = tensor(which).dtype;
  return load_integer(dtype, element(memory_, which, dtype, n));
}

std::int64_t ConvCase::row(std::int64_t n, std::int64_t t) const {
  if (!problem_.varlen) return n * form_.lengths.front() + t;
  const auto first = form_.lengths.begin();
  return options_.lead + std::accumulate(first, first + n, std::int64_t{0}) + t;
}

std::int64_t ConvCase::rows() const { return form_.tokens() + form_.spare_tokens; }

bool ConvCase::is_new(std::int64_t n) const {
  return tensor(ConvTensor::kHasInitial).present() && n % 3 == 1;
}

void ConvCase::fill_integers() {
  Random random(options_.seed, conv_tensors().size());
  fill_slots(random);
  const auto put = [&](ConvTensor which, std::int64_t i, std::int64_t value) {
    const Tensor& tensor = this->tensor(which);
    if (tensor.present())
      store_integer(tensor.dtype, element(&memory_, which, tensor.dtype, i), value);
  };
  put(ConvTensor::kCuSeqlens, 0, options_.lead);
  put(ConvTensor::kCheckpointStarts, 0, 0);
  const std::int64_t most =
      stores_every(problem_) ? form_.steps : form_.columns - problem_.width + 2;
  std::int64_t kept = 0;
  for (std::int64_t n = 0; n < form_.sequences(); ++n) {
    kept += gdn::checkpoints_of(problem_, form_.lengths[idx(n)]);
    if (n % 2 == 1) kept += options_.spare_checkpoints;
    put(ConvTensor::kCheckpointStarts, n + 1, kept);
    put(ConvTensor::kCuSeqlens, n + 1, row(n, form_.lengths[idx(n)]));
    put(ConvTensor::kHasInitial, n, is_new(n) ? 0 : 1);
    // 0 is taken as 1.
    put(ConvTensor::kAccepted, n, random.below(most + 1));
  }
}

// Each index names a slot of its own, but for padding: that of a sequence, and a step that is
// dropped.
void ConvCase::fill_slots(Random& random) {
  const std::vector<std::int64_t> slots = random.permutation(1, form_.slots - 1);
  const std::int64_t pad = problem_.states.pad_index == gdn::PadIndex::kNegative ? -1 : 0;
  const Padding padding = problem_.states.padding;
  std::size_t next = 0;
  for (const ConvTensor which : {ConvTensor::kStateIndices, ConvTensor::kStateOutIndices}) {
    const Tensor& tensor = this->tensor(which);
    if (!tensor.present()) continue;
    const std::int64_t steps = tensor.rank == 2 ? tensor.shape[1] : 1;
    const bool is_read = which == ConvTensor::kStateIndices;
    for (std::int64_t i = 0; i < elements_of(tensor); ++i) {
      const std::int64_t n = i / steps, step = i % steps;
      // NOTE: a dropped step goes to the scratch slot with kScratch, where another one may be.
      const bool drops = !is_read && n % 4 == 1 && step == 1 && padding != Padding::kScratch;
      const bool pads = padding != Padding::kNone && (is_read ? n == options_.padded : drops);
      store_integer(tensor.dtype, element(&memory_, which, tensor.dtype, i),
                    pads ? pad : slots[next]);
      ++next;
    }
  }
}

// The drawn numbers; a state that must not be read is NaN, and so are tokens of no sequence.
void ConvCase::fill() {
  for (const ConvTensorInfo& info : conv_tensors()) {
    const Tensor& tensor = this->tensor(info.tensor);
    const bool is_unread = info.kind == ConvKind::kStates && !problem_.states.has_initial;
    if (info.draw == nullptr || !tensor.present() || is_unread ||
        info.tensor == ConvTensor::kStateOut) {
      continue;
    }
    Random random(options_.seed, static_cast<std::uint64_t>(info.tensor));
    const float factor = info.tensor == ConvTensor::kX ? options_.magnitude : 1.0f;
    for (std::int64_t i = 0; i < elements_of(tensor); ++i) {
      store(tensor.dtype, element(&memory_, info.tensor, tensor.dtype, i),
            factor * info.draw(random));
    }
  }
  const auto poison = [&](ConvTensor which, std::int64_t first, std::int64_t count) {
    const DType dtype = tensor(which).dtype;
    std::byte* const from = element(&memory_, which, dtype, first);
    std::fill(from, from + count * size_of(dtype), kPoison);
  };
  poison(ConvTensor::kX, 0, options_.lead * form_.channels);
  poison(ConvTensor::kX, (rows() - options_.tail) * form_.channels, options_.tail * form_.channels);
  for (std::int64_t n = 0; n < form_.sequences(); ++n) {
    if (!is_new(n) || place(n).kind != Place::Kind::kComputed) continue;
    poison(ConvTensor::kState, place(n).state, form_.channels * form_.columns);
  }
}

// Where the state of a slot, or of a row and step, begins.
std::int64_t ConvCase::state_in(ConvTensor which, std::int64_t row, std::int64_t step) const {
  const Tensor& tensor = this->tensor(which);
  return row * tensor.strides[0] + (tensor.rank == 4 ? step * tensor.strides[1] : 0);
}

bool ConvCase::is_pad(std::int64_t index) const {
  if (problem_.states.padding == Padding::kNone) return false;
  return problem_.states.pad_index == gdn::PadIndex::kNegative ? index < 0 : index == 0;
}

ConvCase::Place ConvCase::place(std::int64_t n) const {
  Place place{.has_initial = problem_.states.has_initial && !is_new(n)};
  place.start = form_.columns - (problem_.width - 1);
  std::int64_t step = 0;
  if (problem_.from_accepted) {
    const auto last = std::max<std::int64_t>(integer(ConvTensor::kAccepted, n), 1) - 1;
    (stores_every(problem_) ? step : place.start) = last;
  }
  const Tensor& indices = tensor(ConvTensor::kStateIndices);
  if (!indices.present()) {
    place.state = state_in(ConvTensor::kState, n, step);
    return place;
  }
  const std::int64_t steps = indices.rank == 2 ? indices.shape[1] : 1;
  std::int64_t slot = integer(ConvTensor::kStateIndices, n * steps + step);
  if (is_pad(slot)) {
    if (problem_.states.padding == Padding::kSkip) place.kind = Place::Kind::kSkipped;
    if (problem_.states.padding == Padding::kZero) place.kind = Place::Kind::kZeroed;
    slot = 0;  // kScratch
  }
  place.state = state_in(ConvTensor::kState, slot);
  return place;
}

// Of a sequence that is computed, behind token `step` where each has a state.
std::optional<ConvCase::Written> ConvCase::written(std::int64_t n, std::int64_t step) const {
  const bool separate = tensor(ConvTensor::kStateOut).present();
  const ConvTensor to = separate ? ConvTensor::kStateOut : ConvTensor::kState;
  const Tensor& read = tensor(ConvTensor::kStateIndices);
  if (!read.present()) return Written{to, state_in(to, n, step)};
  const bool own = tensor(ConvTensor::kStateOutIndices).present();
  const ConvTensor which = own ? ConvTensor::kStateOutIndices : ConvTensor::kStateIndices;
  const Tensor& indices = tensor(which);
  const std::int64_t steps = indices.rank == 2 ? indices.shape[1] : 1;
  const std::int64_t slot = integer(which, n * steps + (indices.rank == 2 ? step : 0));
  const bool starts_on_scratch =
      n == options_.padded &&
      is_pad(integer(ConvTensor::kStateIndices, read.rank == 2 ? n * read.shape[1] : n));
  if (starts_on_scratch) return Written{to, state_in(to, 0)};
  if (is_pad(slot)) return std::nullopt;
  return Written{to, state_in(to, slot)};
}

std::int64_t ConvCase::first_checkpoint(std::int64_t n) const {
  if (problem_.varlen) return integer(ConvTensor::kCheckpointStarts, n);
  return n * gdn::checkpoints_of(problem_, form_.lengths.front());
}

ConvArgs ConvCase::args(std::span<void* const> pieces) const {
  ConvArgs args = tensors_;
  for (const ConvTensorInfo& info : conv_tensors()) {
    Tensor& tensor = info.in(args);
    if (!tensor.present()) continue;
    tensor.data = static_cast<std::byte*>(pieces[piece_of(info.tensor)]) + kGuardBytes;
  }
  args.scale = options_.scale;
  return args;
}

// What makes the reference of a case.
class ConvCase::Reference {
 public:
  explicit Reference(const ConvCase& of) : of_(of), p_(of.problem_), form_(of.form_) {
    made_.memory = of.memory_;
    for (const ConvTensorInfo& info : conv_tensors()) {
      const Tensor& tensor = of.tensor(info.tensor);
      if (info.kind != ConvKind::kOutputs || !tensor.present()) continue;
      made_.outputs.push_back(
          {info.tensor, std::vector<double>(idx(elements_of(tensor)), kNotCompared), {}});
    }
  }

  ConvReference take() {
    for (std::int64_t n = 0; n < form_.sequences(); ++n) add_sequence(n);
    for (std::int64_t i = 0; i < of_.rows() * p_.heads.count(); ++i) add_gates(i);
    return std::move(made_);
  }

 private:
  // A row of all channels.
  template <class Real>
  using Rows = std::vector<std::vector<Real>>;

  ConvReference::Output* output(ConvTensor which) {
    for (ConvReference::Output& one : made_.outputs) {
      if (one.tensor == which) return &one;
    }
    return nullptr;
  }
  float input(ConvTensor which, std::int64_t i) const {
    const DType dtype = of_.tensor(which).dtype;
    return load(dtype, element(of_.memory_, which, dtype, i));
  }

  void add(ConvTensor which, std::int64_t i, double exact, float naive) {
    ConvReference::Output& to = *output(which);
    to.values[idx(i)] = exact;
    to.naive.add_naive(rounded(of_.tensor(which).dtype, naive), exact);
  }

  void add_gates(std::int64_t i) {
    const std::int64_t h = i % p_.heads.count();
    const auto of_head = [&]<class Real>(Real) {
      gdn::DecodeRefHead<Real> head{.inputs = p_.inputs};
      if (writes_g(p_)) {
        head.gate = input(ConvTensor::kA, i);
        head.a_log = input(ConvTensor::kALog, h);
        head.dt_bias = input(ConvTensor::kDtBias, h);
      }
      if (writes_beta(p_)) head.beta = input(ConvTensor::kB, i);
      return head;
    };
    const auto exact = of_head(double{});
    const auto naive = of_head(float{});
    if (writes_g(p_)) add(ConvTensor::kG, i, log_decay_ref(exact), log_decay_ref(naive));
    if (writes_beta(p_)) add(ConvTensor::kBeta, i, beta_ref(exact), beta_ref(naive));
  }

  void add_sequence(std::int64_t n) {
    const Place place = of_.place(n);
    if (place.kind == Place::Kind::kSkipped) return;
    if (place.kind == Place::Kind::kZeroed) return add_zeros(n);
    Rows<double> exact(idx(form_.lengths[idx(n)]));
    Rows<float> naive(exact.size());
    for (std::int64_t c = 0; c < form_.channels; ++c) {
      const std::vector<float> history = this->history(n, c, place);
      add_channel(c, history, &exact);
      add_channel(c, history, &naive);
      add_states(n, c, history);
    }
    for (std::size_t t = 0; t < exact.size(); ++t) {
      add_row(of_.row(n, static_cast<std::int64_t>(t)), &exact[t], &naive[t]);
    }
  }

  // `state`: where it begins.
  std::int64_t state_at(ConvTensor which, std::int64_t state, std::int64_t c,
                        std::int64_t column) const {
    const Tensor& tensor = of_.tensor(which);
    const auto last = static_cast<std::size_t>(tensor.rank) - 1;
    return state + c * tensor.strides[last - 1] + column * tensor.strides[last];
  }

  // All inputs of a channel, from the oldest column that counts on; with the whole window, and
  // before a new sequence, from the first column on.
  std::vector<float> history(std::int64_t n, std::int64_t c, const Place& place) const {
    const std::int64_t first = has_long_window(p_) ? place.start : 0;
    const std::int64_t end = has_long_window(p_) ? first + p_.width - 1 : form_.columns;
    std::vector<float> inputs;
    for (std::int64_t column = first; column < end; ++column) {
      if (!place.has_initial) {
        inputs.push_back(0);
        continue;
      }
      inputs.push_back(
          input(ConvTensor::kState, state_at(ConvTensor::kState, place.state, c, column)));
    }
    for (std::int64_t t = 0; t < form_.lengths[idx(n)]; ++t) {
      inputs.push_back(input(ConvTensor::kX, of_.row(n, t) * form_.channels + c));
    }
    return inputs;
  }

  template <class Real>
  void add_channel(std::int64_t c, const std::vector<float>& history, Rows<Real>* rows) const {
    const auto tokens = static_cast<std::ptrdiff_t>(rows->size());
    const auto first = history.end() - tokens;
    gdn::ConvRefChannel<Real> channel{.activation = p_.activation,
                                      .before = {first - (p_.width - 1), first}};
    for (std::int64_t i = 0; i < p_.width; ++i) {
      channel.taps.push_back(input(ConvTensor::kWeight, c * p_.width + i));
    }
    if (p_.has_bias) channel.bias = input(ConvTensor::kBias, c);
    const std::vector<Real> y = conv_ref(channel, std::vector<Real>(first, history.end()));
    for (std::size_t t = 0; t < y.size(); ++t) (*rows)[t].push_back(y[t]);
  }

  // The columns of a channel in a state.  Of a sequence without tokens they are those that it
  // starts from, NaN too.
  void keep(const Written& to, std::int64_t c, std::span<const float> inputs) {
    const DType dtype = p_.states.dtype;
    std::int64_t column = 0;
    for (const float value : inputs) {
      const std::int64_t at = state_at(to.tensor, to.state, c, column++);
      store(dtype, element(&made_.memory, to.tensor, dtype, at), value);
    }
  }

  void add_states(std::int64_t n, std::int64_t c, const std::vector<float>& history) {
    const std::span<const float> all(history);
    const std::int64_t tokens = form_.lengths[idx(n)];
    // The state behind so many tokens.
    const auto behind = [&](std::int64_t count) {
      return all.subspan(idx(count), idx(form_.columns));
    };
    if (has_long_window(p_)) {
      if (tokens > 0) keep(*of_.written(n, 0), c, all.subspan(1));
    } else if (stores_every(p_)) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::optional<Written> to = of_.written(n, t);
        if (to) keep(*to, c, behind(t + 1));
      }
    } else if (p_.states.store) {
      keep(*of_.written(n, 0), c, behind(tokens));
    }
    const bool before = p_.checkpoints == gdn::Checkpoints::kBefore;
    const std::int64_t count = gdn::checkpoints_of(p_, tokens);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = of_.first_checkpoint(n) + i;
      keep({ConvTensor::kCheckpoints, of_.state_in(ConvTensor::kCheckpoints, row)}, c,
           behind((before ? i : i + 1) * p_.checkpoint_every));
    }
  }

  // The outputs of a token.
  void add_row(std::int64_t row, std::vector<double>* exact, std::vector<float>* naive) {
    if (!p_.split_qkv) return add_part(ConvTensor::kY, row, *exact, *naive);
    std::int64_t first = 0;
    const auto add_heads = [&](ConvTensor which, int heads, int dim, bool normed, float scale) {
      const std::vector<double> y = part(*exact, first, heads, dim, normed, double{scale});
      add_part(which, row, y, part(*naive, first, heads, dim, normed, scale));
      first += std::int64_t{heads} * dim;
    };
    const bool normed = p_.inputs.use_qk_l2norm;
    add_heads(ConvTensor::kQ, p_.heads.q, p_.key_dim, normed, of_.options_.scale);
    add_heads(ConvTensor::kK, p_.heads.k, p_.key_dim, normed, 1);
    add_heads(ConvTensor::kV, p_.heads.v, p_.value_dim, false, 1);
  }

  template <class Real>
  static std::vector<Real> part(const std::vector<Real>& row, std::int64_t first, int heads,
                                int dim, bool normed, Real scale) {
    std::vector<Real> all;
    for (int h = 0; h < heads; ++h) {
      const auto from = row.begin() + first + std::int64_t{h} * dim;
      std::vector<Real> head(from, from + dim);
      if (normed) gdn::conv_norm_ref(&head);
      for (const Real value : head) all.push_back(scale * value);
    }
    return all;
  }

  void add_part(ConvTensor which, std::int64_t row, const std::vector<double>& exact,
                const std::vector<float>& naive) {
    const auto width = static_cast<std::int64_t>(exact.size());
    for (std::int64_t c = 0; c < width; ++c) {
      add(which, row * width + c, exact[idx(c)], naive[idx(c)]);
    }
  }

  // Padding: outputs of the convolution, not of the gates.
  void add_zeros(std::int64_t n) {
    for (const ConvReference::Output& one : made_.outputs) {
      if (one.tensor == ConvTensor::kG || one.tensor == ConvTensor::kBeta) continue;
      const DType dtype = of_.tensor(one.tensor).dtype;
      const auto width = static_cast<std::int64_t>(one.values.size()) / of_.rows();
      std::byte* const from = element(&made_.memory, one.tensor, dtype, of_.row(n, 0) * width);
      const std::int64_t count = form_.lengths[idx(n)] * width;
      std::fill(from, from + count * size_of(dtype), std::byte{});
    }
  }

  const ConvCase& of_;
  const ConvProblem& p_;
  const ConvForm& form_;
  ConvReference made_;
};

ConvReference ConvCase::reference() const { return Reference(*this).take(); }

bool ConvVerdict::ok() const {
  for (const Error& error : errors) {
    if (!error.deviation.ok()) return false;
  }
  return fault.empty();
}

ConvVerdict ConvCase::check(const GdnMemory& after, const ConvReference& reference) const {
  ConvVerdict verdict;
  GdnMemory expected = reference.memory;
  for (const ConvReference::Output& output : reference.outputs) {
    const DType dtype = tensor(output.tensor).dtype;
    Deviation deviation = output.naive;
    for (std::size_t i = 0; i < output.values.size(); ++i) {
      if (std::isnan(output.values[i])) continue;
      const auto at = static_cast<std::int64_t>(i);
      const std::byte* const actual = element(after, output.tensor, dtype, at);
      deviation.add_actual(load(dtype, actual), output.values[i], {at});
      std::copy(actual, actual + size_of(dtype), element(&expected, output.tensor, dtype, at));
    }
    verdict.errors.push_back({output.tensor, deviation});
  }
  verdict.fault = first_difference(after, expected, name_of);
  if (!verdict.fault.empty()) verdict.fault += " is not what it should be";
  return verdict;
}

}  // namespace cubinery
