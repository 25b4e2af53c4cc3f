// Making and filling the tensors of a PrefillCase.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/gpu/prefill_case.h"
#include "tuner/gdn/gdn_tensors.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::GateMode;
using gdn::TokenLayout;

std::int64_t token_count(const gdn::PrefillProblem& problem, const PrefillShape& shape) {
  if (!problem.varlen) return shape.lengths.empty() ? 0 : shape.lengths[0];
  return std::accumulate(shape.lengths.begin(), shape.lengths.end(), shape.lead + shape.tail);
}

}  // namespace

PrefillCase::PrefillCase(const Gpu& gpu, const gdn::PrefillProblem& problem,
                         const PrefillShape& shape, const CaseOptions& options)
    : gpu_(gpu),
      problem_(problem),
      options_(options),
      sequences_(static_cast<std::int64_t>(shape.lengths.size())),
      batch_(problem.varlen ? 1 : sequences_),
      tokens_(token_count(problem, shape)),
      heads_(problem.heads()),
      states_(gpu, StateRules(problem), sequences_, options) {
  make_tensors(shape);
  make_checkpoints(shape);
  fill_rows();
  fill_gates();
  upload();
}

void PrefillCase::make_tensors(const PrefillShape& shape) {
  const gdn::PrefillProblem& p = problem_;
  q_ = tensor(p.dtype, p.q_heads, p.key_dim);
  k_ = tensor(p.dtype, p.k_heads, p.key_dim);
  v_ = tensor(p.dtype, p.v_heads, p.value_dim);
  if (options_.placement == Placement::kPackedRows) pack_rows();
  o_ = tensor(p.output_dtype, heads_, p.value_dim);
  if (p.gate_mode != GateMode::kNone) gate_ = tensor(p.gate_dtype, heads_, 0);
  if (p.beta_mode != BetaMode::kOne) beta_ = tensor(p.beta_dtype, heads_, 0);
  if (p.gate_mode == GateMode::kComputed) {
    a_log_ = make_vector(gpu_, p.a_log_dtype, heads_, options_.placement);
    dt_bias_ = make_vector(gpu_, p.dt_bias_dtype, heads_, options_.placement);
  }
  if (!p.varlen) return;
  std::vector<std::int64_t> bounds{shape.lead};
  for (const std::int64_t length : shape.lengths) bounds.push_back(bounds.back() + length);
  cu_seqlens_ = starts(bounds);
}

void PrefillCase::make_checkpoints(const PrefillShape& shape) {
  if (problem_.checkpoints == Checkpoints::kNone) return;
  std::vector<std::int64_t> bounds{problem_.varlen ? shape.spare_checkpoints : 0};
  for (const std::int64_t length : shape.lengths) {
    const std::int64_t spare = problem_.varlen ? shape.spare_checkpoints : 0;
    bounds.push_back(bounds.back() + checkpoints_of(problem_, length) + spare);
  }
  checkpoints_ = states_.matrices(gpu_, bounds.back(), options_.slot_gap);
  if (problem_.varlen) checkpoint_cu_starts_ = starts(bounds);
}

Operand PrefillCase::starts(const std::vector<std::int64_t>& values) const {
  Operand operand = make_vector(gpu_, problem_.cu_seqlens_dtype,
                                static_cast<std::int64_t>(values.size()), options_.placement);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_index(operand, static_cast<std::int64_t>(i), values[i]);
  }
  return operand;
}

// q, k and v become slices of one [batch, tokens, channels] tensor.
void PrefillCase::pack_rows() {
  const std::int64_t q_channels = std::int64_t{problem_.q_heads} * problem_.key_dim;
  const std::int64_t k_channels = std::int64_t{problem_.k_heads} * problem_.key_dim;
  const std::int64_t channels =
      q_channels + k_channels + std::int64_t{problem_.v_heads} * problem_.value_dim;
  q_.storage = k_.storage = v_.storage =
      make_storage(gpu_, batch_ * tokens_ * channels, problem_.dtype);
  k_.first = q_channels;
  v_.first = q_channels + k_channels;
  const auto t = static_cast<std::size_t>(token_dimension());
  for (Operand* operand : {&q_, &k_, &v_}) {
    operand->token_stride = operand->view.strides[t] = channels;
    operand->batch_stride = std::max<std::int64_t>(tokens_, 1) * channels;
    if (!packed_rank3()) operand->view.strides[0] = operand->batch_stride;
    place(operand);
  }
}

bool PrefillCase::packed_rank3() const {
  return problem_.varlen && options_.placement != Placement::kRank4;
}

int PrefillCase::token_dimension() const {
  const int before = problem_.token_layout == TokenLayout::kBHTD ? 1 : 0;
  return (packed_rank3() ? 0 : 1) + before;
}

