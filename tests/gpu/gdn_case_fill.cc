// Making and filling the tensors of a DecodeCase.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/gpu/gdn_case.h"
#include "tests/random.h"
#include "tests/rounding.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::StateLocation;

// One stream of random numbers per operand, so that a change to one leaves the others alone.
enum Stream : std::uint64_t {
  kQ = 1,
  kK,
  kV,
  kGate,
  kBeta,
  kALog,
  kDtBias,
  kState,
  kIndices,
  kCommonKey
};

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

std::shared_ptr<Storage> make_storage(const Gpu& gpu, std::int64_t elements, DType dtype) {
  const std::size_t bytes = idx(elements) * static_cast<std::size_t>(size_of(dtype));
  auto storage = std::make_shared<Storage>();
  storage->bytes.assign(bytes, std::byte{DeviceBuffer::kPoison});
  storage->device = DeviceBuffer(gpu, bytes);
  return storage;
}

void place(Operand* operand) {
  operand->view.data = static_cast<std::byte*>(operand->storage->device.data()) +
                       operand->first * size_of(operand->view.dtype);
}

void store_index(const Operand& operand, std::int64_t n, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  const bool wide = operand.view.dtype == DType::kI64;
  std::memcpy(operand.at(n, 0), wide ? static_cast<const void*>(&value) : &narrow,
              wide ? sizeof(value) : sizeof(narrow));
}

// g = log decay of one token.
double log_decay(Gates gates, Random* random) {
  switch (gates) {
    case Gates::kStrong:
      return -random->uniform();
    case Gates::kQwen:
      if (random->uniform() < 0.25) return 0;
      return -std::log1p(std::exp(-static_cast<double>(random->normal()))) / 16;
    case Gates::kUndecayed:
      return 0;
    case Gates::kInit:
      return -random->uniform(1, 16) * std::exp(random->uniform(std::log(1e-3), std::log(0.1)));
    case Gates::kExtreme:
      return -random->uniform(31, 69);
  }
  return 0;
}

}  // namespace

DecodeCase::DecodeCase(const Gpu& gpu, const gdn::DecodeProblem& problem, std::int64_t batch,
                       const CaseOptions& options)
    : gpu_(gpu), problem_(problem), options_(options), batch_(batch), heads_(problem.heads()) {
  const bool pool = problem.state_location == StateLocation::kPool;
  const bool two = options.write_indices || !options.write.empty();
  slots_ = options.slots != 0 ? options.slots : pool ? (two ? 2 : 1) * batch + 3 : batch;
  make_tensors();
  if (pool) make_indices();
  fill_rows();
  fill_gates();
  fill_states();
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
    a_log_ = vector(p.a_log_dtype, heads_);
    dt_bias_ = vector(p.dt_bias_dtype, heads_);
  }
  if (p.has_initial_state || p.store_state) state_ = state_tensor(options_.slot_gap);
  if (options_.separate_out) state_out_ = state_tensor(options_.out_slot_gap);
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
  Tensor& view = operand.view;
  view.dtype = dtype;
  const auto add = [&view](std::int64_t extent, std::int64_t stride) {
    view.shape[idx(view.rank)] = extent;
    view.strides[idx(view.rank++)] = stride;
  };
  add(batch_, operand.batch_stride);
  if (options_.placement == Placement::kRank4) add(1, operand.batch_stride);
  add(heads, operand.head_stride);
  if (dim != 0) add(dim, 1);
  const std::int64_t last = operand.first +
                            std::max<std::int64_t>(batch_ - 1, 0) * operand.batch_stride +
                            (heads - 1) * operand.head_stride + width;
  operand.storage = make_storage(gpu_, batch_ == 0 ? 0 : last, dtype);
  place(&operand);
  return operand;
}

Operand DecodeCase::vector(DType dtype, std::int64_t count) const {
  Operand operand{.batch_stride = options_.placement == Placement::kUnaligned ? 2 : 1};
  operand.view = {.dtype = dtype, .rank = 1, .shape = {count}, .strides = {operand.batch_stride}};
  operand.storage = make_storage(gpu_, count * operand.batch_stride, dtype);
  place(&operand);
  return operand;
}

Operand DecodeCase::state_tensor(std::int64_t slot_gap) const {
  const bool kv = problem_.state_layout == gdn::StateLayout::kKV;
  const std::int64_t rows = kv ? problem_.key_dim : problem_.value_dim;
  const std::int64_t columns = kv ? problem_.value_dim : problem_.key_dim;
  Operand operand{.head_stride = rows * columns + options_.head_gap};
  operand.batch_stride = heads_ * operand.head_stride + slot_gap;
  operand.view = {.dtype = problem_.state_dtype,
                  .rank = 4,
                  .shape = {slots_, heads_, rows, columns},
                  .strides = {operand.batch_stride, operand.head_stride, columns, 1}};
  operand.storage = make_storage(gpu_, slots_ * operand.batch_stride, problem_.state_dtype);
  place(&operand);
  return operand;
}

