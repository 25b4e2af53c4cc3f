#include "harness/conv_case.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "gdn_conv/gdn_conv_ref.h"
#include "gdn_decode/gdn_decode_ref.h"
#include "harness/draw.h"
#include "harness/rounding.h"
#include "runtime/gdn/conv/parts.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery {
namespace {

using gdn::ConvArgs;
using gdn::ConvProblem;

constexpr std::int64_t kSpareConvSlots = 3;  // of pools
constexpr std::int64_t kSpareSteps = 1;
constexpr double kNotCompared = std::numeric_limits<double>::quiet_NaN();

// An element of a contiguous tensor, or by its offset of any.
const std::byte* element(const GdnMemory& memory, TensorId which, DType dtype, std::int64_t i) {
  return memory[index_of(which)].data() + kGuardBytes + i * size_of(dtype);
}
std::byte* element(GdnMemory* memory, TensorId which, DType dtype, std::int64_t i) {
  return (*memory)[index_of(which)].data() + kGuardBytes + i * size_of(dtype);
}

ConvProblem launched(ConvProblem problem, const ConvCaseOptions& options) {
  problem.checkpoint_every =
      static_cast<int>(options.checkpoint_every.value_or(problem.checkpoint_every));
  return problem;
}

Extent extent_of(const ConvProblem& problem, const ConvCaseOptions& options) {
  Extent extent = completed(problem, {.lengths = options.lengths,
                                      .channels = options.channels,
                                      .columns = options.columns,
                                      .spare_tokens = options.lead + options.tail,
                                      .separate_out = options.separate_out,
                                      .has_flags = options.has_flags,
                                      .bare_gates = options.bare_gates});
  if (stores_every(problem)) extent.steps += kSpareSteps;
  if (problem.varlen) extent.checkpoints += extent.sequences() / 2 * options.spare_checkpoints;
  extent.slots = extent.sequences() * (1 + 2 * extent.steps) + kSpareConvSlots;
  if (problem.checkpoints == gdn::Checkpoints::kAt) {
    extent.offsets = options.offsets;
    extent.checkpoints = extent.sequences() * options.offsets + kSpareConvSlots;
    extent.checkpoints_in_pool = options.checkpoints_in_pool;
    extent.slots += extent.sequences() * options.offsets;
  }
  return extent;
}

}  // namespace

ConvCase::ConvCase(const ConvProblem& problem, ConvCaseOptions options)
    : problem_(launched(problem, options)),
      prepared_(problem),
      options_(std::move(options)),
      extent_(extent_of(problem_, options_)),
      layout_(tensors_of(problem_, extent_)),
      memory_(layout_.memory()) {
  fill_integers();
  fill_places();
  fill();
}

std::int64_t ConvCase::integer(TensorId which, std::int64_t n) const {
  const DType dtype = tensor(which).dtype;
  return load_integer(dtype, element(memory_, which, dtype, n));
}

std::int64_t ConvCase::row(std::int64_t n, std::int64_t t) const {
  if (!problem_.varlen) return n * extent_.lengths.front() + t;
  const auto first = extent_.lengths.begin();
  return options_.lead + std::accumulate(first, first + n, std::int64_t{0}) + t;
}

std::int64_t ConvCase::rows() const { return extent_.tokens() + extent_.spare_tokens; }

bool ConvCase::is_new(std::int64_t n) const {
  return tensor(TensorId::kHasInitialState).present() && n % 3 == 1;
}

void ConvCase::fill_integers() {
  Random random = conv_slot_random(options_.seed);
  fill_slots(random);
  const auto put = [&](TensorId which, std::int64_t i, std::int64_t value) {
    const Tensor& tensor = this->tensor(which);
    if (tensor.present())
      store_integer(tensor.dtype, element(&memory_, which, tensor.dtype, i), value);
  };
  put(TensorId::kCuSeqlens, 0, options_.lead);
  put(TensorId::kCheckpointCuStarts, 0, 0);
  const std::int64_t most =
      stores_every(problem_) ? extent_.steps : extent_.columns - problem_.width + 2;
  std::int64_t kept = 0;
  for (std::int64_t n = 0; n < extent_.sequences(); ++n) {
    kept += gdn::checkpoints_of(problem_, extent_.lengths[idx(n)]);
    if (n % 2 == 1) kept += options_.spare_checkpoints;
    put(TensorId::kCheckpointCuStarts, n + 1, kept);
    put(TensorId::kCuSeqlens, n + 1, row(n, extent_.lengths[idx(n)]));
    put(TensorId::kHasInitialState, n, is_new(n) ? 0 : 1);
    // 0 is taken as 1.
    put(TensorId::kAccepted, n, random.below(most + 1));
    // From none to what has gone around several times.
    if (problem_.circular_state) put(TensorId::kCacheSeqlens, n, random.below(5 * extent_.columns));
  }
}

