#include "runtime/gdn/prefill_problem.h"

#include <algorithm>

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_plan.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery::gdn {
namespace {

GdnPrefillChunksKey chunks_key(const PrefillProblem& problem) {
  GdnPrefillChunksKey key{.key_dim = problem.key_dim,
                          .dtype = problem.dtype,
                          .varlen = problem.varlen,
                          .gate_mode = problem.gate_mode,
                          .beta_mode = problem.beta_mode,
                          .use_qk_l2norm = problem.use_qk_l2norm};
  set_gate_dtypes(problem, &key);
  if (problem.varlen) key.cu_seqlens_dtype = problem.cu_seqlens_dtype;
  return key;
}

GdnPrefillScanKey scan_key(const PrefillProblem& problem) {
  const bool has_states =
      problem.has_initial_state || problem.store_state || problem.checkpoints != Checkpoints::kNone;
  GdnPrefillScanKey key{.key_dim = problem.key_dim,
                        .value_dim = problem.value_dim,
                        .dtype = problem.dtype,
                        .output_dtype = problem.output_dtype,
                        .varlen = problem.varlen,
                        .state_location = problem.state_location,
                        .padding = problem.padding,
                        .has_initial_state = problem.has_initial_state,
                        .store_state = problem.store_state,
                        .checkpoints = problem.checkpoints};
  if (has_states) {
    key.state_dtype = problem.state_dtype;
    key.state_layout = problem.state_layout;
  }
  if (problem.varlen) key.cu_seqlens_dtype = problem.cu_seqlens_dtype;
  set_index_fields(problem, &key);
  return key;
}

// The tuned fields.  Wide scan blocks read q, k and the chunk records least often, narrow ones fill
// the machine when there are few sequences and heads.
PrefillKeys with_chunk_size(const PrefillProblem& problem, int chunk_size, int shared_limit) {
  PrefillKeys keys{.chunks = chunks_key(problem), .scans = {}};
  keys.chunks.chunk_size = chunk_size;
  keys.chunks.warps = chunk_size / 16;
  if (shared_bytes(keys.chunks) > shared_limit) return keys;
  for (const int warps : {4, 3, 2, 1}) {
    for (const int stages : {3, 2}) {
      GdnPrefillScanKey scan = scan_key(problem);
      scan.chunk_size = chunk_size;
      scan.warps = warps;
      scan.stages = stages;
      if (!valid(scan) || shared_bytes(scan) > shared_limit) continue;
      keys.scans.push_back(scan);
      break;
    }
  }
  return keys;
}

}  // namespace

int PrefillProblem::heads() const { return std::max({q_heads, k_heads, v_heads}); }

Status PrefillProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  CUBINERY_RETURN_IF_ERROR(check_integer(kPrefillOp, "cu_seqlens_dtype", cu_seqlens_dtype));
  if (checkpoints != Checkpoints::kNone && (checkpoint_every < 16 || checkpoint_every % 16 != 0)) {
    return bad_field(kPrefillOp, "checkpoint_every", value_text(checkpoint_every),
                     "multiples of 16 from 16 up");
  }
  return {};
}

Result<std::vector<KernelSpec>> PrefillProblem::kernels(std::string_view arch) const {
  return gdn::kernels(*this, arch, embedded_known_results(kPrefillOp));
}

Result<std::vector<KernelSpec>> kernels(const PrefillProblem& problem, std::string_view arch,
                                        const KnownResults& known) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  Result<Arch> parsed = check_arch(kPrefillOp, arch);
  if (!parsed) return std::move(parsed).error();
  const PrefillPlanKeys keys =
      prefill_plan_keys(problem, arch, max_shared_bytes(*parsed), known.results, known.templates);
  std::vector<KernelSpec> specs;
  CUBINERY_RETURN_IF_ERROR(add_spec(keys.chunks.front(), &specs));
  for (const auto& key : keys.scans) CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  for (std::size_t i = 1; i < keys.chunks.size(); ++i) {
    CUBINERY_RETURN_IF_ERROR(add_spec(keys.chunks[i], &specs));
  }
  return specs;
}

std::string PrefillProblem::to_json() const { return cubinery::to_json(*this); }

Result<PrefillProblem> PrefillProblem::from_json(std::string_view json) {
  return problem_from_json<PrefillProblem>(json);
}

PrefillKeys prefill_keys(const PrefillProblem& problem, int shared_limit) {
  // Chunks of 64 were slower wherever they were measured: more registers, so fewer warps.
  const bool keeps = problem.checkpoints != Checkpoints::kNone;
  if (!keeps || problem.checkpoint_every % 32 == 0) {
    PrefillKeys keys = with_chunk_size(problem, 32, shared_limit);
    if (!keys.scans.empty()) return keys;
  }
  return with_chunk_size(problem, 16, shared_limit);  // fits every architecture
}

}  // namespace cubinery::gdn
