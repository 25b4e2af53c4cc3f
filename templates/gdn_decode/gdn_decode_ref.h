// Reference of gdn_decode: one token of one head, in plain loops and in the order of
// include/cubinery/gdn.h. In double it is what the kernels are checked against; in float it is the
// yardstick of what naive arithmetic loses on the same data.  Host only.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "cubinery/gdn_decode_types.h"
#include "cubinery/gdn_parts.h"

namespace cubinery::gdn {

template <class Real>
struct DecodeRefHead {
  int key_dim = 0;
  int value_dim = 0;
  Inputs inputs{};  // dtypes do not matter
  Real scale = 1;
  std::vector<Real> q{};         // [key_dim]
  std::vector<Real> k{};         // [key_dim]
  std::vector<Real> v{};         // [value_dim]
  std::vector<Real> gate{0};     // g, alpha or a: one, or key_dim with Decay::kChannel
  Real beta = 1;                 // beta or its logit
  Real a_log = 0;                // 0: as without A_log (GateMode::kLowerBound)
  std::vector<Real> dt_bias{0};  // as many as gates
  Real lower_bound = 0;
};

template <class Real>
Real sigmoid_ref(Real x) {
  return 1 / (1 + std::exp(-x));
}

// exp(log_factor) x, also where exp(log_factor) alone is infinite.
template <class Real>
Real scaled_ref(Real log_factor, Real x) {
  const Real factor = std::exp(log_factor);
  if (x == 0 || std::isfinite(factor)) return x == 0 ? x : factor * x;
  return std::copysign(std::exp(log_factor + std::log(std::abs(x))), x);
}

// Of the head, or of one of its channels.
template <class Real>
Real log_decay_ref(const DecodeRefHead<Real>& head, std::size_t channel = 0) {
  if (head.inputs.gate_mode == GateMode::kNone) return 0;
  const Real gate = head.gate[channel];
  if (head.inputs.gate_mode == GateMode::kAlpha) return std::log(gate);
  if (head.inputs.gate_mode == GateMode::kLog) return gate;
  const Real x = gate + head.dt_bias[channel];
  if (head.inputs.gate_mode == GateMode::kLowerBound)
    return head.lower_bound * sigmoid_ref(scaled_ref(head.a_log, x));
  if (x < -40) return -std::exp(head.a_log + x);  // softplus(x) is e^x, which may be 0 alone
  return -scaled_ref(head.a_log, x > 20 ? x : std::log1p(std::exp(x)));
}

template <class Real>
Real decay_ref(const DecodeRefHead<Real>& head, std::size_t channel = 0) {
  return head.inputs.gate_mode == GateMode::kAlpha ? head.gate[channel]
                                                   : std::exp(log_decay_ref(head, channel));
}

// Of each channel of k: key_dim of them, all the same with Decay::kHead.
template <class Real>
std::vector<Real> decays_ref(const DecodeRefHead<Real>& head) {
  std::vector<Real> decays(static_cast<std::size_t>(head.key_dim), decay_ref(head));
  if (head.inputs.decay == Decay::kHead) return decays;
  for (std::size_t d = 1; d < decays.size(); ++d) decays[d] = decay_ref(head, d);
  return decays;
}

template <class Real>
Real beta_ref(const DecodeRefHead<Real>& head) {
  if (head.inputs.beta_mode == BetaMode::kOne) return 1;
  if (head.inputs.beta_mode == BetaMode::kGiven) return head.beta;
  const Real sigmoid = sigmoid_ref(head.beta);
  return head.inputs.beta_mode == BetaMode::kDoubledLogit ? 2 * sigmoid : sigmoid;
}

// What a row of q or k is divided by: sqrt(sum x^2 + 1e-6), or 1.
template <class Real>
Real norm_ref(const std::vector<Real>& x, const Inputs& inputs) {
  if (!inputs.use_qk_l2norm) return 1;
  Real sum = 0;
  for (const Real value : x) sum += value * value;
  return std::sqrt(sum + static_cast<Real>(1e-6));
}

template <class Real>
std::vector<Real> scaled_ref(std::vector<Real> x, const Inputs& inputs, Real factor) {
  const Real norm = norm_ref(x, inputs);
  for (Real& value : x) value = value / norm * factor;
  return x;
}

// Advances `state` [key_dim][value_dim] by one token and writes `o` [value_dim].
template <class Real>
void gdn_decode_ref(const DecodeRefHead<Real>& head, Real* state, Real* o) {
  const std::vector<Real> k = scaled_ref<Real>(head.k, head.inputs, 1);
  const std::vector<Real> q = scaled_ref<Real>(head.q, head.inputs, head.scale);
  const std::vector<Real> decays = decays_ref(head);
  const Real beta = beta_ref(head);
  std::vector<Real> u(head.v.size());  // first S^T k^, then the new value
  Real* const new_value = u.data();
  for (int i = 0; i < head.key_dim; ++i) {
    Real* const row = state + i * head.value_dim;
    const Real k_i = k[static_cast<std::size_t>(i)];
    for (int j = 0; j < head.value_dim; ++j) {
      row[j] *= decays[static_cast<std::size_t>(i)];
      new_value[j] += k_i * row[j];
    }
  }
  for (int j = 0; j < head.value_dim; ++j) {
    new_value[j] = beta * (head.v[static_cast<std::size_t>(j)] - new_value[j]);
    o[j] = 0;
  }
  for (int i = 0; i < head.key_dim; ++i) {
    Real* const row = state + i * head.value_dim;
    const Real k_i = k[static_cast<std::size_t>(i)];
    const Real q_i = q[static_cast<std::size_t>(i)];
    for (int j = 0; j < head.value_dim; ++j) {
      row[j] += k_i * new_value[j];
      o[j] += q_i * row[j];
    }
  }
}

// `o` of a head as `norm` stores it, which is not kNone.
template <class Real>
void gated_rms_ref(OutputNorm norm, const std::vector<Real>& weight, const std::vector<Real>& z,
                   Real eps, Real* o) {
  Real squares = 0;
  for (std::size_t j = 0; j < z.size(); ++j) squares += o[j] * o[j];
  const Real rms = std::sqrt(squares / static_cast<Real>(z.size()) + eps);
  for (std::size_t j = 0; j < z.size(); ++j) {
    o[j] = o[j] / rms * weight[j];
    if (norm == OutputNorm::kGatedRms) o[j] *= z[j];
    o[j] = o[j] / (1 + std::exp(-z[j]));
  }
}

}  // namespace cubinery::gdn