void DecodeCase::make_indices() {
  Random random(options_.seed, kIndices);
  const std::vector<std::int64_t> order = random.permutation(1, slots_ - 1);
  const auto fill = [&](const std::vector<std::int64_t>& given, std::int64_t skip) {
    Operand operand = vector(problem_.index_dtype, batch_);
    for (std::int64_t n = 0; n < batch_; ++n) {
      store_index(operand, n, given.empty() ? order.at(idx(skip + n)) : given.at(idx(n)));
    }
    return operand;
  };
  read_ = fill(options_.read, 0);
  if (options_.write_indices || !options_.write.empty()) write_ = fill(options_.write, batch_);
}

void DecodeCase::fill_rows() {
  const bool strong = options_.gates == Gates::kStrong;
  const auto fill = [&](const Operand& operand, Stream stream, std::int64_t heads, int dim) {
    Random random(options_.seed, stream);
    const auto rho = static_cast<float>(stream == kK ? options_.key_correlation : 0);
    std::vector<float> row(static_cast<std::size_t>(dim));
    for (std::int64_t n = 0; n < batch_; ++n) {
      for (std::int64_t h = 0; h < heads; ++h) {
        Random common(static_cast<std::uint64_t>(h), kCommonKey);  // the same for every seed
        float sum = 0;
        for (float& x : row) {
          x = rho * common.normal() + std::sqrt(1 - rho * rho) * random.normal();
          sum += x * x;
        }
        const bool raw = stream == kV || problem_.use_qk_l2norm;
        const float factor = raw ? 1.0f : strong ? 0.1f : 1 / std::sqrt(sum);
        for (int d = 0; d < dim; ++d) {
          store(operand.view.dtype, operand.at(n, h, d), row[static_cast<std::size_t>(d)] * factor);
        }
      }
    }
  };
  fill(q_, kQ, problem_.q_heads, problem_.key_dim);
  fill(k_, kK, problem_.k_heads, problem_.key_dim);
  fill(v_, kV, problem_.v_heads, problem_.value_dim);
}

void DecodeCase::fill_gates() {
  const Gates gates = options_.gates;
  Random gate(options_.seed, kGate), beta(options_.seed, kBeta);
  Random a_log(options_.seed, kALog), dt_bias(options_.seed, kDtBias);
  for (std::int64_t h = 0; h < heads_ && a_log_.storage; ++h) {
    // Extreme: either a large A, or a large a that takes softplus(x) = x.
    const double a = gates == Gates::kExtreme ? (h % 2 == 0 ? 16 : 1) : a_log.uniform(1, 16);
    const double dt = std::exp(dt_bias.uniform(std::log(1e-3), std::log(0.1)));
    store(a_log_.view.dtype, a_log_.at(h, 0), static_cast<float>(std::log(a)));
    const double bias = gates == Gates::kExtreme ? 0.25 : std::log(std::expm1(dt));
    store(dt_bias_.view.dtype, dt_bias_.at(h, 0), static_cast<float>(bias));
  }
  for (std::int64_t n = 0; n < batch_; ++n) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      const double g = log_decay(gates, &gate);
      double value = problem_.gate_mode == GateMode::kAlpha ? std::exp(g) : g;
      if (problem_.gate_mode == GateMode::kComputed) {
        value = gates == Gates::kExtreme     ? (h % 2 == 0 ? -g / 16 : -g)
                : gates == Gates::kUndecayed ? -200.0
                                             : static_cast<double>(gate.normal());
      }
      if (gate_.storage) store(gate_.view.dtype, gate_.at(n, h), static_cast<float>(value));
      const double logit = beta.normal();
      const double given =
          gates == Gates::kStrong ? beta.uniform(0, 0.5) : 1 / (1 + std::exp(-logit));
      if (beta_.storage) {
        const bool is_given = problem_.beta_mode == BetaMode::kGiven;
        store(beta_.view.dtype, beta_.at(n, h), static_cast<float>(is_given ? given : logit));
      }
    }
  }
}

// Random matrices; gaps keep their poison.  A state that must not be read is NaN everywhere.
void DecodeCase::fill_states() {
  if (!problem_.has_initial_state) return;
  const std::int64_t matrix = std::int64_t{problem_.key_dim} * problem_.value_dim;
  parallel_for(slots_ * heads_, [&](std::int64_t unit) {
    Random random(options_.seed, kState + 1000u * (1 + static_cast<std::uint64_t>(unit)));
    for (std::int64_t e = 0; e < matrix; ++e) {
      store(state_.view.dtype, state_.at(unit / heads_, unit % heads_, e), random.normal());
    }
  });
}

}  // namespace cubinery::test
