// What verifications are compared with steps of decode by: the steps, and a pool with a table of
// slots.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/gdn/decode/paths.h"
#include "runtime/operator/keyed_path.h"
#include "runtime/operator/tuning_context.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/numbers.h"

namespace cubinery::test {

// The decode whose steps a verification's tokens are, of dense states.
inline gdn::Decode decode_of(const gdn::VerifyProblem& problem) {
  gdn::DecodeProblem step;
  copy_fields(problem, &step);
  step.states.location = gdn::StateLocation::kDense;
  step.states.store = true;
  const Target target = target_of(gpu().context());
  const auto values = gdn::decode_portable().defaults(step, target).front()->values();
  return gdn::Decode::create(gpu().context(), step, target, values).value();
}

// Index `i` of a dimension, which is gone.
inline Tensor at(Tensor tensor, std::size_t dimension, std::int64_t i) {
  if (!tensor.present()) return tensor;
  slice(&tensor, dimension, i, 1);
  for (std::size_t d = dimension; d + 1 < static_cast<std::size_t>(tensor.rank); ++d) {
    tensor.shape[d] = tensor.shape[d + 1];
    tensor.strides[d] = tensor.strides[d + 1];
  }
  --tensor.rank;
  return tensor;
}

// Row i of the first dimension, which stays.
inline Tensor row(Tensor tensor, std::int64_t i) {
  slice(&tensor, 0, i, 1);
  return tensor;
}

// The token in row `i` of packed tensors, or of one request's, as a step of one request.
inline gdn::DecodeArgs step_args(const gdn::VerifyArgs& tokens, std::int64_t i, const Tensor& from,
                                 const Tensor& to) {
  gdn::DecodeArgs step{.q = row(tokens.q, i),
                       .k = row(tokens.k, i),
                       .v = row(tokens.v, i),
                       .g = tokens.g,
                       .beta = tokens.beta,
                       .A_log = tokens.A_log,
                       .dt_bias = tokens.dt_bias,
                       .o = row(tokens.o, i),
                       .state = from,
                       .state_out = to,
                       .z = tokens.z,
                       .norm_weight = tokens.norm_weight,
                       .norm_eps = tokens.norm_eps,
                       .lower_bound = tokens.lower_bound};
  if (step.z.present()) step.z = row(step.z, i);
  if (step.g.present()) step.g = row(step.g, i);
  if (step.beta.present()) step.beta = row(step.beta, i);
  return step;
}

// The tokens of request n of dense tensors, as rows.
inline gdn::VerifyArgs request(gdn::VerifyArgs args, std::int64_t n) {
  for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.g, &args.beta, &args.o, &args.z}) {
    *tensor = at(*tensor, 0, n);
  }
  return args;
}

// A pool, with a table of slots for each request's steps, as engines have it: read by a count,
// written in place.  One graph, whose replays see other counts, slots, bounds.
class SlotTable {
 public:
  static constexpr std::int64_t kRequests = 3, kSteps = 6, kSlots = 32;

  explicit SlotTable(const gdn::VerifyProblem& given) : problem_(with_table(given)) {
    const std::int64_t matrix = problem_.key_dim * problem_.value_dim;
    const std::int64_t elements = problem_.heads.count() * matrix;
    const auto bytes = idx(kSlots * elements * size_of(problem_.states.dtype));
    pool_.emplace(gpu(), bytes);
    const bool kv = problem_.states.layout == gdn::StateLayout::kKV;
    state_ = Tensor::contiguous(
        pool_->data(), problem_.states.dtype,
        {kSlots, problem_.heads.count(), kv ? problem_.key_dim : problem_.value_dim,
         kv ? problem_.value_dim : problem_.key_dim});
  }

  const gdn::VerifyProblem& problem() const { return problem_; }
  const DeviceBuffer& pool() const { return *pool_; }
  const Tensor& state() const { return state_; }
  Tensor slot(std::int64_t i) const { return row(state_, i); }
  std::vector<std::byte> bytes(std::int64_t slot) const {
    const std::size_t each = pool_->bytes() / idx(kSlots);
    return pool_->download(idx(slot) * each, each);
  }
  // Fills all slots with the states of a case of so many sequences.
  void fill(const VerifyCase& source) const {
    const auto from = source.bytes(source.memory(), TensorId::kState);
    pool_->upload(from.first(pool_->bytes()));
  }

 private:
  static gdn::VerifyProblem with_table(gdn::VerifyProblem problem) {
    problem.varlen = true;
    problem.draft_tokens = static_cast<int>(kSteps);
    problem.states.location = gdn::StateLocation::kPool;
    problem.stored_states = gdn::StoredStates::kEvery;
    problem.from_accepted = true;
    return problem;
  }

  gdn::VerifyProblem problem_;
  std::optional<DeviceBuffer> pool_;
  Tensor state_{};
};

// Requests go on from the steps that counts name, in place, at these slots of the table.
inline void set_steps(const SlotTable& table, const Numbers& counts, const Numbers& slots,
                      gdn::VerifyArgs* args) {
  args->accepted = counts.tensor();
  args->state = table.state();
  args->state_indices = slots.tensor();
  args->state_out = args->state_out_indices = {};
}

// As a dense case whose states fill a table's pool.
inline VerifyCase states_for(const SlotTable& table) {
  gdn::VerifyProblem dense = table.problem();
  dense.varlen = false;
  dense.from_accepted = false;
  dense.stored_states = gdn::StoredStates::kLast;
  dense.states.location = gdn::StateLocation::kDense;
  dense.tree = false;
  return VerifyCase(dense, uniform(SlotTable::kSlots, 1), {.seed = seed()});
}

// Tokens, of packed requests that have at most these lengths.
inline VerifyCase tokens_for(const SlotTable& table, const CaseShape& shape,
                             std::uint64_t more = 0) {
  gdn::VerifyProblem plain = table.problem();
  plain.from_accepted = false;
  plain.stored_states = gdn::StoredStates::kLast;
  plain.states.location = gdn::StateLocation::kDense;
  plain.tree = false;
  return VerifyCase(plain, shape, {.seed = seed() + more});
}

// Relative to the largest; infinite where only one is a number.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(a[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference / largest;
}

}  // namespace cubinery::test