// Each index names a slot of its own, but for padding: that of a sequence, and a step that is
// dropped.
void ConvCase::fill_slots(Random& random) {
  const std::vector<std::int64_t> slots = random.permutation(1, extent_.slots - 1);
  const Padding& padding = options_.padding;
  std::size_t next = 0;
  for (const TensorId which : {TensorId::kStateIndices, TensorId::kStateOutIndices}) {
    const Tensor& tensor = this->tensor(which);
    if (!tensor.present()) continue;
    const std::int64_t steps = tensor.rank == 2 ? tensor.shape[1] : 1;
    const bool is_read = which == TensorId::kStateIndices;
    for (std::int64_t i = 0; i < elements_of(tensor); ++i) {
      const std::int64_t n = i / steps, step = i % steps;
      // NOTE: a dropped step goes to the scratch slot, where another one may be.
      const bool drops = !is_read && n % 4 == 1 && step == 1 && !padding.is_computed();
      const bool pads = padding.slot_id && (is_read ? n == options_.padded : drops);
      store_integer(tensor.dtype, element(&memory_, which, tensor.dtype, i),
                    pads ? *padding.slot_id : slots[next]);
      ++next;
    }
  }
}

// Drawn offsets are from none to the whole sequence, and each fifth slot says that there is none.
// Those of a pool are the last ones that fill_slots() draws from.
void ConvCase::fill_places() {
  const Tensor& to = tensor(TensorId::kCheckpointSlots);
  if (!to.present()) return;
  Random random(options_.seed, static_cast<std::uint64_t>(DataStream::kCheckpoints));
  const std::int64_t count = elements_of(to);
  std::vector<std::int64_t> rows = random.permutation(0, count);
  if (options_.checkpoints_in_pool) {
    Random same = conv_slot_random(options_.seed);
    const std::vector<std::int64_t> slots = same.permutation(1, extent_.slots - 1);
    rows.assign(slots.end() - count, slots.end());
  }
  std::vector<std::int64_t> drawn;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = i % options_.offsets;
    const std::int64_t length = extent_.lengths[idx(i / options_.offsets)];
    if (at == 0) drawn = random.ascending(options_.offsets, length);
    const std::int64_t none = options_.padding.slot_id.value_or(-1);
    store_integer(DType::kI32, element(&memory_, TensorId::kCheckpointOffsets, DType::kI32, i),
                  drawn[idx(at)]);
    store_integer(to.dtype, element(&memory_, TensorId::kCheckpointSlots, to.dtype, i),
                  i % 5 == 4 ? none : rows[idx(i)]);
  }
}

// The drawn numbers; a state that must not be read is NaN, and so are tokens of no sequence.
void ConvCase::fill() {
  for (const TensorInfo& info : layout_.tensors().list) {
    const Tensor& tensor = this->tensor(info.id);
    const bool is_unread = info.kind == TensorKind::kConvStates && !problem_.states.has_initial;
    if (!is_conv_drawn(info.id) || !tensor.present() || is_unread) continue;
    Random random = conv_random(options_.seed, info.id);
    const float factor = info.id == TensorId::kX ? options_.magnitude : 1.0f;
    for (std::int64_t i = 0; i < elements_of(tensor); ++i) {
      store(tensor.dtype, element(&memory_, info.id, tensor.dtype, i),
            factor * draw_conv(info.id, random));
    }
  }
  const auto poison = [&](TensorId which, std::int64_t first, std::int64_t count) {
    const DType dtype = tensor(which).dtype;
    std::byte* const from = element(&memory_, which, dtype, first);
    std::fill(from, from + count * size_of(dtype), kPoison);
  };
  poison(TensorId::kX, 0, options_.lead * extent_.channels);
  poison(TensorId::kX, (rows() - options_.tail) * extent_.channels,
         options_.tail * extent_.channels);
  for (std::int64_t n = 0; n < extent_.sequences(); ++n) {
    if (!is_new(n) || place(n).kind != Place::Kind::kComputed) continue;
    poison(TensorId::kState, place(n).state, extent_.channels * extent_.columns);
  }
}

