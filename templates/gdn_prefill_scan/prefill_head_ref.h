// One head of one sequence as the references of a prefill take it, and the sums that these have in
// common.  Host only.
#pragma once

#include <cstddef>
#include <vector>

#include "cubinery/gdn_parts.h"
#include "gdn_decode/gdn_decode_ref.h"

namespace cubinery::gdn {

template <class Real>
struct PrefillRefHead {
  int key_dim = 0;
  int value_dim = 0;  // not 0
  Inputs inputs{};    // dtypes do not matter
  Real scale = 1;
  std::vector<Real> q{};  // [T][key_dim]
  std::vector<Real> k{};  // [T][key_dim]
  std::vector<Real> v{};  // [T][value_dim]
  // [T], with Decay::kChannel [T][key_dim]: g, alpha or a; empty for GateMode::kNone
  std::vector<Real> gate{};
  std::vector<Real> beta{};  // [T]: beta or its logit; empty for BetaMode::kOne
  Real a_log = 0;
  std::vector<Real> dt_bias{0};  // as many as a token has gates
  Real lower_bound = 0;

  int tokens() const { return static_cast<int>(v.size()) / value_dim; }
  int gate_width() const { return inputs.decay == Decay::kChannel ? key_dim : 1; }
  const Real* q_row(int t) const { return q.data() + std::ptrdiff_t{t} * key_dim; }
  const Real* k_row(int t) const { return k.data() + std::ptrdiff_t{t} * key_dim; }
  const Real* v_row(int t) const { return v.data() + std::ptrdiff_t{t} * value_dim; }
  const Real* gate_row(int t) const { return gate.data() + std::ptrdiff_t{t} * gate_width(); }
};

// Token t as decode takes it.
template <class Real>
void set_token_ref(const PrefillRefHead<Real>& head, int t, DecodeRefHead<Real>* token) {
  token->key_dim = head.key_dim;
  token->value_dim = head.value_dim;
  token->inputs = head.inputs;
  token->scale = head.scale;
  token->q.assign(head.q_row(t), head.q_row(t + 1));
  token->k.assign(head.k_row(t), head.k_row(t + 1));
  token->v.assign(head.v_row(t), head.v_row(t + 1));
  if (!head.gate.empty()) token->gate.assign(head.gate_row(t), head.gate_row(t + 1));
  if (!head.beta.empty()) token->beta = head.beta.data()[t];
  token->a_log = head.a_log;
  token->dt_bias = head.dt_bias;
  token->lower_bound = head.lower_bound;
}

template <class Real>
Real dot_ref(const std::vector<Real>& x, const std::vector<Real>& y) {
  Real sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// to += factor * x.
template <class Real>
void add_scaled_ref(Real* to, Real factor, const Real* x, int size) {
  for (int i = 0; i < size; ++i) to[i] += factor * x[i];
}

template <class Real, class Round>
std::vector<Real> rounded_ref(std::vector<Real> x, Round round) {
  for (Real& value : x) value = round(value);
  return x;
}

// out += lower rows; lower [count][count] is 0 above its diagonal, rows and out are [count][width].
template <class Real>
void add_lower_product_ref(const std::vector<Real>& lower, int count, const std::vector<Real>& rows,
                           int width, Real* out) {
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j <= i; ++j) {
      add_scaled_ref(out + i * width, lower.data()[i * count + j], rows.data() + j * width, width);
    }
  }
}

// out[j] = sum_d round(x[d]) state[d][j]: what the state answers to a row of k or q.
template <class Real, class Round>
void recall_ref(const std::vector<Real>& state, const Real* x, int key_dim, int value_dim,
                Round round, Real* out) {
  for (int j = 0; j < value_dim; ++j) out[j] = 0;
  for (int d = 0; d < key_dim; ++d) {
    add_scaled_ref(out, round(x[d]), state.data() + d * value_dim, value_dim);
  }
}

}  // namespace cubinery::gdn
