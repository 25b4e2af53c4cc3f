// What a launch of a GdnCase must give, and whether it did.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/case.h"
#include "harness/reference.h"
#include "harness/rounding.h"

namespace cubinery {
namespace {

using gdn::Checkpoints;

// The reference goes by spans of this many tokens: whole chunks of every size.
constexpr std::int64_t kSpan = 1024;

// `naive` as a tensor of `dtype` holds it.
void add_naive(DType dtype, const std::vector<float>& naive, const double* expected,
               Deviation* deviation) {
  for (const float value : naive) deviation->add_naive(rounded(dtype, value), *expected++);
}

// What is wrong with a row whose values are not compared.  Empty when nothing is.
std::string value_fault(RowKind kind, const std::vector<float>& values) {
  for (std::size_t d = 0; d < values.size(); ++d) {
    const float value = values[d];
    const bool good = kind == RowKind::kZeroed    ? value == 0
                      : kind == RowKind::kInvalid ? std::isnan(value)
                                                  : std::isfinite(value);
    if (good) continue;
    const char* const expected = kind == RowKind::kZeroed    ? "0 (padding)"
                                 : kind == RowKind::kInvalid ? "NaN (an index that cannot be)"
                                                             : "a finite value (scratch slot)";
    return fmt::format("element {} is {}, expected {}", d, value, expected);
  }
  return "";
}

}  // namespace

void GdnDeviations::merge(const GdnDeviations& other) {
  o.merge(other.o);
  state.merge(other.state);
  checkpoints.merge(other.checkpoints);
}

bool GdnCase::malformed() const {
  if (!problem_.varlen) return false;
  bool malformed = start(0) < 0 || start(sequences_) > tokens_;
  for (std::int64_t n = 0; n < sequences_; ++n) malformed |= start(n + 1) < start(n);
  return malformed;
}

bool GdnCase::is_fresh(std::int64_t n) const {
  const std::int64_t every = options_.fresh_every;
  return layout_.tensors().has(TensorId::kHasInitialState) && n % every == every - 1;
}

// By the indices alone.
Row GdnCase::slots_of(std::int64_t n) const {
  const TensorSet& tensors = layout_.tensors();
  const auto stored = [&](std::int64_t slot) { return problem_.states.store ? slot : kNowhere; };
  if (!tensors.has(TensorId::kStateIndices)) return {RowKind::kComputed, n, stored(n)};
  const Padding& padding = options_.padding;
  const std::int64_t scratch = padding.scratch.value_or(kNowhere);
  const std::int64_t read = integer(TensorId::kStateIndices, n);
  const std::int64_t write =
      tensors.has(TensorId::kStateOutIndices) ? integer(TensorId::kStateOutIndices, n) : read;
  if (padding.is(read)) {
    if (!padding.is_computed()) {
      return {padding.zero ? RowKind::kZeroed : RowKind::kSkipped, 0, 0};
    }
    int sharing = 0;
    for (std::int64_t other = 0; other < sequences_; ++other) {
      sharing += padding.is(integer(TensorId::kStateIndices, other)) ? 1 : 0;
    }
    return {sharing == 1 ? RowKind::kComputed : RowKind::kShared, scratch, stored(scratch)};
  }
  // A padding write index drops the new state, or sends it to the scratch slot.
  if (padding.is(write)) {
    return {RowKind::kComputed, read, padding.is_computed() ? stored(scratch) : kNowhere};
  }
  const auto outside = [&](std::int64_t slot) {
    return slot < 0 || slot >= tensors[TensorId::kState].shape[0];
  };
  if (outside(read) || outside(write)) return {RowKind::kInvalid, 0, 0};
  return {RowKind::kComputed, read, stored(write)};
}

bool GdnCase::is_tree(std::int64_t n) const {
  if (!options_.parents) return true;
  for (std::int64_t t = 0; t < length(n); ++t) {
    if (parent(n, t) < -1 || parent(n, t) >= t) return false;
  }
  return true;
}

Row GdnCase::row(std::int64_t n, bool malformed) const {
  if (malformed) return {RowKind::kInvalid, 0, 0};
  const Row row = slots_of(n);
  if (row.runs() && !is_tree(n)) return {RowKind::kInvalid, 0, 0};
  return !row.runs() || checkpoints_fit(n) ? row : Row{RowKind::kInvalid, 0, 0};
}

bool GdnCase::checkpoints_fit(std::int64_t n) const {
  const std::int64_t rows = layout_.tensors()[checkpoint_target()].shape[0];
  if (problem_.checkpoints == Checkpoints::kAt) {
    std::int64_t before = 0;
    for (const Checkpoint& one : at_offsets(n)) {
      if (one.row >= rows || one.tokens <= before || one.tokens > length(n)) return false;
      if (one.tokens % offset_grain(problem_) != 0) return false;
      before = one.tokens;
    }
    return true;
  }
  if (problem_.checkpoints == Checkpoints::kNone || !problem_.varlen) return true;
  const std::int64_t first = first_checkpoint(n), end = first_checkpoint(n + 1);
  return first >= 0 && end <= rows && end - first >= checkpoints_of(problem_, length(n));
}

std::vector<Row> GdnCase::rows() const {
  const bool malformed = this->malformed();
  std::vector<Row> rows;
  for (std::int64_t n = 0; n < sequences_; ++n) rows.push_back(row(n, malformed));
  return rows;
}

std::vector<float> GdnCase::operand(TensorId tensor, std::int64_t n, std::int64_t t,
                                    std::int64_t of, int width) const {
  if (tensor == TensorId::kConvState) {
    return conv_inputs(memory_, tensor, slots_of(n).read, of);
  }
  if (info_of(tensor).kind == TensorKind::kTaps) {
    std::vector<float> taps;
    taps.reserve(idx(width));
    for (int i = 0; i < width; ++i) {
      taps.push_back(values_at(memory_, tensor, tap_at(tensor, of, i), 1)[0]);
    }
    return taps;
  }
  if (!layout_.tensors().has(tensor)) return std::vector<float>(idx(width));  // A_log, dt_bias
  const bool has_tokens = is_of_tokens(info_of(tensor).kind);
  return values_at(memory_, tensor, has_tokens ? row_at(tensor, n, t, of) : vector_at(tensor, of),
                   width);
}

template <class Real>
gdn::PrefillRefHead<Real> GdnCase::head(std::int64_t n, std::int64_t h, std::int64_t first,
                                        std::int64_t last) const {
  auto head = reference_head<Real>(problem_, options_.scale, h, first, last,
                                   [&](TensorId tensor, std::int64_t t, std::int64_t of,
                                       int width) { return operand(tensor, n, t, of, width); });
  head.lower_bound = options_.lower_bound;
  return head;
}
template gdn::PrefillRefHead<double> GdnCase::head(std::int64_t, std::int64_t, std::int64_t,
                                                   std::int64_t) const;
template gdn::PrefillRefHead<float> GdnCase::head(std::int64_t, std::int64_t, std::int64_t,
                                                  std::int64_t) const;

template <class Real>
std::vector<Real> GdnCase::initial_state(std::int64_t n, std::int64_t h) const {
  if (problem_.states.has_initial && !is_fresh(n)) {
    return matrix_values<Real>(memory_, TensorId::kState, slots_of(n).read, h);
  }
  return std::vector<Real>(matrix_elements());
}
template std::vector<double> GdnCase::initial_state(std::int64_t, std::int64_t) const;
template std::vector<float> GdnCase::initial_state(std::int64_t, std::int64_t) const;

// Goes on by a span of tokens.
void GdnCase::advance(std::int64_t n, std::int64_t h, std::int64_t first, std::int64_t last,
                      std::vector<float>* naive_state, GdnReference* reference) const {
  std::vector<double> o(idx((last - first) * problem_.value_dim));
  std::vector<float> naive_o(o.size());
  const auto plain = head<float>(n, h, first, last);
  gdn_prefill_ref(head<double>(n, h, first, last), reference->state.data(), o.data());
  if (options_.chunk_size == 0) {
    gdn_prefill_ref(plain, naive_state->data(), naive_o.data());
  } else {
    gdn_prefill_chunked_ref(
        plain, options_.chunk_size, [&](float x) { return rounded_operand(problem_.dtype, x); },
        naive_state->data(), naive_o.data());
  }
  const auto read = [&](TensorId tensor, std::int64_t t, std::int64_t of, int width) {
    return operand(tensor, n, t, of, width);
  };
  norm_outputs(problem_, options_.norm_eps, h, first, last, read, o.data());
  norm_outputs(problem_, options_.norm_eps, h, first, last, read, naive_o.data());
  add_naive(problem_.output_dtype, naive_o, o.data(), &reference->naive.o);
  reference->o.insert(reference->o.end(), o.begin(), o.end());
}

GdnReference GdnCase::reference(std::int64_t n, std::int64_t h, const Row& row) const {
  GdnReference made;
  if (row.kind != RowKind::kComputed) return made;
  struct States {
    std::vector<double> exact;
    std::vector<float> naive;
  };
  const States initial{initial_state<double>(n, h), initial_state<float>(n, h)};
  std::vector<States> after;  // each token of a tree
  made.state = initial.exact;
  std::vector<float> naive_state = initial.naive;
  const auto keep = [&](Checkpoints when) {
    if (problem_.checkpoints != when) return;
    made.checkpoints.insert(made.checkpoints.end(), made.state.begin(), made.state.end());
    add_naive(problem_.states.dtype, naive_state, made.state.data(), &made.naive.checkpoints);
  };
  const bool keeps = problem_.checkpoints != Checkpoints::kNone;
  const std::vector<Checkpoint> all = checkpoints(n);
  const bool one_each = options_.round_each_token || options_.parents;
  const std::int64_t span = one_each ? 1 : keeps ? problem_.checkpoint_every : kSpan;
  for (std::int64_t first = 0; first < length(n); first += span) {
    const std::int64_t last = std::min(first + span, length(n));
    if (options_.parents) {
      const std::int64_t from = parent(n, first);
      const States& states = from < 0 ? initial : after[idx(from)];
      made.state = states.exact;
      naive_state = states.naive;
    }
    keep(Checkpoints::kBefore);
    advance(n, h, first, last, &naive_state, &made);
    for (float& value : naive_state) {
      if (options_.round_each_token) value = rounded(problem_.states.dtype, value);
    }
    if (last - first == span) keep(Checkpoints::kAfter);
    for (const Checkpoint& one : all) {
      if (one.tokens == last) keep(Checkpoints::kAt);
    }
    if (options_.parents) after.push_back({made.state, naive_state});
  }
  if (row.writes()) {
    add_naive(problem_.states.dtype, naive_state, made.state.data(), &made.naive.state);
  }
  return made;
}

std::vector<GdnReference> GdnCase::references() const {
  const std::vector<Row> rows = this->rows();
  std::vector<GdnReference> all(units());
  on_all_processors(all.size(), [&](std::size_t unit) {
    const auto n = static_cast<std::int64_t>(unit) / heads_;
    all[unit] = reference(n, static_cast<std::int64_t>(unit) % heads_, rows[idx(n)]);
  });
  return all;
}

void GdnCase::compare_matrix(const GdnMemory& after, TensorId tensor, std::int64_t row,
                             std::span<const double> expected, Deviation::Index at,
                             Deviation* deviation) const {
  const std::vector<double> actual = matrix_values<double>(after, tensor, row, at[1]);
  for (std::size_t e = 0; e < actual.size(); ++e) {
    at[3] = static_cast<std::int64_t>(e) / problem_.value_dim;
    at[4] = static_cast<std::int64_t>(e) % problem_.value_dim;
    deviation->add_actual(actual[e], expected[e], at);
  }
}

GdnDeviations GdnCase::compare(std::int64_t n, std::int64_t h, const Row& row,
                               const GdnReference& expected, const GdnMemory& after) const {
  GdnDeviations deviation = expected.naive;
  if (!options_.has_outputs) deviation.o = {};
  const double* o = expected.o.data();
  for (std::int64_t t = 0; t < length(n) && options_.has_outputs; ++t) {
    const std::vector<float> actual = row_values(after, TensorId::kO, n, t, h, problem_.value_dim);
    for (std::int64_t d = 0; d < problem_.value_dim; ++d) {
      deviation.o.add_actual(actual[idx(d)], *o++, {n, h, t, d, 0});
    }
  }
  const std::size_t elements = matrix_elements();
  const std::vector<Checkpoint> all = checkpoints(n);
  for (std::size_t c = 0; c * elements < expected.checkpoints.size(); ++c) {
    const auto number = static_cast<std::int64_t>(c);
    compare_matrix(after, checkpoint_target(), all[c].row,
                   std::span(expected.checkpoints).subspan(c * elements, elements), {n, h, number},
                   &deviation.checkpoints);
  }
  if (row.writes()) {
    compare_matrix(after, target(), row.write, expected.state, {n, h}, &deviation.state);
  }
  return deviation;
}

GdnVerdict GdnCase::check(const GdnMemory& after, std::span<const GdnReference> references) const {
  const std::vector<Row> rows = this->rows();
  std::vector<GdnDeviations> each(units());
  on_all_processors(each.size(), [&](std::size_t unit) {
    const auto n = static_cast<std::int64_t>(unit) / heads_;
    const auto h = static_cast<std::int64_t>(unit) % heads_;
    const Row& row = rows[idx(n)];
    if (row.kind != RowKind::kComputed) return;
    each[unit] = references.empty() ? compare(n, h, row, reference(n, h, row), after)
                                    : compare(n, h, row, references[unit], after);
  });
  GdnVerdict verdict{.fault = fault(rows, after)};
  for (const GdnDeviations& one : each) verdict.errors.merge(one);
  return verdict;
}

// Rows that are not computed from the sequence's own slot.
std::string GdnCase::row_fault(std::int64_t n, RowKind kind, const GdnMemory& after) const {
  if (kind == RowKind::kComputed || kind == RowKind::kSkipped || !options_.has_outputs) return "";
  // Of a malformed batch every token is invalid, also those of no sequence.
  const bool all = malformed();
  const std::int64_t begin = all ? -start(n) : 0, end = all ? tokens_ - start(n) : length(n);
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      const std::string fault =
          value_fault(kind, row_values(after, TensorId::kO, n, t, h, problem_.value_dim));
      if (fault.empty()) continue;
      return fmt::format("o of sequence {}, head {}, token {}: {}", n, h, t, fault);
    }
  }
  return "";
}

