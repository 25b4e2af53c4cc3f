// A head of a sequence as the references take it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "cubinery/gdn.h"
#include "gdn_conv/gdn_conv_ref.h"
#include "gdn_decode/gdn_decode_ref.h"
#include "gdn_prefill_scan/gdn_prefill_ref.h"
#include "harness/rounding.h"
#include "harness/tensors.h"

namespace cubinery {

// What the convolution in front makes of token t: `width` channels from `first` on.  In float they
// are rounded to dtype.  read(): as below.
template <class Real, class Read>
std::vector<Real> convolved_row(const GdnProblem& p, std::int64_t t, std::int64_t first, int width,
                                const Read& read) {
  std::vector<Real> row;
  for (std::int64_t c = first; c < first + width; ++c) {
    const auto taps = read(TensorId::kConvWeight, 0, c, p.conv.width);
    gdn::ConvRefChannel<Real> channel{.taps = {taps.begin(), taps.end()},
                                      .activation = p.conv.activation,
                                      .before = std::vector<Real>(idx(p.conv.width - 1))};
    if (p.conv.has_bias) channel.bias = static_cast<Real>(read(TensorId::kConvBias, 0, c, 1)[0]);
    if (p.states.has_initial) {
      const auto columns = read(TensorId::kConvState, t, c, conv_columns(p));
      channel.before.assign(columns.end() - (p.conv.width - 1), columns.end());
    }
    const auto x = static_cast<Real>(read(TensorId::kX, t, c, 1)[0]);
    const Real y = conv_ref(channel, std::vector<Real>{x})[0];
    if constexpr (std::is_same_v<Real, float>) {
      row.push_back(rounded(p.dtype, y));
    } else {
      row.push_back(y);
    }
  }
  return row;
}

// Tokens first ... last - 1 of head `h`.  read(tensor, t, head, width) gives the values of a row of
// q, k, v, g or beta, or those of A_log and dt_bias (t is 0), as a vector of any numbers.  Of a
// convolution channels stand for heads, and all columns of the token's state are a row.
template <class Real, class Read>
gdn::PrefillRefHead<Real> reference_head(const GdnProblem& p, std::optional<float> scale,
                                         std::int64_t h, std::int64_t first, std::int64_t last,
                                         const Read& read) {
  gdn::PrefillRefHead<Real> head{
      .key_dim = p.key_dim, .value_dim = p.value_dim, .inputs = p.inputs};
  head.scale = scale ? static_cast<Real>(*scale) : 1 / std::sqrt(static_cast<Real>(p.key_dim));
  const auto append = [&](TensorId tensor, int heads, int width, std::vector<Real>* to) {
    to->reserve(idx((last - first) * width));
    for (std::int64_t t = first; t < last; ++t) {
      const auto row = read(tensor, t, h / (p.heads.count() / heads), width);
      to->insert(to->end(), row.begin(), row.end());
    }
  };
  const auto append_convolved = [&](std::int64_t channel, int heads, int width,
                                    std::vector<Real>* to) {
    channel += h / (p.heads.count() / heads) * width;
    for (std::int64_t t = first; t < last; ++t) {
      const std::vector<Real> row = convolved_row<Real>(p, t, channel, width, read);
      to->insert(to->end(), row.begin(), row.end());
    }
  };
  if (p.conv.is_there()) {
    const gdn::ConvSplit split = conv_split(p);
    append_convolved(0, p.heads.q, p.key_dim, &head.q);
    append_convolved(split.k, p.heads.k, p.key_dim, &head.k);
    append_convolved(split.v, p.heads.v, p.value_dim, &head.v);
  } else {
    append(TensorId::kQ, p.heads.q, p.key_dim, &head.q);
    append(TensorId::kK, p.heads.k, p.key_dim, &head.k);
    append(TensorId::kV, p.heads.v, p.value_dim, &head.v);
  }
  if (p.inputs.gate_mode != gdn::GateMode::kNone)
    append(TensorId::kG, p.heads.count(), head.gate_width(), &head.gate);
  if (p.inputs.beta_mode != gdn::BetaMode::kOne)
    append(TensorId::kBeta, p.heads.count(), 1, &head.beta);
  if (!gdn::is_computed(p.inputs.gate_mode)) return head;
  head.lower_bound = static_cast<Real>(kLowerBound);
  head.a_log = static_cast<Real>(read(TensorId::kALog, 0, h, 1)[0]);
  const auto dt_bias = read(TensorId::kDtBias, 0, h, head.gate_width());
  head.dt_bias.assign(dt_bias.begin(), dt_bias.end());
  return head;
}

// Norms outputs of the same tokens, [tokens][value_dim], where the problem says so.  read() gives
// z and, element by element as if they were heads, norm_weight.
template <class Real, class Read>
void norm_outputs(const GdnProblem& p, std::optional<float> eps, std::int64_t h, std::int64_t first,
                  std::int64_t last, const Read& read, Real* o) {
  if (p.output_norm == gdn::OutputNorm::kNone) return;
  std::vector<Real> weight;
  for (std::int64_t j = 0; j < p.value_dim; ++j) {
    weight.push_back(static_cast<Real>(read(TensorId::kNormWeight, 0, j, 1)[0]));
  }
  for (std::int64_t t = first; t < last; ++t, o += p.value_dim) {
    const auto row = read(TensorId::kZ, t, h, p.value_dim);
    const std::vector<Real> z(row.begin(), row.end());
    gdn::gated_rms_ref(p.output_norm, weight, z, static_cast<Real>(eps.value_or(1e-6f)), o);
  }
}

}  // namespace cubinery
