// The prefill operator: chooses kernels, lays out the workspace, launches.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "codegen/arch.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_problem.h"
#include "runtime/gdn/prefill_state.h"
#include "runtime/gdn/problem_check.h"
#include "runtime/jit/get_kernels.h"
#include "runtime/operator/tensor_check.h"
#include "runtime/operator/tuned_operator.h"

namespace cubinery::gdn {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

// Bytes of `order`, in front of the records.
std::int64_t order_bytes(const PrefillProblem& problem, std::int64_t sequences) {
  if (!problem.varlen) return 0;
  constexpr std::int64_t kUnit = kWorkspaceAlignment;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(sequences, static_cast<std::int64_t>(sizeof(int)), &bytes) ||
      __builtin_add_overflow(bytes, kUnit - 1, &bytes)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return bytes / kUnit * kUnit;
}

// Bytes of a workspace of so many slots.  Saturates.
std::size_t bytes_for(const Prefill::State& state, std::int64_t slots, std::int64_t sequences) {
  const auto record =
      std::int64_t{chunk_record(state.plan.chunk_size(), state.problem.dtype).bytes};
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(slots, record * state.problem.heads(), &bytes) ||
      __builtin_add_overflow(bytes, order_bytes(state.problem, sequences), &bytes)) {
    return std::numeric_limits<std::size_t>::max();
  }
  return static_cast<std::size_t>(bytes);
}

Status check_workspace(const Workspace& workspace, std::size_t needed) {
  const TensorName name{kPrefillOp, "workspace"};
  if (workspace.bytes < needed) {
    return invalid(name, fmt::format("has {} bytes; accepted: at least {}, workspace_bytes() of "
                                     "this size",
                                     workspace.bytes, needed));
  }
  if (workspace.data == nullptr && needed > 0) {
    return invalid(name, "is null; accepted: a device pointer");
  }
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment != 0) {
    return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                     fmt::ptr(workspace.data), kWorkspaceAlignment));
  }
  return {};
}

Status check_max_seqlen(std::int64_t max_seqlen, std::int64_t tokens) {
  if (max_seqlen >= 0 && max_seqlen <= tokens) return {};
  return Status(Code::kInvalidArgument, fmt::format("{}: max_seqlen = {}; accepted: 0 to {}, the "
                                                    "tokens that there are",
                                                    kPrefillOp, max_seqlen, tokens));
}

void place_workspace(const PrefillProblem& problem, const Workspace& workspace,
                     const PrefillExtent& extent, PrefillParams* params) {
  char* const base = static_cast<char*>(workspace.data);
  char* const records = base + order_bytes(problem, extent.sequences);
  params->chunks.records = records;
  params->scan.records = records;
  if (!problem.varlen) return;
  params->chunks.order = reinterpret_cast<int*>(base);
  params->scan.order = params->chunks.order;
}

Status launch_chunks(const Prefill::State& state, const PrefillPlan::Cell& cell, Stream stream,
                     bool programmatic, std::int64_t slots, GdnPrefillChunksParams params) {
  params.slots = static_cast<int>(slots);
  params.heads_per_block = heads_per_block(slots, params.heads, state.shared_heads, state.sm_count);
  const std::int64_t blocks = slots * (params.heads / params.heads_per_block);
  return state.chunks[cell.chunks].launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = programmatic}, params);
}

Status launch_scan(const Prefill::State& state, const PrefillPlan::Cell& cell, Stream stream,
                   bool programmatic, const GdnPrefillScanParams& params) {
  const GdnPrefillScanKey& key = state.plan.scans[cell.scan];
  const std::int64_t per_sequence = std::int64_t{params.heads} * (key.value_dim / (16 * key.warps));
  const std::int64_t blocks = params.sequences * per_sequence;
  return state.scans[cell.scan].launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = programmatic}, params);
}

