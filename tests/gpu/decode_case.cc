#include "tests/gpu/decode_case.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tuner/gdn/rounding.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::GateMode;

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

template <class Real>
std::vector<Real> values(const Operand& tensor, const std::vector<std::byte>& bytes, std::int64_t n,
                         std::int64_t h, int count) {
  std::vector<Real> result(static_cast<std::size_t>(count));
  for (int d = 0; d < count; ++d) {
    result[static_cast<std::size_t>(d)] =
        load(tensor.view.dtype, bytes.data() + tensor.offset(n, h, d));
  }
  return result;
}

}  // namespace

DecodeCase::DecodeCase(const Gpu& gpu, const gdn::DecodeProblem& problem, std::int64_t batch,
                       const CaseOptions& options)
    : gpu_(gpu),
      problem_(problem),
      options_(options),
      batch_(batch),
      heads_(problem.heads()),
      states_(gpu, StateRules(problem), batch, options) {
  make_tensors();
  fill_rows();
  fill_gates();
  upload();
}

void DecodeCase::make_tensors() {
  const gdn::DecodeProblem& p = problem_;
  q_ = tensor(p.dtype, p.q_heads, p.key_dim);
  k_ = tensor(p.dtype, p.k_heads, p.key_dim);
  v_ = tensor(p.dtype, p.v_heads, p.value_dim);
  if (options_.placement == Placement::kPackedRows) {
    const std::int64_t q_channels = std::int64_t{p.q_heads} * p.key_dim;
    const std::int64_t k_channels = std::int64_t{p.k_heads} * p.key_dim;
    const std::int64_t channels = q_channels + k_channels + std::int64_t{p.v_heads} * p.value_dim;
    q_.storage = k_.storage = v_.storage = make_storage(gpu_, batch_ * channels, p.dtype);
    k_.first = q_channels;
    v_.first = q_channels + k_channels;
    for (Operand* operand : {&q_, &k_, &v_}) {
      operand->batch_stride = operand->view.strides[0] = channels;
      place(operand);
    }
  }
  o_ = tensor(p.output_dtype, heads_, p.value_dim);
  if (p.gate_mode != GateMode::kNone) gate_ = tensor(p.gate_dtype, heads_, 0);
  if (p.beta_mode != BetaMode::kOne) beta_ = tensor(p.beta_dtype, heads_, 0);
  if (p.gate_mode == GateMode::kComputed) {
    a_log_ = make_vector(gpu_, p.a_log_dtype, heads_, options_.placement);
    dt_bias_ = make_vector(gpu_, p.dt_bias_dtype, heads_, options_.placement);
  }
}

// [batch, heads, dim], or [batch, heads] for dim = 0, in the case's placement.
Operand DecodeCase::tensor(DType dtype, std::int64_t heads, std::int64_t dim) const {
  const std::int64_t width = std::max<std::int64_t>(dim, 1);
  Operand operand{.head_stride = width};
  operand.batch_stride = heads * width;
  if (options_.placement == Placement::kTransposedHeads) {
    operand.batch_stride = width;
    operand.head_stride = batch_ * width;
  } else if (options_.placement == Placement::kRank4) {
    operand.batch_stride = heads * width + 16;
  } else if (options_.placement == Placement::kUnaligned) {
    operand.first = 1;
    operand.head_stride = width + 1;
    operand.batch_stride = heads * (width + 1) + 1;
  }
  operand.view.dtype = dtype;
  add_dimension(&operand.view, batch_, operand.batch_stride);
  if (options_.placement == Placement::kRank4) {
    add_dimension(&operand.view, 1, operand.batch_stride);
  }
  add_dimension(&operand.view, heads, operand.head_stride);
  if (dim != 0) add_dimension(&operand.view, dim, 1);
  const std::int64_t last = operand.first +
                            std::max<std::int64_t>(batch_ - 1, 0) * operand.batch_stride +
                            (heads - 1) * operand.head_stride + width;
  operand.storage = make_storage(gpu_, batch_ == 0 ? 0 : last, dtype);
  place(&operand);
  return operand;
}

void DecodeCase::fill_rows() {
  const auto fill = [&](const Operand& operand, DataStream stream, std::int64_t heads, int dim) {
    const bool raw = stream == DataStream::kV || problem_.use_qk_l2norm;
    for (std::int64_t unit = 0; unit < batch_ * heads; ++unit) {
      const std::int64_t n = unit / heads, h = unit % heads;
      store_row(operand.view.dtype, operand.at(n, h),
                RowSource(options_.data(), stream, n, h, dim, raw).next());
    }
  };
  fill(q_, DataStream::kQ, problem_.q_heads, problem_.key_dim);
  fill(k_, DataStream::kK, problem_.k_heads, problem_.key_dim);
  fill(v_, DataStream::kV, problem_.v_heads, problem_.value_dim);
}

