#include "benchmarks/decode_check.h"

#include <algorithm>
#include <cmath>

#include "templates/gdn_decode/gdn_decode_ref.h"
#include "tuner/gdn/gdn_workload.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::bench {
namespace {

using gdn::DecodeProblem;
using gdn::PrefillArgs;

constexpr std::int64_t kComparedRequests = 4;  // more would only take time of the host

std::size_t slot_bytes(const DecodeProblem& p) {
  return idx(p.heads()) * idx(p.key_dim) * idx(p.value_dim) * idx(size_of(p.state_dtype));
}

std::vector<std::byte> slot_of(const DecodeProblem& problem, const GdnOperands& operands,
                               std::int64_t request) {
  std::vector<std::byte> bytes(slot_bytes(problem));
  const std::size_t slot = idx(operands.slots(0)[idx(request)]);
  operands.download(&PrefillArgs::state, 0, slot * bytes.size(), bytes).value();
  return bytes;
}

// Operands of a head of set 0 as the reference takes them.
gdn::DecodeRefHead<double> head_of(const DecodeProblem& p, const GdnOperands& operands,
                                   std::int64_t request, std::int64_t h) {
  const std::int64_t heads = p.heads();
  const auto value = [&](Tensor PrefillArgs::*member, std::int64_t at) {
    return values(operands, member, at, 1)[0];
  };
  gdn::DecodeRefHead<double> head{.key_dim = p.key_dim,
                                  .value_dim = p.value_dim,
                                  .gate_mode = p.gate_mode,
                                  .beta_mode = p.beta_mode,
                                  .use_qk_l2norm = p.use_qk_l2norm,
                                  .scale = 1 / std::sqrt(static_cast<double>(p.key_dim))};
  const std::int64_t key_head = request * p.k_heads + h / (heads / p.k_heads);
  head.q = values(operands, &PrefillArgs::q, key_head * p.key_dim, p.key_dim);
  head.k = values(operands, &PrefillArgs::k, key_head * p.key_dim, p.key_dim);
  head.v = values(operands, &PrefillArgs::v, (request * heads + h) * p.value_dim, p.value_dim);
  head.gate = value(&PrefillArgs::g, request * heads + h);
  head.beta = value(&PrefillArgs::beta, request * heads + h);
  head.a_log = value(&PrefillArgs::A_log, h);
  head.dt_bias = value(&PrefillArgs::dt_bias, h);
  return head;
}

// Adds the errors of one request of set 0.
void compare(const DecodeProblem& p, const GdnOperands& operands, std::int64_t request,
             const std::vector<std::byte>& before, Errors* errors) {
  const std::vector<std::byte> after = slot_of(p, operands, request);
  const std::size_t matrix = idx(p.key_dim) * idx(p.value_dim);
  const std::int64_t heads = p.heads();
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto stored = [&](const std::vector<std::byte>& bytes, std::size_t i) {
      // Element i of [key_dim][value_dim] in the pool's layout.
      const std::size_t row = i / idx(p.value_dim), column = i % idx(p.value_dim);
      const std::size_t at =
          p.state_layout == gdn::StateLayout::kKV ? i : column * idx(p.key_dim) + row;
      return load(p.state_dtype,
                  bytes.data() + (idx(h) * matrix + at) * idx(size_of(p.state_dtype)));
    };
    std::vector<double> state(matrix), o(idx(p.value_dim));
    for (std::size_t i = 0; i < matrix; ++i) state[i] = stored(before, i);
    gdn_decode_ref(head_of(p, operands, request, h), state.data(), o.data());
    const std::vector<double> actual =
        values(operands, &PrefillArgs::o, (request * heads + h) * p.value_dim, p.value_dim);
    for (std::size_t j = 0; j < o.size(); ++j) errors->o.add(actual[j], o[j]);
    for (std::size_t i = 0; i < matrix; ++i) errors->state.add(stored(after, i), state[i]);
  }
}

}  // namespace

DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout) {
  DecodeProblem problem;
  problem.gate_dtype = problem.beta_dtype = DType::kBF16;
  problem.state_dtype = state_dtype;
  problem.state_layout = layout;
  problem.state_location = gdn::StateLocation::kPool;
  problem.padding = gdn::Padding::kSkip;
  problem.gate_mode = gdn::GateMode::kComputed;
  problem.beta_mode = gdn::BetaMode::kLogit;
  problem.use_qk_l2norm = true;
  return problem;
}

GdnOperands decode_operands(const Gpu& gpu, const DecodeProblem& problem, int batch) {
  return make_operands(
      gpu, as_prefill(problem),
      {.lengths = std::vector<std::int64_t>(idx(batch), 1), .data = {.gates = Gates::kInit}});
}

Errors decode_errors(const gdn::Decode& decode, const DecodeProblem& problem, const Gpu& gpu,
                     const GdnOperands& operands) {
  const std::int64_t compared = std::min(operands.size().sequences, kComparedRequests);
  std::vector<std::vector<std::byte>> before;
  for (std::int64_t n = 0; n < compared; ++n) before.push_back(slot_of(problem, operands, n));
  const test::TestStream stream(gpu);
  launch(decode, stream.get(), operands, 0).value();
  stream.synchronize();
  Errors errors;
  for (std::int64_t n = 0; n < compared; ++n) {
    compare(problem, operands, n, before[idx(n)], &errors);
  }
  return errors;
}

}  // namespace cubinery::bench
