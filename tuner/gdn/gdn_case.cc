#include "tuner/gdn/gdn_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tuner/gdn/rounding.h"

namespace cubinery {
namespace {

using gdn::Checkpoints;
using gdn::Padding;

constexpr std::size_t kLeastGap = 256;  // between tensors
constexpr std::byte kPoison{0xff};
constexpr std::size_t kPadded = 1;        // the sequence that is padding, where there is any
constexpr std::int64_t kSpareSlots = 3;   // of pools
constexpr std::int64_t kScratchSlot = 0;  // no sequence has it as its own

std::size_t offset_of(const Tensor& tensor) { return reinterpret_cast<std::size_t>(tensor.data); }

void store_integer(DType dtype, std::byte* to, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  const bool wide = dtype == DType::kI64;
  std::memcpy(to, wide ? static_cast<const void*>(&value) : &narrow,
              wide ? sizeof(value) : sizeof(narrow));
}

// `naive` as a tensor of `dtype` holds it.
void add_naive(DType dtype, const std::vector<float>& naive, const std::vector<double>& expected,
               Comparison* comparison) {
  for (std::size_t e = 0; e < naive.size(); ++e) {
    comparison->add_naive(rounded(dtype, naive[e]), expected[e]);
  }
}

}  // namespace

void GdnComparison::merge(const GdnComparison& other) {
  o.merge(other.o);
  state.merge(other.state);
  checkpoints.merge(other.checkpoints);
}

GdnCase::GdnCase(const gdn::PrefillProblem& problem, std::vector<std::int64_t> lengths,
                 const DataOptions& data, int chunk_size)
    : problem_(problem), data_(data), chunk_size_(chunk_size), heads_(problem.heads()) {
  place_sequences(lengths);
  extent_.lengths = std::move(lengths);
  extent_.slots = extent_.sequences() + kSpareSlots;
  lay_out();
  fill_indices();
  fill_rows(tensors_.q, DataStream::kQ, problem.q_heads, problem.key_dim);
  fill_rows(tensors_.k, DataStream::kK, problem.k_heads, problem.key_dim);
  fill_rows(tensors_.v, DataStream::kV, problem.v_heads, problem.value_dim);
  fill_gates();
  fill_states();
  units_.resize(sequences_.size() * idx(heads_));
}

void GdnCase::place_sequences(const std::vector<std::int64_t>& lengths) {
  const auto count = static_cast<std::int64_t>(lengths.size());
  const bool pool = problem_.state_location == gdn::StateLocation::kPool;
  Random random(data_.seed, static_cast<std::uint64_t>(DataStream::kIndices));
  const std::vector<std::int64_t> slots = random.permutation(1, count + kSpareSlots - 1);
  std::int64_t first = 0;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    Sequence sequence{.length = lengths[n],
                      .first = problem_.varlen ? first : 0,
                      .slot = pool ? slots[n] : static_cast<std::int64_t>(n),
                      .first_checkpoint = extent_.checkpoints};
    if (n == kPadded && problem_.padding != Padding::kNone) {
      sequence.slot = kScratchSlot;
      if (problem_.padding == Padding::kSkip) sequence.kind = Kind::kSkipped;
      if (problem_.padding == Padding::kZero) sequence.kind = Kind::kZeroed;
    }
    first += lengths[n];
    // Packed sequences that are not computed need no room for checkpoints; dense ones have it.
    if (sequence.kind == Kind::kComputed || !problem_.varlen) {
      extent_.checkpoints += checkpoints_of(problem_, lengths[n]);
    }
    sequences_.push_back(sequence);
  }
}

void GdnCase::lay_out() {
  tensors_ = tensors_of(problem_, extent_);
  std::size_t end = kLeastGap;
  for (const auto& [name, member] : kTensors) {
    Tensor& tensor = tensors_.*member;
    if (!tensor.present()) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an offset, until args() adds a base.
    tensor.data = reinterpret_cast<void*>(end);
    end += aligned(bytes_of(tensor) + kLeastGap);
  }
  image_.assign(end, kPoison);
}

