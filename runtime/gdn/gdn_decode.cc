// The decode operator: chooses kernels, launches.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cubinery/gdn_decode.h"
#include "gdn_decode/fields.h"
#include "runtime/gdn/decode_args.h"
#include "runtime/gdn/decode_problem.h"
#include "runtime/gdn/decode_state.h"
#include "runtime/gdn/problem_check.h"
#include "runtime/jit/get_kernels.h"
#include "runtime/operator/tuned_operator.h"

namespace cubinery::gdn {
namespace {

// Warps that some requests need.
std::int64_t warps_of(const GdnDecodeKey& key, std::int64_t requests, int heads) {
  return requests * heads * (key.value_dim / key.warp_v);
}

Result<Decode> load(const Context& context, const DecodeProblem& problem, DecodePlan plan) {
  std::vector<KernelSpec> specs;
  for (const GdnDecodeKey& key : plan.keys) CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  if (!kernels) return std::move(kernels).error();
  return Decode(std::make_shared<const Decode::State>(
      Decode::State{.problem = problem, .plan = std::move(plan), .kernels = *std::move(kernels)}));
}

}  // namespace

Result<Decode> Decode::create(const Context& context, const DecodeProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  const TuningKnowledge known = tuning_knowledge(context, decode_question(problem, {}, {}));
  const Answers answers(decode_question(problem, known.gpu, known.toolchain), known.results);
  return create_tuned<Decode>(
      context, kDecodeOp, answers,
      [&](const Answers* asked, std::string_view why_not) {
        return decode_plan(problem, known.rates, asked, why_not);
      },
      [&](DecodePlan plan) { return load(context, problem, std::move(plan)); });
}

Result<Decode> create_decode(const Context& context, const DecodeProblem& problem,
                             const GdnDecodeKey& key) {
  return load(context, problem, decode_plan(key));
}

const DecodePlan::Cell& Decode::State::cell(std::int64_t batch) const {
  const auto limit = std::int64_t{std::numeric_limits<int>::max()};
  return plan.cell(std::min(batch, limit) * problem.heads());
}

const DecodeProblem& Decode::problem() const { return state_->problem; }

const Kernel& Decode::kernel(std::int64_t batch) const {
  return state_->kernels[state_->cell(batch).key];
}

Chosen Decode::choice(std::int64_t batch) const { return state_->cell(batch).chosen; }

Status Decode::launch(Stream stream, const DecodeArgs& args) const {
  const std::int64_t batch = args.q.rank > 0 ? args.q.shape[0] : -1;
  const std::size_t variant = state_->cell(batch).key;
  const GdnDecodeKey& key = state_->plan.keys[variant];
  const int heads = state_->problem.heads();
  const std::int64_t max_batch = std::numeric_limits<int>::max() / 2 / warps_of(key, 1, heads);
  if (batch < 0 || batch > max_batch) {
    return invalid({kDecodeOp, "q"},
                   fmt::format("has B = {}; accepted: 0 to {}", batch, max_batch));
  }
  if (batch == 0) return {};
  GdnDecodeParams params{};
  CUBINERY_RETURN_IF_ERROR(bind_decode(state_->problem, args, batch, &params));
  const std::int64_t blocks = (warps_of(key, batch, heads) + key.warps - 1) / key.warps;
  return state_->kernels[variant].launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = args.programmatic}, params);
}

}  // namespace cubinery::gdn
