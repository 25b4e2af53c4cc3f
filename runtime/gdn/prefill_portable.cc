#include "runtime/gdn/prefill_portable.h"

#include <limits>
#include <utility>

#include "codegen/arch.h"
#include "runtime/gdn/prefill_args.h"
#include "runtime/gdn/prefill_cost.h"

namespace cubinery::gdn {
namespace {

using KeySet = PrefillPortable::KeySet;

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

void place_workspace(const PrefillProblem& problem, const Workspace& workspace,
                     std::int64_t sequences, PrefillParams* params) {
  char* const base = static_cast<char*>(workspace.data);
  char* const records = base + order_bytes(problem, sequences);
  params->chunks.records = records;
  params->scan.records = records;
  if (!problem.varlen) return;
  params->chunks.order = reinterpret_cast<int*>(base);
  params->scan.order = params->chunks.order;
}

class PortablePrefillRunner final : public PrefillRunner {
 public:
  // Launches take their geometry from `sm_count`.
  PortablePrefillRunner(const PrefillProblem& problem, const KeySet& keys, int sm_count,
                        bool programmatic, std::vector<Kernel> kernels)
      : problem_(problem),
        keys_(keys),
        sm_count_(sm_count),
        programmatic_(programmatic),
        shared_heads_(shared_heads(problem)),
        chunks_(std::move(kernels[0])),
        scan_(std::move(kernels[1])) {}

  PrefillLimits limits() const override { return prefill_limits(problem_, chunk_size()); }

  std::size_t workspace_bytes(std::int64_t tokens, std::int64_t sequences) const override {
    std::int64_t slots = 0;
    if (__builtin_add_overflow(chunk_slots(tokens, 0, chunk_size()), sequences, &slots)) {
      return std::numeric_limits<std::size_t>::max();
    }
    return bytes_for(slots, sequences);
  }

  Status launch(Stream stream, const PrefillArgs& args, const PrefillExtent& extent,
                const Workspace& workspace) const override {
    PrefillParams params;
    CUBINERY_RETURN_IF_ERROR(bind_prefill(problem_, args, extent, &params));
    const std::int64_t slots = slots_of(extent);
    CUBINERY_RETURN_IF_ERROR(check_workspace(workspace, bytes_for(slots, extent.sequences)));
    place_workspace(problem_, workspace, extent.sequences, &params);
    if (slots == 0) return launch_scan(stream, args.programmatic, params.scan);
    CUBINERY_RETURN_IF_ERROR(launch_chunks(stream, args.programmatic, slots, params.chunks));
    // It may start early wherever that is possible: it waits itself for the chunks, which have
    // waited for what is in front of them.
    return launch_scan(stream, programmatic_, params.scan);
  }

 private:
  int chunk_size() const { return std::get<0>(keys_).chunk_size; }

  // Records of a launch.  Dense sequences need fewer than chunk_slots(): they know where each
  // other's chunks end.
  std::int64_t slots_of(const PrefillExtent& extent) const {
    const int chunk = chunk_size();
    if (problem_.varlen) return chunk_slots(extent.tokens, extent.sequences, chunk);
    return extent.sequences * ((extent.tokens + chunk - 1) / chunk);
  }

  // Of a workspace of so many slots.  Saturates.
  std::size_t bytes_for(std::int64_t slots, std::int64_t sequences) const {
    const auto record = std::int64_t{chunk_record(chunk_size(), problem_.dtype).bytes};
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(slots, record * problem_.heads.count(), &bytes) ||
        __builtin_add_overflow(bytes, order_bytes(problem_, sequences), &bytes)) {
      return std::numeric_limits<std::size_t>::max();
    }
    return static_cast<std::size_t>(bytes);
  }

  Status launch_chunks(Stream stream, bool programmatic, std::int64_t slots,
                       GdnPrefillChunksParams params) const {
    params.slots = static_cast<int>(slots);
    params.heads_per_block =
        heads_per_block(slots, problem_.heads.count(), shared_heads_, sm_count_);
    const std::int64_t blocks = slots * (problem_.heads.count() / params.heads_per_block);
    return chunks_.launch(
        stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = programmatic}, params);
  }