void GdnCase::fill_indices() {
  const auto put = [&](const Tensor& tensor, std::size_t i, std::int64_t value) {
    if (!tensor.present()) return;
    const std::size_t at = offset_of(tensor) + i * idx(size_of(tensor.dtype));
    store_integer(tensor.dtype, image_.data() + at, value);
  };
  const std::int64_t padding = problem_.pad_index == gdn::PadIndex::kNegative ? -1 : 0;
  for (std::size_t n = 0; n < sequences_.size(); ++n) {
    const bool padded = n == kPadded && problem_.padding != Padding::kNone;
    put(tensors_.state_indices, n, padded ? padding : sequences_[n].slot);
    put(tensors_.cu_seqlens, n, sequences_[n].first);
    put(tensors_.checkpoint_cu_starts, n, sequences_[n].first_checkpoint);
  }
  put(tensors_.cu_seqlens, sequences_.size(), extent_.tokens());
  put(tensors_.checkpoint_cu_starts, sequences_.size(), extent_.checkpoints);
}

void GdnCase::fill_rows(const Tensor& tensor, DataStream stream, int heads, int dim) {
  const bool raw = stream == DataStream::kV || problem_.use_qk_l2norm;
  const int size = size_of(tensor.dtype);
  for (std::size_t n = 0; n < sequences_.size(); ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      RowSource source(data_, stream, static_cast<std::int64_t>(n), h, dim, raw);
      for (std::int64_t t = 0; t < sequences_[n].length; ++t) {
        std::byte* to = image_.data() + row_at(tensor, sequences_[n], t, h);
        for (const float value : source.next()) {
          store(tensor.dtype, to, value);
          to += size;
        }
      }
    }
  }
}

void GdnCase::fill_gates() {
  const auto put = [&](const Tensor& tensor, std::size_t at, float value) {
    if (tensor.present()) store(tensor.dtype, image_.data() + at, value);
  };
  const auto vector_at = [&](const Tensor& tensor, std::int64_t h) {
    return offset_of(tensor) + idx(h * size_of(tensor.dtype));
  };
  for (std::size_t n = 0; n < sequences_.size(); ++n) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      GateSource source(problem_.gate_mode, problem_.beta_mode, data_, static_cast<std::int64_t>(n),
                        h);
      put(tensors_.A_log, vector_at(tensors_.A_log, h), source.a_log());
      put(tensors_.dt_bias, vector_at(tensors_.dt_bias, h), source.dt_bias());
      for (std::int64_t t = 0; t < sequences_[n].length; ++t) {
        put(tensors_.g, row_at(tensors_.g, sequences_[n], t, h), source.next_gate());
        put(tensors_.beta, row_at(tensors_.beta, sequences_[n], t, h), source.next_beta());
      }
    }
  }
}

// States that must not be read keep all bits set: NaN.
void GdnCase::fill_states() {
  if (!problem_.has_initial_state) return;
  const std::int64_t rows = tensors_.state.shape[0];
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      Random random = random_of(data_.seed, DataStream::kState, row, h);
      std::byte* to = image_.data() + matrix_at(tensors_.state, row, h);
      for (std::int64_t e = 0; e < matrix_elements(); ++e) {
        store(problem_.state_dtype, to, random.normal());
        to += size_of(problem_.state_dtype);
      }
    }
  }
}

gdn::PrefillArgs GdnCase::args(void* base) const {
  gdn::PrefillArgs args = tensors_;
  for (const auto& [name, member] : kTensors) {
    Tensor& tensor = args.*member;
    if (tensor.present()) tensor.data = static_cast<std::byte*>(base) + offset_of(tensor);
  }
  if (problem_.padding == Padding::kScratch) args.scratch_slot = kScratchSlot;
  return args;
}

std::size_t GdnCase::row_at(const Tensor& tensor, const Sequence& sequence, std::int64_t t,
                            std::int64_t head) const {
  if (!tensor.present()) return 0;
  const std::int64_t number = &sequence - sequences_.data();
  return offset_of(tensor) + idx(row_element(problem_, tensor, number, sequence.first + t, head) *
                                 size_of(tensor.dtype));
}

std::size_t GdnCase::matrix_at(const Tensor& tensor, std::int64_t row, std::int64_t head) const {
  return offset_of(tensor) +
         idx((row * heads_ + head) * matrix_elements() * size_of(problem_.state_dtype));
}

// From the start of a matrix to S[i][j].
std::size_t GdnCase::state_offset(int i, int j) const {
  const bool kv = problem_.state_layout == gdn::StateLayout::kKV;
  const int element = kv ? i * problem_.value_dim + j : j * problem_.key_dim + i;
  return idx(element) * idx(size_of(problem_.state_dtype));
}