void PrefillCase::set_strides(Operand* operand, std::int64_t heads, std::int64_t width) const {
  const std::int64_t tokens = std::max<std::int64_t>(tokens_, 1);
  const bool heads_first = (problem_.token_layout == TokenLayout::kBHTD) !=
                           (options_.placement == Placement::kTransposedHeads);
  const std::int64_t gap = options_.placement == Placement::kRank4 ? 16 : 0;
  if (options_.placement == Placement::kUnaligned) {
    operand->first = 1;
    operand->head_stride = width + 1;
    operand->token_stride = heads * (width + 1) + 1;
    operand->batch_stride = tokens * operand->token_stride + 1;
  } else if (heads_first && options_.placement != Placement::kPackedRows) {
    operand->token_stride = width + gap;
    operand->head_stride = tokens * operand->token_stride + gap;
    operand->batch_stride = heads * operand->head_stride + gap;
  } else {
    operand->head_stride = width;
    operand->token_stride = heads * width + gap;
    operand->batch_stride = tokens * operand->token_stride + gap;
  }
}

// [batch, tokens, heads, dim], or without dim for dim = 0; heads before tokens and packed as the
// problem says, in the case's placement.
Operand PrefillCase::tensor(DType dtype, std::int64_t heads, std::int64_t dim) const {
  const std::int64_t width = std::max<std::int64_t>(dim, 1);
  Operand operand;
  set_strides(&operand, heads, width);
  Tensor& view = operand.view;
  view.dtype = dtype;
  if (!packed_rank3()) add_dimension(&view, batch_, operand.batch_stride);
  const bool heads_first = problem_.token_layout == TokenLayout::kBHTD;
  if (heads_first) add_dimension(&view, heads, operand.head_stride);
  add_dimension(&view, tokens_, operand.token_stride);
  if (!heads_first) add_dimension(&view, heads, operand.head_stride);
  if (dim != 0) add_dimension(&view, dim, 1);
  const std::int64_t last = operand.first + (batch_ - 1) * operand.batch_stride +
                            (tokens_ - 1) * operand.token_stride +
                            (heads - 1) * operand.head_stride + width;
  operand.storage = make_storage(gpu_, batch_ * tokens_ == 0 ? 0 : last, dtype);
  place(&operand);
  return operand;
}

void PrefillCase::fill_rows() {
  const auto fill = [&](const Operand& operand, DataStream stream, std::int64_t heads, int dim) {
    const bool raw = stream == DataStream::kV || problem_.use_qk_l2norm;
    parallel_for(sequences_ * heads, [&](std::int64_t unit) {
      const std::int64_t n = unit / heads, h = unit % heads;
      RowSource source(options_.data(), stream, n, h, dim, raw);
      for (std::int64_t t = 0; t < length(n); ++t) {
        store_row(operand.view.dtype, operand.storage->bytes.data() + row_offset(operand, n, t, h),
                  source.next());
      }
    });
  };
  fill(q_, DataStream::kQ, problem_.q_heads, problem_.key_dim);
  fill(k_, DataStream::kK, problem_.k_heads, problem_.key_dim);
  fill(v_, DataStream::kV, problem_.v_heads, problem_.value_dim);
}

void PrefillCase::fill_gates() {
  for (std::int64_t h = 0; h < heads_ && a_log_.storage; ++h) {
    const GateSource head(problem_.gate_mode, problem_.beta_mode, options_.data(), 0, h);
    store(a_log_.view.dtype, a_log_.at(h, 0), head.a_log());
    store(dt_bias_.view.dtype, dt_bias_.at(h, 0), head.dt_bias());
  }
  parallel_for(sequences_ * heads_, [&](std::int64_t unit) {
    const std::int64_t n = unit / heads_, h = unit % heads_;
    GateSource source(problem_.gate_mode, problem_.beta_mode, options_.data(), n, h);
    const auto put = [&](const Operand& operand, std::int64_t t, float value) {
      if (!operand.storage) return;
      store(operand.view.dtype, operand.storage->bytes.data() + row_offset(operand, n, t, h),
            value);
    };
    for (std::int64_t t = 0; t < length(n); ++t) {
      put(gate_, t, source.next_gate());
      put(beta_, t, source.next_beta());
    }
  });
}

void PrefillCase::take_sequence(std::int64_t n, const PrefillCase& from, std::int64_t other) const {
  const auto copy = [&](const Operand& to, const Operand& source, std::int64_t heads, int dim) {
    if (!to.storage) return;
    const auto bytes = static_cast<std::size_t>(dim * size_of(to.view.dtype));
    for (std::int64_t t = 0; t < length(n); ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        std::memcpy(to.storage->bytes.data() + row_offset(to, n, t, h),
                    source.storage->bytes.data() + from.row_offset(source, other, t, h), bytes);
      }
    }
  };
  copy(q_, from.q_, problem_.q_heads, problem_.key_dim);
  copy(k_, from.k_, problem_.k_heads, problem_.key_dim);
  copy(v_, from.v_, problem_.v_heads, problem_.value_dim);
  copy(gate_, from.gate_, heads_, 1);
  copy(beta_, from.beta_, heads_, 1);
  for (std::int64_t h = 0; h < heads_ && problem_.has_initial_state; ++h) {
    std::memcpy(state().at(row(n).read, h), from.state().at(from.row(other).read, h),
                static_cast<std::size_t>(states_.matrix_bytes()));
  }
}

}  // namespace cubinery::test
