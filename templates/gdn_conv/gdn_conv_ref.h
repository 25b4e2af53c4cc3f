// Reference of gdn_conv: one channel of one sequence, one head of q or k, and one decay, in plain
// loops and in the order of include/cubinery/gdn_conv.h.  In double it is what the kernels are
// checked against; in float it is the yardstick of what naive arithmetic loses on the same data.
// Host only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "cubinery/gdn_conv_types.h"
#include "gdn_decode/gdn_decode_ref.h"

namespace cubinery::gdn {

template <class Real>
struct ConvRefChannel {
  std::vector<Real> taps{};  // [width], the oldest input's first
  Real bias = 0;
  Activation activation = Activation::kSilu;
  std::vector<Real> before{};  // [width - 1]: the inputs in front of the first token
};

// The outputs of a channel's tokens.
template <class Real>
std::vector<Real> conv_ref(const ConvRefChannel<Real>& channel, const std::vector<Real>& x) {
  std::vector<Real> inputs = channel.before;
  inputs.insert(inputs.end(), x.begin(), x.end());
  std::vector<Real> y;
  for (std::size_t t = 0; t < x.size(); ++t) {
    Real sum = channel.bias;
    for (std::size_t i = 0; i < channel.taps.size(); ++i) sum += channel.taps[i] * inputs[t + i];
    const bool is_silu = channel.activation == Activation::kSilu;
    y.push_back(is_silu ? sum / (1 + std::exp(-sum)) : sum);
  }
  return y;
}

// A head of q or k divided by its norm.
template <class Real>
void conv_norm_ref(std::vector<Real>* head) {
  Real sum = 0;
  for (const Real value : *head) sum += value * value;
  const Real norm = std::sqrt(sum + static_cast<Real>(1e-6));
  for (Real& value : *head) value /= norm;
}

// g of a head, or of one of its channels.
template <class Real>
Real conv_log_decay_ref(const DecodeRefHead<Real>& head, std::size_t channel = 0) {
  const Real g = log_decay_ref(head, channel);
  return head.inputs.decay == Decay::kChannel ? std::max<Real>(g, -128) : g;
}

}  // namespace cubinery::gdn