template <class Real>
gdn::PrefillRefHead<Real> GdnCase::head(const Sequence& sequence, std::int64_t h) const {
  const gdn::PrefillProblem& p = problem_;
  gdn::PrefillRefHead<Real> head{.key_dim = p.key_dim,
                                 .value_dim = p.value_dim,
                                 .gate_mode = p.gate_mode,
                                 .beta_mode = p.beta_mode,
                                 .use_qk_l2norm = p.use_qk_l2norm,
                                 .scale = 1 / std::sqrt(static_cast<Real>(p.key_dim))};
  const auto append = [&](const Tensor& tensor, std::int64_t heads, int width,
                          std::vector<Real>* to) {
    if (!tensor.present()) return;
    for (std::int64_t t = 0; t < sequence.length; ++t) {
      const std::byte* row = image_.data() + row_at(tensor, sequence, t, h / (heads_ / heads));
      for (std::int64_t d = 0; d < width; ++d)
        to->push_back(load(tensor.dtype, row + idx(d * size_of(tensor.dtype))));
    }
  };
  append(tensors_.q, p.q_heads, p.key_dim, &head.q);
  append(tensors_.k, p.k_heads, p.key_dim, &head.k);
  append(tensors_.v, p.v_heads, p.value_dim, &head.v);
  append(tensors_.g, heads_, 1, &head.gate);
  append(tensors_.beta, heads_, 1, &head.beta);
  if (p.gate_mode != gdn::GateMode::kComputed) return head;
  head.a_log =
      load(p.a_log_dtype, image_.data() + offset_of(tensors_.A_log) + h * size_of(p.a_log_dtype));
  head.dt_bias = load(p.dt_bias_dtype,
                      image_.data() + offset_of(tensors_.dt_bias) + h * size_of(p.dt_bias_dtype));
  return head;
}

template <class Real>
std::vector<Real> GdnCase::initial_state(const Sequence& sequence, std::int64_t h) const {
  std::vector<Real> state(idx(matrix_elements()));
  if (!problem_.has_initial_state) return state;
  const std::byte* const matrix = image_.data() + matrix_at(tensors_.state, sequence.slot, h);
  auto to = state.begin();
  for (int i = 0; i < problem_.key_dim; ++i) {
    for (int j = 0; j < problem_.value_dim; ++j) {
      *to++ = load(problem_.state_dtype, matrix + state_offset(i, j));
    }
  }
  return state;
}

// Both arithmetics, by spans between checkpoints.
void GdnCase::compute(std::size_t number) {
  const Sequence& sequence = sequences_[number / idx(heads_)];
  if (sequence.kind != Kind::kComputed) return;
  const auto h = static_cast<std::int64_t>(number % idx(heads_));
  Unit& unit = units_[number];
  const auto exact = head<double>(sequence, h);
  const auto plain = head<float>(sequence, h);
  unit.state = initial_state<double>(sequence, h);
  std::vector<float> naive_state = initial_state<float>(sequence, h);
  unit.o.resize(exact.v.size());
  std::vector<float> naive_o(unit.o.size());
  const auto round = [&](float x) { return rounded_operand(problem_.dtype, x); };
  const auto keep = [&](Checkpoints when) {
    if (problem_.checkpoints != when) return;
    unit.checkpoints.insert(unit.checkpoints.end(), unit.state.begin(), unit.state.end());
    add_naive(problem_.state_dtype, naive_state, unit.state, &unit.naive.checkpoints);
  };
  const bool keeps = problem_.checkpoints != Checkpoints::kNone;
  const int span = keeps ? problem_.checkpoint_every : std::max(exact.tokens(), 1);
  for (int first = 0; first < exact.tokens(); first += span) {
    const int last = std::min(first + span, exact.tokens());
    keep(Checkpoints::kBefore);
    gdn_prefill_ref(exact, first, last, unit.state.data(), unit.o.data());
    if (chunk_size_ == 0) {
      gdn_prefill_ref(plain, first, last, naive_state.data(), naive_o.data());
    } else {
      gdn_prefill_chunked_ref(plain, chunk_size_, first, last, round, naive_state.data(),
                              naive_o.data());
    }
    if (last - first == span) keep(Checkpoints::kAfter);
  }
  add_naive(problem_.output_dtype, naive_o, unit.o, &unit.naive.o);
  if (problem_.store_state) {
    add_naive(problem_.state_dtype, naive_state, unit.state, &unit.naive.state);
  }
}

