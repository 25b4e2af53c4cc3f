#include "tests/gpu/state_case.h"

#include <cmath>
#include <sstream>

#include "tuner/gdn/rounding.h"

namespace cubinery::test {
namespace {

using gdn::Padding;
using gdn::PadIndex;

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

StateCase::StateCase(const Gpu& gpu, const StateRules& rules, std::int64_t batch,
                     const CaseOptions& options)
    : rules_(rules),
      batch_(batch),
      scratch_slot_(options.scratch_slot),
      head_gap_(options.head_gap) {
  const bool two = options.write_indices || !options.write.empty();
  slots_ = options.slots != 0 ? options.slots : rules.pool ? (two ? 2 : 1) * batch + 3 : batch;
  if (rules.has_initial_state || rules.store_state) {
    state_ = matrices(gpu, slots_, options.slot_gap);
  }
  if (options.separate_out) state_out_ = matrices(gpu, slots_, options.out_slot_gap);
  if (rules.pool) make_indices(gpu, options);
  if (rules.has_initial_state) fill(options);
}

Operand StateCase::matrices(const Gpu& gpu, std::int64_t rows, std::int64_t row_gap) const {
  const bool kv = rules_.layout == gdn::StateLayout::kKV;
  const std::int64_t height = kv ? rules_.key_dim : rules_.value_dim;
  const std::int64_t width = kv ? rules_.value_dim : rules_.key_dim;
  Operand operand{.head_stride = height * width + head_gap_};
  operand.batch_stride = rules_.heads * operand.head_stride + row_gap;
  operand.view = {.dtype = rules_.dtype,
                  .rank = 4,
                  .shape = {rows, rules_.heads, height, width},
                  .strides = {operand.batch_stride, operand.head_stride, width, 1}};
  operand.storage = make_storage(gpu, rows * operand.batch_stride, rules_.dtype);
  place(&operand);
  return operand;
}

void StateCase::make_indices(const Gpu& gpu, const CaseOptions& options) {
  Random random(options.seed, static_cast<std::uint64_t>(DataStream::kIndices));
  const std::vector<std::int64_t> order = random.permutation(1, slots_ - 1);
  const auto filled = [&](const std::vector<std::int64_t>& given, std::int64_t skip) {
    Operand operand = make_vector(gpu, rules_.index_dtype, batch_, options.placement);
    for (std::int64_t n = 0; n < batch_; ++n) {
      store_index(operand, n, given.empty() ? order.at(idx(skip + n)) : given.at(idx(n)));
    }
    return operand;
  };
  read_ = filled(options.read, 0);
  if (options.write_indices || !options.write.empty()) write_ = filled(options.write, batch_);
}

// Random matrices; gaps keep their poison.  A state that must not be read is NaN everywhere.
void StateCase::fill(const CaseOptions& options) {
  parallel_for(slots_ * rules_.heads, [&](std::int64_t unit) {
    const std::int64_t slot = unit / rules_.heads, h = unit % rules_.heads;
    Random random = random_of(options.seed, DataStream::kState, slot, h);
    for (std::int64_t e = 0; e < matrix_elements(); ++e) {
      store(rules_.dtype, state_.at(slot, h, e), random.normal());
    }
  });
}

Row StateCase::row(std::int64_t n) const {
  const auto stored = [&](std::int64_t slot) { return rules_.store_state ? slot : kNowhere; };
  if (!rules_.pool) return {RowKind::kComputed, n, stored(n)};
  const auto padded = [&](std::int64_t slot) {
    if (rules_.padding == Padding::kNone) return false;
    return rules_.pad_index == PadIndex::kNegative ? slot < 0 : slot == 0;
  };
  const std::int64_t read = load_index(read_, n);
  const std::int64_t write = write_.storage ? load_index(write_, n) : read;
  if (padded(read)) {
    if (rules_.padding == Padding::kSkip) return {RowKind::kSkipped, 0, 0};
    if (rules_.padding == Padding::kZero) return {RowKind::kZeroed, 0, 0};
    std::int64_t sharing = 0;
    for (std::int64_t other = 0; other < batch_; ++other) {
      sharing += padded(load_index(read_, other)) ? 1 : 0;
    }
    return {sharing == 1 ? RowKind::kComputed : RowKind::kShared, scratch_slot_,
            stored(scratch_slot_)};
  }
  // A padding write index drops the new state, or sends it to the scratch slot.
  if (padded(write)) {
    const bool scratch = rules_.padding == Padding::kScratch;
    return {RowKind::kComputed, read, scratch ? stored(scratch_slot_) : kNowhere};
  }
  const auto outside = [&](std::int64_t slot) { return slot < 0 || slot >= slots_; };
  if (outside(read) || outside(write)) return {RowKind::kInvalid, 0, 0};
  return {RowKind::kComputed, read, stored(write)};
}

// Where S[i][j] lies in a stored matrix.
std::int64_t StateCase::matrix_offset(std::int64_t i, std::int64_t j) const {
  return rules_.layout == gdn::StateLayout::kKV ? i * rules_.value_dim + j : j * rules_.key_dim + i;
}

template <class Real>
std::vector<Real> StateCase::matrix(const Operand& tensor, const std::vector<std::byte>& bytes,
                                    std::int64_t slot, std::int64_t h) const {
  std::vector<Real> matrix(idx(matrix_elements()));
  for (std::int64_t i = 0; i < rules_.key_dim; ++i) {
    for (std::int64_t j = 0; j < rules_.value_dim; ++j) {
      matrix[idx(i * rules_.value_dim + j)] =
          load(tensor.view.dtype, bytes.data() + tensor.offset(slot, h, matrix_offset(i, j)));
    }
  }
  return matrix;
}
template std::vector<double> StateCase::matrix(const Operand&, const std::vector<std::byte>&,
                                               std::int64_t, std::int64_t) const;
template std::vector<float> StateCase::matrix(const Operand&, const std::vector<std::byte>&,
                                              std::int64_t, std::int64_t) const;

template <class Real>
std::vector<Real> StateCase::initial(std::int64_t n, std::int64_t h) const {
  if (!rules_.has_initial_state) return std::vector<Real>(idx(matrix_elements()));
  return matrix<Real>(state_, state_.storage->bytes, row(n).read, h);
}
template std::vector<double> StateCase::initial(std::int64_t, std::int64_t) const;
template std::vector<float> StateCase::initial(std::int64_t, std::int64_t) const;

void StateCase::compare(const Operand& tensor, const std::vector<std::byte>& bytes,
                        std::int64_t slot, const std::vector<float>& naive,
                        const std::vector<double>& expected, Comparison::Index at,
                        Comparison* comparison) const {
  const std::vector<double> actual = matrix<double>(tensor, bytes, slot, at[1]);
  for (std::size_t e = 0; e < actual.size(); ++e) {
    at[3] = static_cast<std::int64_t>(e) / rules_.value_dim;
    at[4] = static_cast<std::int64_t>(e) % rules_.value_dim;
    comparison->add(actual[e], rounded(tensor.view.dtype, naive[e]), expected[e], at);
  }
}

void StateCase::download(Results* results) const {
  results->state = test::download(state_);
  results->state_out = test::download(state_out_);
}

void StateCase::before(Results* results) const {
  if (state_.storage) results->state = state_.storage->bytes;
  if (state_out_.storage) results->state_out = state_out_.storage->bytes;
}

void StateCase::forgive_written(const Row& row, const Results& results, Results* expected) const {
  if (!row.writes()) return;
  for (std::int64_t h = 0; h < rules_.heads; ++h) {
    forgive(target_of(results), state_out_.storage ? &expected->state_out : &expected->state,
            target().offset(row.write, h), matrix_bytes());
  }
}

std::string output_fault(RowKind kind, const std::vector<float>& values, std::int64_t n,
                         std::int64_t h) {
  if (kind == RowKind::kComputed || kind == RowKind::kSkipped) return "";
  for (std::size_t d = 0; d < values.size(); ++d) {
    const float value = values[d];
    const bool good = kind == RowKind::kZeroed    ? value == 0
                      : kind == RowKind::kInvalid ? std::isnan(value)
                                                  : std::isfinite(value);
    if (good) continue;
    std::ostringstream out;
    out << "o of request " << n << ", head " << h << ", element " << d << " is " << value
        << ", expected "
        << (kind == RowKind::kZeroed    ? "0 (padding)"
            : kind == RowKind::kInvalid ? "NaN (an index that cannot be)"
                                        : "a finite value (scratch slot)");
    return out.str();
  }
  return "";
}

}  // namespace cubinery::test