  Status launch_scan(Stream stream, bool programmatic, const GdnPrefillScanParams& params) const {
    const GdnPrefillScanKey& key = std::get<1>(keys_);
    const std::int64_t per_sequence =
        std::int64_t{problem_.heads.count()} * (key.value_dim / (16 * key.warps));
    const std::int64_t blocks = params.sequences * per_sequence;
    return scan_.launch(
        stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = programmatic}, params);
  }

  PrefillProblem problem_;
  KeySet keys_;
  int sm_count_;
  bool programmatic_;  // the device has programmatic launches
  int shared_heads_;   // the most heads that may share a block of the first kernel
  Kernel chunks_;
  Kernel scan_;
};

// Wide scan blocks read q, k and the chunk records least often, narrow ones fill the machine when
// there are few sequences and heads.  None: the chunks do not fit.
std::vector<KeySet> with_chunk_size(KeySet keys, int chunk_size, int shared_limit) {
  auto& [chunks, scan] = keys;
  chunks.chunk_size = scan.chunk_size = chunk_size;
  std::vector<KeySet> found;
  if (shared_bytes(chunks) > shared_limit) return found;
  for (const int warps : {4, 3, 2, 1}) {
    scan.warps = warps;
    const GdnPrefillScanKey fitted = with_stages_in(shared_limit, scan);
    if (valid(fitted) && shared_bytes(fitted) <= shared_limit) found.emplace_back(chunks, fitted);
  }
  return found;
}

}  // namespace

std::vector<KeySet> PrefillPortable::default_keys(const PrefillProblem& problem,
                                                  const Target& target) const {
  // Chunks of 64 were slower wherever they were measured: more registers, so fewer warps.
  const bool keeps = problem.checkpoints != Checkpoints::kNone;
  if (!keeps || problem.checkpoint_every % 32 == 0) {
    std::vector<KeySet> found =
        with_chunk_size(fixed_keys(problem), 32, target.shared_bytes_per_block);
    if (!found.empty()) return found;
  }
  return with_chunk_size(fixed_keys(problem), 16, target.shared_bytes_per_block);
}

std::optional<std::string> PrefillPortable::why_not(const PrefillProblem& problem,
                                                    const Target& target) const {
  if (!default_keys(problem, target).empty()) return std::nullopt;
  return "its blocks need more shared memory";
}

bool PrefillPortable::fits(const PrefillProblem& problem, const KeySet& keys,
                           const Target& target) const {
  const auto& [chunks, scan] = keys;
  const int limit = target.shared_bytes_per_block;
  return valid(chunks) && valid(scan) && chunks.chunk_size == scan.chunk_size &&
         shared_bytes(chunks) <= limit && shared_bytes(scan) <= limit &&
         (problem.checkpoints == Checkpoints::kNone ||
          problem.checkpoint_every % scan.chunk_size == 0);
}

double PrefillPortable::us(const PrefillProblem& problem, const KeySet& keys, const Point& at,
                           const Target& target) const {
  return prefill_us(std::get<0>(keys), std::get<1>(keys),
                    {.sequences = at[0],
                     .length = at[1],
                     .longest = at[1] * at[2],
                     .heads = problem.heads.count(),
                     .shared_heads = shared_heads(problem)},
                    target);
}

std::unique_ptr<const PrefillRunner> PrefillPortable::loaded(const PrefillProblem& problem,
                                                             const KeySet& keys,
                                                             const Target& target,
                                                             std::vector<Kernel> kernels) const {
  return std::make_unique<PortablePrefillRunner>(
      problem, keys, target.sm_count, has_clusters(target.arch.major), std::move(kernels));
}

const PrefillPortable& prefill_portable() {
  static const PrefillPortable kPath;
  return kPath;
}

}  // namespace cubinery::gdn