void DecodeCase::fill_gates() {
  const auto put = [](const Operand& operand, std::int64_t n, std::int64_t h, float value) {
    if (operand.storage) store(operand.view.dtype, operand.at(n, h), value);
  };
  for (std::int64_t h = 0; h < heads_; ++h) {
    const GateSource head(problem_.gate_mode, problem_.beta_mode, options_.data(), 0, h);
    put(a_log_, h, 0, head.a_log());
    put(dt_bias_, h, 0, head.dt_bias());
    for (std::int64_t n = 0; n < batch_; ++n) {
      GateSource source(problem_.gate_mode, problem_.beta_mode, options_.data(), n, h);
      put(gate_, n, h, source.next_gate());
      put(beta_, n, h, source.next_beta());
    }
  }
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
  states_.bind(&args);
  args.scale = options_.scale;
  args.programmatic = options_.programmatic;
  return args;
}

gdn::DecodeArgs DecodeCase::args(std::int64_t first, std::int64_t count) const {
  gdn::DecodeArgs args = this->args();
  for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.g, &args.beta, &args.o}) {
    slice(tensor, 0, first, count);
  }
  states_.bind(&args, first, count);
  return args;
}

std::vector<const Operand*> DecodeCase::operands() const {
  std::vector<const Operand*> all{&q_, &k_, &v_, &gate_, &beta_, &a_log_, &dt_bias_, &o_};
  for (const Operand* operand : states_.operands()) all.push_back(operand);
  return all;
}

Results DecodeCase::download() const {
  Results results{.o = test::download(o_)};
  states_.download(&results);
  return results;
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
  const auto row = [&](const Operand& operand, int heads, int dim) {
    return values<Real>(operand, operand.storage->bytes, n, h / (heads_ / heads), dim);
  };
  head.q = row(q_, problem_.q_heads, problem_.key_dim);
  head.k = row(k_, problem_.k_heads, problem_.key_dim);
  head.v = row(v_, problem_.v_heads, problem_.value_dim);
  if (gate_.storage) head.gate = load(gate_.view.dtype, gate_.at(n, h));
  if (beta_.storage) head.beta = load(beta_.view.dtype, beta_.at(n, h));
  if (a_log_.storage) head.a_log = load(a_log_.view.dtype, a_log_.at(h, 0));
  if (dt_bias_.storage) head.dt_bias = load(dt_bias_.view.dtype, dt_bias_.at(h, 0));
  return head;
}
template gdn::DecodeRefHead<double> DecodeCase::head(std::int64_t, std::int64_t) const;
template gdn::DecodeRefHead<float> DecodeCase::head(std::int64_t, std::int64_t) const;

Verdict DecodeCase::check(const Results& results) const {
  Verdict verdict;
  std::mutex mutex;
  parallel_for(batch_ * heads_, [&](std::int64_t unit) {
    const std::int64_t n = unit / heads_;
    if (states_.row(n).kind != RowKind::kComputed) return;
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
  std::vector<double> state = states_.initial<double>(n, h), o(idx(problem_.value_dim));
  std::vector<float> naive_state = states_.initial<float>(n, h), naive_o(idx(problem_.value_dim));
  gdn_decode_ref(head<double>(n, h), state.data(), o.data());
  gdn_decode_ref(head<float>(n, h), naive_state.data(), naive_o.data());
  const std::vector<double> actual = values<double>(o_, results.o, n, h, problem_.value_dim);
  for (std::int64_t d = 0; d < problem_.value_dim; ++d) {
    verdict->o.add(actual[idx(d)], rounded(o_.view.dtype, naive_o[idx(d)]), o[idx(d)],
                   {n, h, 0, d, 0});
  }
  const std::int64_t slot = states_.row(n).write;
  if (slot == kNowhere) return;
  states_.compare(states_.target(), states_.target_of(results), slot, naive_state, state, {n, h},
                  &verdict->state);
}

// The rows whose outputs are not computed from their own slot.
std::string DecodeCase::check_row(std::int64_t n, const Results& results) const {
  for (std::int64_t h = 0; h < heads_; ++h) {
    const std::string fault = output_fault(
        states_.row(n).kind, values<float>(o_, results.o, n, h, problem_.value_dim), n, h);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string DecodeCase::check_untouched(const Results& results) const {
  Results expected{.o = o_.storage->bytes};
  states_.before(&expected);
  for (std::int64_t n = 0; n < batch_; ++n) {
    const Row row = states_.row(n);
    states_.forgive_written(row, results, &expected);
    if (row.kind == RowKind::kSkipped) continue;
    for (std::int64_t h = 0; h < heads_; ++h) {
      forgive(results.o, &expected.o, o_.offset(n, h), problem_.value_dim * size_of(o_.view.dtype));
    }
  }
  return first_difference(results, expected);
}

}  // namespace cubinery::test
