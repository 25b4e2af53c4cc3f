#include "tests/gpu/gdn_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <sstream>

#include "tests/rounding.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::Padding;
using gdn::PadIndex;
using gdn::StateLayout;
using gdn::StateLocation;

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

std::int64_t element(const std::vector<std::byte>& bytes, const Operand& indices, std::int64_t n) {
  const std::byte* at = bytes.data() + indices.offset(n, 0);
  if (indices.view.dtype == DType::kI64) {
    std::int64_t value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::int32_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <class Real>
std::vector<Real> values(const Operand& tensor, std::int64_t n, std::int64_t h, int count) {
  std::vector<Real> result(static_cast<std::size_t>(count));
  for (int d = 0; d < count; ++d) {
    result[static_cast<std::size_t>(d)] = load(tensor.view.dtype, tensor.at(n, h, d));
  }
  return result;
}

}  // namespace

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
}

void Comparison::add(double actual_value, double naive_value, double expected_value,
                     const std::array<std::int64_t, 4>& at) {
  naive = std::max(naive, distance(naive_value, expected_value));
  if (std::isfinite(expected_value)) magnitude = std::max(magnitude, std::abs(expected_value));
  const double error = distance(actual_value, expected_value);
  if (error <= worst) return;
  worst = error;
  actual = actual_value;
  expected = expected_value;
  index = at;
}

void Comparison::merge(const Comparison& other) {
  naive = std::max(naive, other.naive);
  magnitude = std::max(magnitude, other.magnitude);
  if (other.worst <= worst) return;
  worst = other.worst;
  actual = other.actual;
  expected = other.expected;
  index = other.index;
}

// A naive result that is not finite where the reference is would make any budget: it never passes.
bool Comparison::ok() const { return std::isfinite(naive) && worst <= budget(); }

std::string Comparison::text(const char* name) const {
  std::ostringstream out;
  out.precision(9);
  out << name << ": worst at request " << index[0] << ", head " << index[1] << ", element ("
      << index[2] << ", " << index[3] << "): " << actual << ", reference " << expected << ", error "
      << worst << " = " << 100 * worst / budget() << " % of the budget (naive error " << naive
      << ")";
  return out.str();
}

gdn::DecodeArgs DecodeCase::args() const {
  gdn::DecodeArgs args;
  args.q = q_.view;
  args.k = k_.view;
  args.v = v_.view;
  args.g = gate_.view;
  args.beta = beta_.view;
  args.A_log = a_log_.view;
  args.dt_bias = dt_bias_.view;
  args.o = o_.view;
  args.state = state_.view;
  args.state_out = state_out_.view;
  args.state_indices = read_.view;
  args.state_out_indices = write_.view;
  args.scratch_slot = options_.scratch_slot;
  args.scale = options_.scale;
  args.programmatic = options_.programmatic;
  return args;
}

gdn::DecodeArgs DecodeCase::args(std::int64_t first, std::int64_t count) const {
  gdn::DecodeArgs args = this->args();
  const auto slice = [&](Tensor* tensor) {
    if (!tensor->present()) return;
    tensor->data =
        static_cast<std::byte*>(tensor->data) + first * tensor->strides[0] * size_of(tensor->dtype);
    tensor->shape[0] = count;
  };
  for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.g, &args.beta, &args.o,
                         &args.state_indices, &args.state_out_indices}) {
    slice(tensor);
  }
  if (problem_.state_location == StateLocation::kDense) {
    slice(&args.state);
    slice(&args.state_out);
  }
  return args;
}

void DecodeCase::upload() const {
  for (const Operand* operand : {&q_, &k_, &v_, &gate_, &beta_, &a_log_, &dt_bias_, &o_, &state_,
                                 &state_out_, &read_, &write_}) {
    if (operand->storage) operand->storage->device.upload(operand->storage->bytes);
  }
}

Results DecodeCase::download() const {
  const auto bytes_of = [](const Operand& operand) {
    return operand.storage ? operand.storage->device.download() : std::vector<std::byte>();
  };
  return {bytes_of(o_), bytes_of(state_), bytes_of(state_out_)};
}

bool DecodeCase::guards_intact() const {
  for (const Operand* operand : {&q_, &k_, &v_, &gate_, &beta_, &a_log_, &dt_bias_, &o_, &state_,
                                 &state_out_, &read_, &write_}) {
    if (operand->storage && !operand->storage->device.guards_intact()) return false;
  }
  return true;
}