void GdnCase::compare_matrix(std::span<const std::byte> matrix, const double* expected,
                             Comparison::Index at, Comparison* comparison) const {
  for (int i = 0; i < problem_.key_dim; ++i) {
    at[3] = i;
    for (int j = 0; j < problem_.value_dim; ++j) {
      at[4] = j;
      const double actual = load(problem_.state_dtype, matrix.data() + state_offset(i, j));
      comparison->add_actual(actual, *expected++, at);
    }
  }
}

GdnComparison GdnCase::compare(std::size_t number, std::span<const std::byte> after) const {
  const Unit& unit = units_[number];
  const auto n = static_cast<std::int64_t>(number) / heads_;
  const auto h = static_cast<std::int64_t>(number) % heads_;
  const Sequence& sequence = sequences_[idx(n)];
  if (sequence.kind != Kind::kComputed) return {};
  GdnComparison comparison = unit.naive;
  for (std::int64_t t = 0; t < sequence.length; ++t) {
    const std::byte* const row = after.data() + row_at(tensors_.o, sequence, t, h);
    const double* const expected = unit.o.data() + t * problem_.value_dim;
    for (std::int64_t d = 0; d < problem_.value_dim; ++d) {
      const double actual =
          load(problem_.output_dtype, row + idx(d * size_of(problem_.output_dtype)));
      comparison.o.add_actual(actual, expected[d], {n, h, t, d, 0});
    }
  }
  const std::int64_t kept = checkpoints_of(problem_, sequence.length);
  for (std::int64_t c = 0; c < kept; ++c) {
    compare_matrix(after.subspan(matrix_at(tensors_.checkpoints, sequence.first_checkpoint + c, h)),
                   unit.checkpoints.data() + c * matrix_elements(), {n, h, c},
                   &comparison.checkpoints);
  }
  if (problem_.store_state) {
    compare_matrix(after.subspan(matrix_at(tensors_.state, sequence.slot, h)), unit.state.data(),
                   {n, h}, &comparison.state);
  }
  return comparison;
}

// Makes what this sequence and head may write what it was; says what is wrong with zeroed rows.
std::string GdnCase::restore(const Sequence& sequence, std::int64_t head,
                             std::span<std::byte> after) const {
  const auto put_back = [&](std::size_t at, std::int64_t elements, DType dtype) {
    std::memcpy(after.data() + at, image_.data() + at, idx(elements * size_of(dtype)));
  };
  if (sequence.kind == Kind::kSkipped) return "";
  for (std::int64_t t = 0; t < sequence.length; ++t) {
    const std::size_t at = row_at(tensors_.o, sequence, t, head);
    for (std::int64_t d = 0; sequence.kind == Kind::kZeroed && d < problem_.value_dim; ++d) {
      const float value =
          load(problem_.output_dtype, after.data() + at + idx(d * size_of(problem_.output_dtype)));
      if (value != 0) return fmt::format("o of padding is {}, expected 0", value);
    }
    put_back(at, problem_.value_dim, problem_.output_dtype);
  }
  if (sequence.kind == Kind::kZeroed) return "";
  const DType dtype = problem_.state_dtype;
  for (std::int64_t c = 0; c < checkpoints_of(problem_, sequence.length); ++c) {
    put_back(matrix_at(tensors_.checkpoints, sequence.first_checkpoint + c, head),
             matrix_elements(), dtype);
  }
  if (problem_.store_state) {
    put_back(matrix_at(tensors_.state, sequence.slot, head), matrix_elements(), dtype);
  }
  return "";
}

std::string GdnCase::fault(std::span<std::byte> after) const {
  for (const Sequence& sequence : sequences_) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      std::string fault = restore(sequence, h, after);
      if (!fault.empty()) return fault;
    }
  }
  if (std::memcmp(after.data(), image_.data(), image_.size()) == 0) return "";
  const auto [changed, before] = std::mismatch(after.begin(), after.end(), image_.begin());
  const auto at = static_cast<std::size_t>(changed - after.begin());
  const char* nearest = "the first tensor";
  for (const auto& [name, member] : kTensors) {
    const Tensor& tensor = tensors_.*member;
    if (tensor.present() && offset_of(tensor) <= at) nearest = name;
  }
  return fmt::format("writes in or around {} where no sequence may", nearest);
}

}  // namespace cubinery