// Where the state of a slot, or of a row and step, begins.
std::int64_t ConvCase::state_in(TensorId which, std::int64_t row, std::int64_t step) const {
  const Tensor& tensor = this->tensor(which);
  return row * tensor.strides[0] + (tensor.rank == 4 ? step * tensor.strides[1] : 0);
}

ConvCase::Place ConvCase::place(std::int64_t n) const {
  Place place{.has_initial = problem_.states.has_initial && !is_new(n)};
  place.start = extent_.columns - (problem_.width - 1);
  std::int64_t step = 0;
  if (problem_.from_accepted) {
    const auto last = std::max<std::int64_t>(integer(TensorId::kAccepted, n), 1) - 1;
    (stores_every(problem_) ? step : place.start) = last;
  }
  if (problem_.circular_state) {
    place.start = (integer(TensorId::kCacheSeqlens, n) + place.start) % extent_.columns;
  }
  const Tensor& indices = tensor(TensorId::kStateIndices);
  if (!indices.present()) {
    place.state = state_in(TensorId::kState, n, step);
    return place;
  }
  const std::int64_t steps = indices.rank == 2 ? indices.shape[1] : 1;
  std::int64_t slot = integer(TensorId::kStateIndices, n * steps + step);
  const Padding& padding = options_.padding;
  if (padding.is(slot)) {
    if (!padding.is_computed()) {
      place.kind = padding.zero ? Place::Kind::kZeroed : Place::Kind::kSkipped;
    }
    slot = padding.scratch.value_or(0);
  }
  place.state = state_in(TensorId::kState, slot);
  return place;
}

// Of a sequence that is computed, behind token `step` where each has a state.
std::optional<ConvCase::Written> ConvCase::written(std::int64_t n, std::int64_t step) const {
  const TensorId to = target();
  const Tensor& read = tensor(TensorId::kStateIndices);
  if (!read.present()) return Written{to, state_in(to, n, step)};
  const bool own = tensor(TensorId::kStateOutIndices).present();
  const TensorId which = own ? TensorId::kStateOutIndices : TensorId::kStateIndices;
  const Tensor& indices = tensor(which);
  const std::int64_t steps = indices.rank == 2 ? indices.shape[1] : 1;
  const std::int64_t slot = integer(which, n * steps + (indices.rank == 2 ? step : 0));
  const bool starts_on_scratch =
      n == options_.padded &&
      options_.padding.is(integer(TensorId::kStateIndices, read.rank == 2 ? n * read.shape[1] : n));
  if (starts_on_scratch) return Written{to, state_in(to, options_.padding.scratch.value_or(0))};
  if (options_.padding.is(slot)) return std::nullopt;
  return Written{to, state_in(to, slot)};
}

std::int64_t ConvCase::first_checkpoint(std::int64_t n) const {
  if (problem_.varlen) return integer(TensorId::kCheckpointCuStarts, n);
  return n * gdn::checkpoints_of(problem_, extent_.lengths.front());
}

std::vector<ConvCase::Checkpoint> ConvCase::checkpoints(std::int64_t n) const {
  const TensorId tensor = options_.checkpoints_in_pool ? target() : TensorId::kCheckpoints;
  std::vector<Checkpoint> all;
  const auto add = [&](std::int64_t tokens, std::int64_t row) {
    all.push_back({tokens, {tensor, state_in(tensor, row)}});
  };
  if (problem_.checkpoints == gdn::Checkpoints::kAt) {
    for (std::int64_t i = n * options_.offsets; i < (n + 1) * options_.offsets; ++i) {
      const std::int64_t tokens = integer(TensorId::kCheckpointOffsets, i);
      const std::int64_t row = integer(TensorId::kCheckpointSlots, i);
      if (tokens > 0 && row >= 0 && options_.padding.slot_id != row) add(tokens, row);
    }
    return all;
  }
  const std::int64_t skip = problem_.checkpoints == gdn::Checkpoints::kAfter ? 1 : 0;
  const std::int64_t count = gdn::checkpoints_of(problem_, extent_.lengths[idx(n)]);
  for (std::int64_t i = 0; i < count; ++i) {
    add((i + skip) * problem_.checkpoint_every, first_checkpoint(n) + i);
  }
  return all;
}

TensorId ConvCase::target() const {
  return tensor(TensorId::kStateOut).present() ? TensorId::kStateOut : TensorId::kState;
}

ConvArgs ConvCase::args(std::span<void* const> pieces) const {
  auto args = args_of<ConvArgs>(layout_.tensors(pieces));
  args.scale = options_.scale;
  if (problem_.inputs.gate_mode == gdn::GateMode::kLowerBound) {
    args.lower_bound = options_.lower_bound;
  }
  if (options_.checkpoints_in_pool) {
    args.checkpoints = target() == TensorId::kState ? args.state : args.state_out;
  }
  args.checkpoint_every = options_.checkpoint_every;
  options_.padding.put_into(&args);
  return args;
}