DecodeCase::Row DecodeCase::row(std::int64_t n) const {
  const auto stored = [&](std::int64_t slot) { return problem_.store_state ? slot : kNowhere; };
  if (problem_.state_location == StateLocation::kDense) {
    return {RowKind::kComputed, n, stored(n)};
  }
  const auto padded = [&](std::int64_t slot) {
    if (problem_.padding == Padding::kNone) return false;
    return problem_.pad_index == PadIndex::kNegative ? slot < 0 : slot == 0;
  };
  const std::int64_t read = element(read_.storage->bytes, read_, n);
  const std::int64_t write = write_.storage ? element(write_.storage->bytes, write_, n) : read;
  if (padded(read)) {
    if (problem_.padding == Padding::kSkip) return {RowKind::kSkipped, 0, 0};
    if (problem_.padding == Padding::kZero) return {RowKind::kZeroed, 0, 0};
    std::int64_t sharing = 0;
    for (std::int64_t other = 0; other < batch_; ++other) {
      sharing += padded(element(read_.storage->bytes, read_, other)) ? 1 : 0;
    }
    return {sharing == 1 ? RowKind::kComputed : RowKind::kShared, options_.scratch_slot,
            stored(options_.scratch_slot)};
  }
  // A padding write index drops the new state, or sends it to the scratch slot.
  if (padded(write)) {
    const bool scratch = problem_.padding == Padding::kScratch;
    return {RowKind::kComputed, read, scratch ? stored(options_.scratch_slot) : kNowhere};
  }
  const auto outside = [&](std::int64_t slot) { return slot < 0 || slot >= slots_; };
  if (outside(read) || outside(write)) return {RowKind::kInvalid, 0, 0};
  return {RowKind::kComputed, read, stored(write)};
}

// Where S[i][j] lies in a stored matrix.
std::int64_t DecodeCase::matrix_offset(std::int64_t i, std::int64_t j) const {
  return problem_.state_layout == StateLayout::kKV ? i * problem_.value_dim + j
                                                   : j * problem_.key_dim + i;
}

template <class Real>
gdn::DecodeRefHead<Real> DecodeCase::head(std::int64_t n, std::int64_t h) const {
  gdn::DecodeRefHead<Real> head{.key_dim = problem_.key_dim,
                                .value_dim = problem_.value_dim,
                                .gate_mode = problem_.gate_mode,
                                .beta_mode = problem_.beta_mode,
                                .use_qk_l2norm = problem_.use_qk_l2norm};
  head.scale = options_.scale ? static_cast<Real>(*options_.scale)
                              : 1 / std::sqrt(static_cast<Real>(problem_.key_dim));
  head.q = values<Real>(q_, n, h / (heads_ / problem_.q_heads), problem_.key_dim);
  head.k = values<Real>(k_, n, h / (heads_ / problem_.k_heads), problem_.key_dim);
  head.v = values<Real>(v_, n, h / (heads_ / problem_.v_heads), problem_.value_dim);
  if (gate_.storage) head.gate = load(gate_.view.dtype, gate_.at(n, h));
  if (beta_.storage) head.beta = load(beta_.view.dtype, beta_.at(n, h));
  if (a_log_.storage) head.a_log = load(a_log_.view.dtype, a_log_.at(h, 0));
  if (dt_bias_.storage) head.dt_bias = load(dt_bias_.view.dtype, dt_bias_.at(h, 0));
  return head;
}
template gdn::DecodeRefHead<double> DecodeCase::head(std::int64_t, std::int64_t) const;
template gdn::DecodeRefHead<float> DecodeCase::head(std::int64_t, std::int64_t) const;

template <class Real>
std::vector<Real> DecodeCase::state_matrix(const Operand& tensor,
                                           const std::vector<std::byte>& bytes, std::int64_t slot,
                                           std::int64_t h) const {
  std::vector<Real> matrix(idx(problem_.key_dim) * idx(problem_.value_dim));
  for (std::int64_t i = 0; i < problem_.key_dim; ++i) {
    for (std::int64_t j = 0; j < problem_.value_dim; ++j) {
      matrix[idx(i * problem_.value_dim + j)] =
          load(tensor.view.dtype, bytes.data() + tensor.offset(slot, h, matrix_offset(i, j)));
    }
  }
  return matrix;
}
template std::vector<double> DecodeCase::state_matrix(const Operand&, const std::vector<std::byte>&,
                                                      std::int64_t, std::int64_t) const;
template std::vector<float> DecodeCase::state_matrix(const Operand&, const std::vector<std::byte>&,
                                                     std::int64_t, std::int64_t) const;

Verdict DecodeCase::check(const Results& results) const {
  Verdict verdict;
  std::mutex mutex;
  parallel_for(batch_ * heads_, [&](std::int64_t unit) {
    const std::int64_t n = unit / heads_;
    if (row(n).kind != RowKind::kComputed) return;
    Verdict one;
    check_head(n, unit % heads_, results, &one);
    const std::scoped_lock lock(mutex);
    verdict.o.merge(one.o);
    verdict.state.merge(one.state);
  });
  for (std::int64_t n = 0; n < batch_ && verdict.fault.empty(); ++n) {
    verdict.fault = check_row(n, results);
  }
  if (verdict.fault.empty()) verdict.fault = check_untouched(results);
  return verdict;
}

