// The prefill operator: chooses kernels, lays out the workspace, launches.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "codegen/arch.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/get_kernels.h"
#include "runtime/prefill_state.h"
#include "runtime/problem_check.h"
#include "runtime/tensor_check.h"

namespace cubinery::gdn {
namespace {

constexpr std::string_view kOp = Fields<PrefillProblem>::kName;
constexpr std::size_t kWorkspaceAlignment = 256;

// Heads share a block of the first kernel when there remain this many blocks per multiprocessor.
constexpr std::int64_t kSharedBlocksPerSm = 4;

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
      std::int64_t{chunk_record(state.chunks_key.chunk_size, state.chunks_key.dtype).bytes};
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(slots, record * state.problem.heads(), &bytes) ||
      __builtin_add_overflow(bytes, order_bytes(state.problem, sequences), &bytes)) {
    return std::numeric_limits<std::size_t>::max();
  }
  return static_cast<std::size_t>(bytes);
}

Status check_workspace(const Workspace& workspace, std::size_t needed) {
  const TensorName name{kOp, "workspace"};
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

Status launch_chunks(const Prefill::State& state, Stream stream, bool programmatic,
                     std::int64_t slots, GdnPrefillChunksParams params) {
  params.slots = static_cast<int>(slots);
  params.heads_per_block = state.heads_per_block(slots);
  const std::int64_t blocks = slots * (params.heads / params.heads_per_block);
  return state.chunks.launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = programmatic}, params);
}

Status launch_scan(const Prefill::State& state, Stream stream, bool programmatic,
                   const GdnPrefillScanParams& params) {
  const Prefill::State::Scan& scan = state.scan(params.sequences);
  const std::int64_t blocks = scan.blocks(params.sequences, params.heads);
  return scan.kernel.launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = programmatic}, params);
}

// Heads that share k and q heads, in a group that divides them all.
int shared_heads(const PrefillProblem& problem) {
  const int group = std::gcd(problem.heads() / problem.q_heads, problem.heads() / problem.k_heads);
  int shared = std::min(group, kMaxHeadsPerBlock);
  while (group % shared != 0) --shared;
  return shared;
}

}  // namespace

const Prefill::State::Scan& Prefill::State::scan(std::int64_t sequences) const {
  const auto fills = [&](const Scan& scan) {
    return 4 * scan.blocks(sequences, problem.heads()) >= 3 * std::int64_t{sm_count};
  };
  const auto found = std::find_if(scans.begin(), scans.end(), fills);
  return found != scans.end() ? *found : scans.back();
}

int Prefill::State::heads_per_block(std::int64_t slots) const {
  const std::int64_t blocks = slots * (problem.heads() / shared_heads);
  return blocks >= kSharedBlocksPerSm * sm_count ? shared_heads : 1;
}

// Dense sequences need fewer slots than chunk_slots(): they know where each other's chunks end.
std::int64_t Prefill::State::slots(const PrefillExtent& extent) const {
  const int chunk = chunks_key.chunk_size;
  if (problem.varlen) return chunk_slots(extent.tokens, extent.sequences, chunk);
  return extent.sequences * ((extent.tokens + chunk - 1) / chunk);
}

Result<Prefill> Prefill::create(const Context& context, const PrefillProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  // A context has a known architecture.
  const Arch arch = parse_arch(context.arch()).value_or(Arch{});
  return create_prefill(context, problem, prefill_keys(problem, max_shared_bytes(arch)));
}

Result<Prefill> create_prefill(const Context& context, const PrefillProblem& problem,
                               const PrefillKeys& keys) {
  std::vector<KernelSpec> specs;
  CUBINERY_RETURN_IF_ERROR(add_spec(keys.chunks, &specs));
  for (const GdnPrefillScanKey& key : keys.scans) CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  if (!kernels) return std::move(kernels).error();
  std::vector<Prefill::State::Scan> scans;
  for (std::size_t i = 0; i < keys.scans.size(); ++i) {
    scans.push_back({.key = keys.scans[i], .kernel = (*kernels)[i + 1]});
  }
  const Arch arch = parse_arch(context.arch()).value_or(Arch{});
  return Prefill(std::make_shared<const Prefill::State>(
      Prefill::State{.problem = problem,
                     .chunks_key = keys.chunks,
                     .chunks = kernels->front(),
                     .scans = std::move(scans),
                     .shared_heads = shared_heads(problem),
                     .sm_count = context.sm_count(),
                     .programmatic = has_clusters(arch.major)}));
}

const PrefillProblem& Prefill::problem() const { return state_->problem; }

std::size_t Prefill::workspace_bytes(const PrefillSize& size) const {
  const std::int64_t sequences = std::max<std::int64_t>(size.sequences, 0);
  const std::int64_t whole =
      chunk_slots(std::max<std::int64_t>(size.tokens, 0), 0, state_->chunks_key.chunk_size);
  std::int64_t slots = 0;
  if (__builtin_add_overflow(whole, sequences, &slots)) {
    return std::numeric_limits<std::size_t>::max();
  }
  return bytes_for(*state_, slots, sequences);
}

Status Prefill::launch(Stream stream, const PrefillArgs& args, const Workspace& workspace) const {
  const State& state = *state_;
  const PrefillLimits limits = prefill_limits(state.problem, state.chunks_key.chunk_size);
  PrefillExtent extent;
  CUBINERY_RETURN_IF_ERROR(prefill_extent(state.problem, args, limits, &extent));
  if (extent.sequences == 0) return {};
  PrefillParams params;
  CUBINERY_RETURN_IF_ERROR(bind_prefill(state.problem, args, extent, &params));
  const std::int64_t slots = state.slots(extent);
  CUBINERY_RETURN_IF_ERROR(check_workspace(workspace, bytes_for(state, slots, extent.sequences)));
  place_workspace(state.problem, workspace, extent, &params);
  if (slots == 0) return launch_scan(state, stream, args.programmatic, params.scan);
  CUBINERY_RETURN_IF_ERROR(launch_chunks(state, stream, args.programmatic, slots, params.chunks));
  // It may start early wherever that is possible: it waits itself for the chunks, which have waited
  // for what is in front of them.
  return launch_scan(state, stream, state.programmatic, params.scan);
}

}  // namespace cubinery::gdn
