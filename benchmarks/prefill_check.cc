#include "benchmarks/prefill_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>

#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"

namespace cubinery::bench {
namespace {

constexpr std::int64_t kComparedTokens = 4096;

void append(std::vector<double>* to, const std::vector<double>& values) {
  to->insert(to->end(), values.begin(), values.end());
}

}  // namespace

PrefillCheck::PrefillCheck(const PrefillWorkload& workload) : workload_(workload) {
  choose_parts();
  test::parallel_for(static_cast<std::int64_t>(parts_.size()),
                     [&](std::int64_t i) { compute(&parts_[idx(i)]); });
}

void PrefillCheck::choose_parts() {
  const std::vector<std::int64_t>& lengths = workload_.row().seqlens;
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const PrefillData& data = workload_.data();
  for (const auto sequence : std::set{shortest, longest}) {
    for (const int head : std::set{data.slowest_head, data.fastest_head}) {
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
  const gdn::PrefillProblem& p = workload_.problem();
  const PrefillData& data = workload_.data();
  const std::int64_t heads = p.heads();
  gdn::PrefillRefHead<double> head{.key_dim = p.key_dim,
                                   .value_dim = p.value_dim,
                                   .gate_mode = p.gate_mode,
                                   .beta_mode = p.beta_mode,
                                   .use_qk_l2norm = p.use_qk_l2norm,
                                   .scale = workload_.scale()};
  for (std::int64_t t = part->first; t < part->first + part->tokens; ++t) {
    append(&head.q, data.row(p.dtype, data.q, t * p.q_heads + part->head / (heads / p.q_heads)));
    append(&head.k, data.row(p.dtype, data.k, t * p.k_heads + part->head / (heads / p.k_heads)));
    append(&head.v, data.row(p.dtype, data.v, t * p.v_heads + part->head / (heads / p.v_heads)));
    head.gate.push_back(data.gate(p.gate_dtype, data.g, t, part->head));
    head.beta.push_back(data.gate(p.beta_dtype, data.beta, t, part->head));
  }
  const std::int64_t first_row = (part->sequence * heads + part->head) * p.key_dim;
  for (std::int64_t i = first_row; i < first_row + p.key_dim && p.has_initial_state; ++i) {
    append(&part->state, data.row(p.state_dtype, data.state, i));
  }
  part->state.resize(idx(p.key_dim) * idx(p.value_dim));
  part->o.resize(idx(part->tokens) * idx(p.value_dim));
  gdn::gdn_prefill_ref(head, part->state.data(), part->o.data());
}

Errors PrefillCheck::errors(const gdn::Prefill& prefill) const {
  const test::TestStream stream(workload_.gpu());
  const Status status = workload_.launch(prefill, stream.get(), 0);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  stream.synchronize();
  Errors errors;
  for (const Part& part : parts_) compare(part, &errors);
  return errors;
}

void PrefillCheck::compare(const Part& part, Errors* errors) const {
  const gdn::PrefillProblem& p = workload_.problem();
  const std::int64_t heads = p.heads(), dim = p.value_dim;
  const std::size_t size = idx(size_of(p.output_dtype));
  const std::vector<std::byte> o = workload_.o(0).download(idx(part.first * heads * dim) * size,
                                                           idx(part.tokens * heads * dim) * size);
  for (std::int64_t t = 0; t < part.tokens; ++t) {
    const std::size_t at = idx((t * heads + part.head) * dim) * size;
    const std::vector<double> row =
        from_bytes(p.output_dtype, std::span(o).subspan(at, idx(dim) * size));
    for (std::size_t j = 0; j < row.size(); ++j) errors->o.add(row[j], part.o[idx(t * dim) + j]);
  }
  if (!part.whole) return;
  const std::int64_t matrix = p.key_dim * dim;
  const std::vector<double> state = values(p.state_dtype, workload_.state_out(0),
                                           (part.sequence * heads + part.head) * matrix, matrix);
  for (std::size_t i = 0; i < state.size(); ++i) errors->state.add(state[i], part.state[i]);
}

}  // namespace cubinery::bench