void GdnCase::forgive(const GdnMemory& after, const Place& place, std::size_t count,
                      GdnMemory* expected) const {
  std::memcpy((*expected)[place.piece].data() + place.byte, after[place.piece].data() + place.byte,
              count);
}

std::size_t GdnCase::output_row_bytes() const {
  return idx(problem_.value_dim) * idx(size_of(problem_.output_dtype));
}

// All that the sequence may write.
void GdnCase::forgive_written(std::int64_t n, const Row& row, const GdnMemory& after,
                              GdnMemory* expected) const {
  for (std::int64_t h = 0; h < heads_; ++h) {
    const bool has_rows = row.kind != RowKind::kSkipped && options_.has_outputs;
    for (std::int64_t t = 0; t < length(n) && has_rows; ++t) {
      forgive(after, row_at(TensorId::kO, n, t, h), output_row_bytes(), expected);
    }
    if (row.writes()) forgive(after, matrix_at(target(), row.write, h), matrix_bytes(), expected);
    for (const Checkpoint& one : row.runs() ? checkpoints(n) : std::vector<Checkpoint>()) {
      forgive(after, matrix_at(checkpoint_target(), one.row, h), matrix_bytes(), expected);
    }
  }
}

// The new state of a convolution: the old one's inputs and the token's, bit for bit.
void GdnCase::expect_conv_state(std::int64_t n, const Row& row, const GdnMemory& after,
                                GdnMemory* expected) const {
  if (!problem_.conv.is_there() || !row.writes()) return;
  const DType dtype = problem_.conv.state_dtype;
  const int columns = conv_columns(problem_);
  for (std::int64_t c = 0; c < conv_split(problem_).end; ++c) {
    std::vector<float> inputs(idx(columns));
    if (problem_.states.has_initial) {
      inputs = conv_inputs(memory_, TensorId::kConvState, row.read, c);
    }
    inputs.push_back(row_values(memory_, TensorId::kX, n, 0, c, 1)[0]);
    for (int i = 0; i < columns; ++i) {
      const Place place = conv_state_at(conv_target(), row.write, c, i);
      const float input = inputs[idx(i + 1)];
      // A NaN has many bits.
      const bool is_nan =
          std::isnan(input) && std::isnan(load(dtype, after[place.piece].data() + place.byte));
      if (row.kind == RowKind::kShared || is_nan) {
        forgive(after, place, idx(size_of(dtype)), expected);
      } else {
        store(dtype, (*expected)[place.piece].data() + place.byte, input);
      }
    }
  }
}

std::string GdnCase::fault(const std::vector<Row>& rows, const GdnMemory& after) const {
  for (std::int64_t n = 0; n < sequences_; ++n) {
    std::string fault = row_fault(n, rows[idx(n)].kind, after);
    if (!fault.empty()) return fault;
  }
  GdnMemory expected = memory_;
  if (malformed()) {
    const std::int64_t written = options_.has_outputs ? tokens_ * heads_ : 0;
    for (std::int64_t unit = 0; unit < written; ++unit) {
      forgive(after, layout_.row_at(TensorId::kO, 0, unit / heads_, unit % heads_),
              output_row_bytes(), &expected);
    }
  } else {
    for (std::int64_t n = 0; n < sequences_; ++n) {
      forgive_written(n, rows[idx(n)], after, &expected);
      expect_conv_state(n, rows[idx(n)], after, &expected);
    }
  }
  const std::string difference = first_difference(after, expected);
  if (difference.empty()) return "";
  return fmt::format("writes in or around {}, where no sequence may", difference);
}

}  // namespace cubinery