void DecodeCase::check_head(std::int64_t n, std::int64_t h, const Results& results,
                            Verdict* verdict) const {
  const Row slots = row(n);
  const std::size_t matrix = idx(problem_.key_dim) * idx(problem_.value_dim);
  std::vector<double> state(matrix), o(idx(problem_.value_dim));
  std::vector<float> naive_state(matrix), naive_o(idx(problem_.value_dim));
  if (problem_.has_initial_state) {
    state = state_matrix<double>(state_, state_.storage->bytes, slots.read, h);
    naive_state = state_matrix<float>(state_, state_.storage->bytes, slots.read, h);
  }
  gdn_decode_ref(head<double>(n, h), state.data(), o.data());
  gdn_decode_ref(head<float>(n, h), naive_state.data(), naive_o.data());
  for (std::int64_t d = 0; d < problem_.value_dim; ++d) {
    verdict->o.add(load(o_.view.dtype, results.o.data() + o_.offset(n, h, d)),
                   rounded(o_.view.dtype, naive_o[idx(d)]), o[idx(d)], {n, h, d, 0});
  }
  if (slots.write == kNowhere) return;
  const bool separate = state_out_.storage != nullptr;
  const Operand& target = separate ? state_out_ : state_;
  const std::vector<double> actual =
      state_matrix<double>(target, separate ? results.state_out : results.state, slots.write, h);
  for (std::size_t e = 0; e < matrix; ++e) {
    const auto i = static_cast<std::int64_t>(e) / problem_.value_dim;
    const auto j = static_cast<std::int64_t>(e) % problem_.value_dim;
    verdict->state.add(actual[e], rounded(target.view.dtype, naive_state[e]), state[e],
                       {n, h, i, j});
  }
}

// The rows whose outputs are not computed from their own slot.
std::string DecodeCase::check_row(std::int64_t n, const Results& results) const {
  const RowKind kind = row(n).kind;
  if (kind == RowKind::kComputed || kind == RowKind::kSkipped) return "";
  for (std::int64_t h = 0; h < heads_; ++h) {
    for (std::int64_t d = 0; d < problem_.value_dim; ++d) {
      const float value = load(o_.view.dtype, results.o.data() + o_.offset(n, h, d));
      const bool good = kind == RowKind::kZeroed    ? value == 0
                        : kind == RowKind::kInvalid ? std::isnan(value)
                                                    : std::isfinite(value);
      if (good) continue;
      std::ostringstream out;
      out << "o of request " << n << ", head " << h << ", element " << d << " is " << value
          << ", expected "
          << (kind == RowKind::kZeroed    ? "0 (padding)"
              : kind == RowKind::kInvalid ? "NaN (no such slot)"
                                          : "a finite value (scratch slot)");
      return out.str();
    }
  }
  return "";
}

std::string DecodeCase::check_untouched(const Results& results) const {
  Results expected{o_.storage->bytes,
                   state_.storage ? state_.storage->bytes : std::vector<std::byte>(),
                   state_out_.storage ? state_out_.storage->bytes : std::vector<std::byte>()};
  for (std::int64_t n = 0; n < batch_; ++n) forgive_written(n, results, &expected);
  const auto first_difference = [](const char* name, const std::vector<std::byte>& after,
                                   const std::vector<std::byte>& before) -> std::string {
    const auto [a, b] = std::mismatch(after.begin(), after.end(), before.begin(), before.end());
    if (a == after.end() && b == before.end()) return "";
    return std::string(name) + ": byte " + std::to_string(a - after.begin()) + " of " +
           std::to_string(before.size()) + " was written by no request of the batch, but changed";
  };
  std::string fault = first_difference("o", results.o, expected.o);
  if (fault.empty()) fault = first_difference("state", results.state, expected.state);
  if (fault.empty()) fault = first_difference("state_out", results.state_out, expected.state_out);
  return fault;
}

// Copies what request n may write from the results to what is expected.
void DecodeCase::forgive_written(std::int64_t n, const Results& results, Results* expected) const {
  const Row slots = row(n);
  if (slots.kind == RowKind::kSkipped) return;
  const auto copy = [](const std::vector<std::byte>& from, std::vector<std::byte>* to,
                       std::size_t offset, std::int64_t count) {
    std::memcpy(to->data() + offset, from.data() + offset, idx(count));
  };
  for (std::int64_t h = 0; h < heads_; ++h) {
    copy(results.o, &expected->o, o_.offset(n, h), problem_.value_dim * size_of(o_.view.dtype));
    const bool writes = slots.kind == RowKind::kComputed || slots.kind == RowKind::kShared;
    if (!writes || slots.write == kNowhere) continue;
    const bool separate = state_out_.storage != nullptr;
    const Operand& target = separate ? state_out_ : state_;
    copy(separate ? results.state_out : results.state,
         separate ? &expected->state_out : &expected->state, target.offset(slots.write, h),
         std::int64_t{problem_.key_dim} * problem_.value_dim * size_of(target.view.dtype));
  }
}

}  // namespace cubinery::test