// What makes the reference of a case.
class ConvCase::Reference {
 public:
  explicit Reference(const ConvCase& of) : of_(of), p_(of.problem_), extent_(of.extent_) {
    made_.memory = of.memory_;
    for (const TensorInfo& info : of.layout_.tensors().list) {
      const Tensor& tensor = of.tensor(info.id);
      const bool is_output = is_of_tokens(info.kind) && info.access == gdn::Access::kWritten;
      if (!is_output || !tensor.present()) continue;
      made_.outputs.push_back(
          {info.id, std::vector<double>(idx(elements_of(tensor)), kNotCompared), {}});
    }
  }

  ConvReference take() {
    for (std::int64_t n = 0; n < extent_.sequences(); ++n) add_sequence(n);
    for (std::int64_t i = 0; i < of_.rows() * p_.heads.count(); ++i) add_gates(i);
    return std::move(made_);
  }

 private:
  // A row of all channels.
  template <class Real>
  using Rows = std::vector<std::vector<Real>>;

  ConvReference::Output* output(TensorId which) {
    for (ConvReference::Output& one : made_.outputs) {
      if (one.tensor == which) return &one;
    }
    return nullptr;
  }
  float input(TensorId which, std::int64_t i) const {
    const DType dtype = of_.tensor(which).dtype;
    return load(dtype, element(of_.memory_, which, dtype, i));
  }
  // Of A_log or dt_bias: zeros where it is absent.
  float gate_input(TensorId which, std::int64_t i) const {
    return of_.tensor(which).present() ? input(which, i) : 0;
  }

  void add(TensorId which, std::int64_t i, double exact, float naive) {
    ConvReference::Output& to = *output(which);
    to.values[idx(i)] = exact;
    to.naive.add_naive(rounded(of_.tensor(which).dtype, naive), exact);
  }

  void add_gates(std::int64_t i) {
    const std::int64_t h = i % p_.heads.count();
    const int width = decay_width(p_);
    const auto of_head = [&]<class Real>(Real) {
      gdn::DecodeRefHead<Real> head{.inputs = p_.inputs};
      if (writes_g(p_)) {
        head.lower_bound = of_.options_.lower_bound;
        head.a_log = gate_input(TensorId::kALog, h);
        head.gate = head.dt_bias = {};
        for (int d = 0; d < width; ++d) {
          head.gate.push_back(input(TensorId::kA, i * width + d));
          head.dt_bias.push_back(gate_input(TensorId::kDtBias, h * width + d));
        }
      }
      if (writes_beta(p_)) head.beta = input(TensorId::kB, i);
      return head;
    };
    const auto exact = of_head(double{});
    const auto naive = of_head(float{});
    for (int d = 0; writes_g(p_) && d < width; ++d) {
      add(TensorId::kG, i * width + d, conv_log_decay_ref(exact, idx(d)),
          conv_log_decay_ref(naive, idx(d)));
    }
    if (writes_beta(p_)) add(TensorId::kBeta, i, beta_ref(exact), beta_ref(naive));
  }

