// A head of a sequence as the references take it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "cubinery/gdn.h"
#include "gdn_prefill_scan/gdn_prefill_ref.h"
#include "tuner/gdn/gdn_tensors.h"

namespace cubinery {

// Tokens first ... last - 1 of head `h`.  read(tensor, t, head, width) gives the values of a row of
// q, k, v, g or beta, or those of A_log and dt_bias (t is 0), as a vector of any numbers.
template <class Real, class Read>
gdn::PrefillRefHead<Real> reference_head(const gdn::PrefillProblem& p, std::optional<float> scale,
                                         std::int64_t h, std::int64_t first, std::int64_t last,
                                         const Read& read) {
  using gdn::PrefillArgs;
  gdn::PrefillRefHead<Real> head{.key_dim = p.key_dim,
                                 .value_dim = p.value_dim,
                                 .gate_mode = p.gate_mode,
                                 .beta_mode = p.beta_mode,
                                 .use_qk_l2norm = p.use_qk_l2norm};
  head.scale = scale ? static_cast<Real>(*scale) : 1 / std::sqrt(static_cast<Real>(p.key_dim));
  const auto append = [&](TensorOf tensor, int heads, int width, std::vector<Real>* to) {
    to->reserve(idx((last - first) * width));
    for (std::int64_t t = first; t < last; ++t) {
      const auto row = read(tensor, t, h / (p.heads() / heads), width);
      to->insert(to->end(), row.begin(), row.end());
    }
  };
  append(&PrefillArgs::q, p.q_heads, p.key_dim, &head.q);
  append(&PrefillArgs::k, p.k_heads, p.key_dim, &head.k);
  append(&PrefillArgs::v, p.v_heads, p.value_dim, &head.v);
  if (p.gate_mode != gdn::GateMode::kNone) append(&PrefillArgs::g, p.heads(), 1, &head.gate);
  if (p.beta_mode != gdn::BetaMode::kOne) append(&PrefillArgs::beta, p.heads(), 1, &head.beta);
  if (p.gate_mode != gdn::GateMode::kComputed) return head;
  head.a_log = static_cast<Real>(read(&PrefillArgs::A_log, 0, h, 1)[0]);
  head.dt_bias = static_cast<Real>(read(&PrefillArgs::dt_bias, 0, h, 1)[0]);
  return head;
}

}  // namespace cubinery