// Launches take their geometry from `sm_count`.
Result<Prefill> load(const Context& context, const PrefillProblem& problem, PrefillPlan plan,
                     int sm_count) {
  std::vector<KernelSpec> specs;
  for (const auto& key : plan.chunks) CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  for (const auto& key : plan.scans) CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  if (!kernels) return std::move(kernels).error();
  const auto first_scan = kernels->begin() + static_cast<std::ptrdiff_t>(plan.chunks.size());
  return Prefill(std::make_shared<const Prefill::State>(
      Prefill::State{.problem = problem,
                     .plan = std::move(plan),
                     .chunks = {kernels->begin(), first_scan},
                     .scans = {first_scan, kernels->end()},
                     .shared_heads = shared_heads(problem),
                     .sm_count = sm_count,
                     .programmatic = has_clusters(arch_of(context).major)}));
}

}  // namespace

// Dense sequences need fewer slots than chunk_slots(): they know where each other's chunks end.
std::int64_t Prefill::State::slots(const PrefillExtent& extent) const {
  const int chunk = plan.chunk_size();
  if (problem.varlen) return chunk_slots(extent.tokens, extent.sequences, chunk);
  return extent.sequences * ((extent.tokens + chunk - 1) / chunk);
}

Result<Prefill> Prefill::create(const Context& context, const PrefillProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  const int limit = max_shared_bytes(arch_of(context));
  const TuningKnowledge known = tuning_knowledge(context, prefill_question(problem, {}, {}, limit));
  const Answers answers(prefill_question(problem, known.gpu, known.toolchain, limit),
                        known.results);
  return create_tuned<Prefill>(
      context, kPrefillOp, answers,
      [&](const Answers* asked, std::string_view why_not) {
        return prefill_plan(problem, limit, known.rates, asked, why_not);
      },
      [&](PrefillPlan plan) {
        return load(context, problem, std::move(plan), context.sm_count());
      });
}

Result<Prefill> create_prefill(const Context& context, const PrefillProblem& problem,
                               const PrefillPair& pair, bool always_share) {
  return load(context, problem, prefill_plan(pair), always_share ? 0 : context.sm_count());
}

const PrefillProblem& Prefill::problem() const { return state_->problem; }

std::size_t Prefill::workspace_bytes(const PrefillSize& size) const {
  const std::int64_t sequences = std::max<std::int64_t>(size.sequences, 0);
  const std::int64_t whole =
      chunk_slots(std::max<std::int64_t>(size.tokens, 0), 0, state_->plan.chunk_size());
  std::int64_t slots = 0;
  if (__builtin_add_overflow(whole, sequences, &slots)) {
    return std::numeric_limits<std::size_t>::max();
  }
  return bytes_for(*state_, slots, sequences);
}

Chosen Prefill::choice(const PrefillSize& size) const {
  const PrefillPlan& plan = state_->plan;
  return plan.choices[plan.cell(size).chosen];
}

Status Prefill::launch(Stream stream, const PrefillArgs& args, const Workspace& workspace) const {
  const State& state = *state_;
  const PrefillLimits limits = prefill_limits(state.problem, state.plan.chunk_size());
  PrefillExtent extent;
  CUBINERY_RETURN_IF_ERROR(prefill_extent(state.problem, args, limits, &extent));
  if (extent.sequences == 0) return {};
  CUBINERY_RETURN_IF_ERROR(check_max_seqlen(args.max_seqlen, extent.tokens));
  PrefillParams params;
  CUBINERY_RETURN_IF_ERROR(bind_prefill(state.problem, args, extent, &params));
  const std::int64_t slots = state.slots(extent);
  CUBINERY_RETURN_IF_ERROR(check_workspace(workspace, bytes_for(state, slots, extent.sequences)));
  place_workspace(state.problem, workspace, extent, &params);
  const PrefillPlan::Cell& cell =
      state.plan.cell({.tokens = extent.all_tokens(state.problem.varlen),
                       .sequences = extent.sequences,
                       .max_seqlen = args.max_seqlen});
  if (slots == 0) return launch_scan(state, cell, stream, args.programmatic, params.scan);
  CUBINERY_RETURN_IF_ERROR(
      launch_chunks(state, cell, stream, args.programmatic, slots, params.chunks));
  // It may start early wherever that is possible: it waits itself for the chunks, which have waited
  // for what is in front of them.
  return launch_scan(state, cell, stream, state.programmatic, params.scan);
}

}  // namespace cubinery::gdn