  void add_sequence(std::int64_t n) {
    const Place place = of_.place(n);
    if (place.kind == Place::Kind::kSkipped) return;
    if (place.kind == Place::Kind::kZeroed) return add_zeros(n);
    Rows<double> exact(idx(extent_.lengths[idx(n)]));
    Rows<float> naive(exact.size());
    for (std::int64_t c = 0; c < extent_.channels; ++c) {
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
  std::int64_t state_at(TensorId which, std::int64_t state, std::int64_t c,
                        std::int64_t column) const {
    const Tensor& tensor = of_.tensor(which);
    const auto last = static_cast<std::size_t>(tensor.rank) - 1;
    return state + c * tensor.strides[last - 1] + column * tensor.strides[last];
  }

  // All inputs of a channel, from the oldest column that counts on; with the whole window, and
  // before a new sequence, from the first column on.
  std::vector<float> history(std::int64_t n, std::int64_t c, const Place& place) const {
    const std::int64_t first = has_long_window(p_) ? place.start : 0;
    const std::int64_t end = has_long_window(p_) ? first + p_.width - 1 : extent_.columns;
    std::vector<float> inputs;
    for (std::int64_t column = first; column < end; ++column) {
      if (!place.has_initial) {
        inputs.push_back(0);
        continue;
      }
      const std::int64_t at = state_at(TensorId::kState, place.state, c, column % extent_.columns);
      inputs.push_back(input(TensorId::kState, at));
    }
    for (std::int64_t t = 0; t < extent_.lengths[idx(n)]; ++t) {
      inputs.push_back(input(TensorId::kX, of_.row(n, t) * extent_.channels + c));
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
      channel.taps.push_back(input(TensorId::kConvWeight, c * p_.width + i));
    }
    if (p_.has_bias) channel.bias = input(TensorId::kConvBias, c);
    const std::vector<Real> y = conv_ref(channel, std::vector<Real>(first, history.end()));
    for (std::size_t t = 0; t < y.size(); ++t) (*rows)[t].push_back(y[t]);
  }

  // The columns of a channel in a state, from `column` on and around it.  Of a sequence without
  // tokens they are those that it starts from, NaN too.
  void keep(const Written& to, std::int64_t c, std::span<const float> inputs,
            std::int64_t column = 0) {
    const DType dtype = p_.states.dtype;
    for (const float value : inputs) {
      const std::int64_t at = state_at(to.tensor, to.state, c, column++ % extent_.columns);
      store(dtype, element(&made_.memory, to.tensor, dtype, at), value);
    }
  }

  void add_states(std::int64_t n, std::int64_t c, const std::vector<float>& history) {
    const std::span<const float> all(history);
    const std::int64_t tokens = extent_.lengths[idx(n)];
    // The state behind so many tokens.
    const auto behind = [&](std::int64_t count) {
      return all.subspan(idx(count), idx(extent_.columns));
    };
    if (p_.circular_state) {
      const std::int64_t first = p_.width - 1;  // behind the window
      keep(*of_.written(n, 0), c, all.subspan(idx(first)), of_.place(n).start + first);
    } else if (has_long_window(p_)) {
      if (tokens > 0) keep(*of_.written(n, 0), c, all.subspan(1));
    } else if (stores_every(p_)) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::optional<Written> to = of_.written(n, t);
        if (to) keep(*to, c, behind(t + 1));
      }
    } else if (p_.states.store) {
      keep(*of_.written(n, 0), c, behind(tokens));
    }
    for (const Checkpoint& one : of_.checkpoints(n)) keep(one.to, c, behind(one.tokens));
  }

  // The outputs of a token.
  void add_row(std::int64_t row, std::vector<double>* exact, std::vector<float>* naive) {
    if (!p_.split_qkv) return add_part(TensorId::kY, row, *exact, *naive);
    std::int64_t first = 0;
    const auto add_heads = [&](TensorId which, int heads, int dim, bool normed, float scale) {
      const std::vector<double> y = part(*exact, first, heads, dim, normed, double{scale});
      add_part(which, row, y, part(*naive, first, heads, dim, normed, scale));
      first += std::int64_t{heads} * dim;
    };
    const bool normed = norm_heads(p_) > 0;
    add_heads(TensorId::kQ, p_.heads.q, p_.key_dim, normed, of_.options_.scale);
    add_heads(TensorId::kK, p_.heads.k, p_.key_dim, normed, 1);
    add_heads(TensorId::kV, p_.heads.v, p_.value_dim, false, 1);
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

  void add_part(TensorId which, std::int64_t row, const std::vector<double>& exact,
                const std::vector<float>& naive) {
    const auto width = static_cast<std::int64_t>(exact.size());
    for (std::int64_t c = 0; c < width; ++c) {
      add(which, row * width + c, exact[idx(c)], naive[idx(c)]);
    }
  }

  // Padding: outputs of the convolution, not of the gates.
  void add_zeros(std::int64_t n) {
    for (const ConvReference::Output& one : made_.outputs) {
      if (one.tensor == TensorId::kG || one.tensor == TensorId::kBeta) continue;
      const DType dtype = of_.tensor(one.tensor).dtype;
      const auto width = static_cast<std::int64_t>(one.values.size()) / of_.rows();
      std::byte* const from = element(&made_.memory, one.tensor, dtype, of_.row(n, 0) * width);
      const std::int64_t count = extent_.lengths[idx(n)] * width;
      std::fill(from, from + count * size_of(dtype), std::byte{});
    }
  }

  const ConvCase& of_;
  const ConvProblem& p_;
  const Extent& extent_;
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
  verdict.fault = first_difference(after, expected, tensor_name<ConvArgs>);
  if (!verdict.fault.empty()) verdict.fault += " is not what it should be";
  return verdict;
}

}  // namespace cubinery
