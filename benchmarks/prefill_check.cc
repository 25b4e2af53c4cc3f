#include "benchmarks/prefill_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"
#include "tuner/gdn/gdn_workload.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::bench {
namespace {

constexpr std::int64_t kComparedTokens = 4096;

void append(std::vector<double>* to, const std::vector<double>& values) {
  to->insert(to->end(), values.begin(), values.end());
}

// `count` elements of a tensor that repeats `pattern`, from element `first` on.
std::vector<double> repeated(DType dtype, const std::vector<std::byte>& pattern, std::int64_t first,
                             int count) {
  const std::size_t size = idx(size_of(dtype));
  const std::size_t at = idx(first) * size % pattern.size();
  return from_bytes(dtype, std::span(pattern).subspan(at, idx(count) * size));
}

}  // namespace

PrefillCheck::PrefillCheck(const Gpu& gpu, const GdnOperands& operands)
    : gpu_(gpu), operands_(operands) {
  choose_parts();
  test::parallel_for(static_cast<std::int64_t>(parts_.size()),
                     [&](std::int64_t i) { compute(&parts_[idx(i)]); });
}

void PrefillCheck::choose_parts() {
  const std::vector<std::int64_t>& lengths = operands_.options().lengths;
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  // To forget; two heads if there are two.
  const std::vector<double>& decay = operands_.patterns().decay;
  const auto [slowest, fastest] = std::minmax_element(decay.begin(), decay.end());
  for (const auto sequence : std::set{shortest, longest}) {
    for (const auto decays : std::set{slowest, fastest}) {
      const int head = static_cast<int>(decays - decay.begin());
      const std::int64_t tokens = std::min(*sequence, kComparedTokens);
      parts_.push_back({.sequence = sequence - lengths.begin(),
                        .first = std::accumulate(lengths.begin(), sequence, std::int64_t{0}),
                        .tokens = tokens,
                        .whole = tokens == *sequence,
                        .head = head});
    }
  }
}

void PrefillCheck::compute(Part* part) const {
  const gdn::PrefillProblem& p = operands_.problem();
  const GdnPatterns& data = operands_.patterns();
  const std::int64_t heads = p.heads();
  gdn::PrefillRefHead<double> head{
      .key_dim = p.key_dim,
      .value_dim = p.value_dim,
      .gate_mode = p.gate_mode,
      .beta_mode = p.beta_mode,
      .use_qk_l2norm = p.use_qk_l2norm,
      .scale = operands_.options().scale.value_or(1 / std::sqrt(static_cast<float>(p.key_dim)))};
  for (std::int64_t t = part->first; t < part->first + part->tokens; ++t) {
    const auto row = [&](const std::vector<std::byte>& pattern, std::int64_t of, int dim) {
      const std::int64_t number = t * of + part->head / (heads / of);
      return repeated(p.dtype, pattern, number * dim, dim);
    };
    append(&head.q, row(data.q, p.q_heads, p.key_dim));
    append(&head.k, row(data.k, p.k_heads, p.key_dim));
    append(&head.v, row(data.v, p.v_heads, p.value_dim));
    append(&head.gate, repeated(p.gate_dtype, data.g, t * heads + part->head, 1));
    append(&head.beta, repeated(p.beta_dtype, data.beta, t * heads + part->head, 1));
  }
  const std::int64_t first_row = (part->sequence * heads + part->head) * p.key_dim;
  for (std::int64_t i = first_row; i < first_row + p.key_dim && p.has_initial_state; ++i) {
    append(&part->state, repeated(p.state_dtype, data.state, i * p.value_dim, p.value_dim));
  }
  part->state.resize(idx(p.key_dim) * idx(p.value_dim));
  part->o.resize(idx(part->tokens) * idx(p.value_dim));
  gdn::gdn_prefill_ref(head, part->state.data(), part->o.data());
}

Errors PrefillCheck::errors(const gdn::Prefill& prefill) const {
  const test::TestStream stream(gpu_);
  launch(prefill, stream.get(), operands_, 0).value();
  stream.synchronize();
  Errors errors;
  for (const Part& part : parts_) compare(part, &errors);
  return errors;
}

void PrefillCheck::compare(const Part& part, Errors* errors) const {
  const gdn::PrefillProblem& p = operands_.problem();
  const std::int64_t heads = p.heads(), dim = p.value_dim;
  const std::vector<double> o =
      values(operands_, &gdn::PrefillArgs::o, part.first * heads * dim, part.tokens * heads * dim);
  for (std::int64_t t = 0; t < part.tokens; ++t) {
    const double* const row = o.data() + (t * heads + part.head) * dim;
    for (std::int64_t j = 0; j < dim; ++j) errors->o.add(row[j], part.o[idx(t * dim + j)]);
  }
  if (!part.whole) return;
  const auto written =
      p.has_initial_state ? &gdn::PrefillArgs::state_out : &gdn::PrefillArgs::state;
  const std::int64_t matrix = p.key_dim * dim;
  const std::vector<double> state =
      values(operands_, written, (part.sequence * heads + part.head) * matrix, matrix);
  for (std::size_t i = 0; i < state.size(); ++i) errors->state.add(state[i], part.state[i]);
}

}  // namespace cubinery::bench
