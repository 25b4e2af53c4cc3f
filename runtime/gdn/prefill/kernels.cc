#include "runtime/gdn/prefill/kernels.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "codegen/arch.h"
#include "runtime/gdn/prefill/args.h"
#include "runtime/jit/kernel_state.h"
#include "runtime/jit/tensor_map.h"

namespace cubinery::gdn {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Pieces of a workspace, one behind the other.  Saturates.
class Pieces {
 public:
  // Where `count` things of `bytes` each begin.
  std::int64_t add(std::int64_t count, std::int64_t bytes) {
    constexpr std::int64_t kUnit = kWorkspaceAlignment;
    const std::int64_t begin = end_;
    if (__builtin_mul_overflow(count, bytes, &bytes) ||
        __builtin_add_overflow(end_, bytes, &end_) ||
        __builtin_add_overflow(end_, kUnit - 1, &end_)) {
      end_ = kMost;
    }
    end_ = end_ / kUnit * kUnit;
    return begin;
  }

  // Of all pieces together.
  std::size_t bytes() const {
    return end_ > kMost - static_cast<std::int64_t>(kWorkspaceAlignment)
               ? std::numeric_limits<std::size_t>::max()
               : static_cast<std::size_t>(end_);
  }

 private:
  std::int64_t end_ = 0;
};

// Where the pieces of a workspace lie.
struct Places {
  std::int64_t order = 0;
  std::int64_t counters = 0;
  std::int64_t states = 0;
  std::int64_t transitions = 0;
  std::int64_t wy = 0;
  std::size_t bytes = 0;
};

// Of a launch with so many WY factors for each head, and of so many tokens and sequences.
Places places_of(const PrefillProblem& problem, const PrefillKernels& keys,
                 const std::optional<SegmentRule>& rule, std::int64_t slots, std::int64_t tokens,
                 std::int64_t sequences) {
  Pieces pieces;
  Places found;
  const int heads = problem.heads.count();
  const GdnPrefillScanKey& scan = keys.scan;
  if (problem.varlen) found.order = pieces.add(sequences, sizeof(int));
  if (rule) {
    const std::int64_t results = rule->most_results(tokens, sequences);
    found.counters = pieces.add(segment_counters(results, heads), sizeof(unsigned));
    found.states = pieces.add(results * heads, segment_state_bytes(scan.key_dim, scan.value_dim));
    found.transitions = pieces.add(
        results * heads, segment_transition_bytes(scan.key_dim, scan.dtype, scan.inputs.decay));
  }
  found.wy = pieces.add(slots, std::int64_t{wy_bytes(scan)} * heads);
  found.bytes = pieces.bytes();
  return found;
}

class KernelsRunner final : public PrefillRunner {
 public:
  // Launches take their geometry from the target.
  KernelsRunner(const PrefillProblem& problem, const PrefillKernels& keys,
                std::optional<SegmentRule> rule, const Target& target, std::vector<Kernel> kernels)
      : problem_(problem),
        keys_(keys),
        rule_(rule),
        sm_count_(target.sm_count),
        enable_pdl_(has_clusters(target.arch.major)),
        shared_heads_(shared_heads(problem)),
        chunks_(std::move(kernels[0])),
        scan_(std::move(kernels[1])) {
    if (kernels.size() > 2) scan_by_threads_ = std::move(kernels[2]);
    if (kernels.size() > 3) decays_ = std::move(kernels[3]);
  }

  PrefillLimits limits() const override {
    PrefillLimits limits = prefill_limits(problem_, chunk_size());
    // Blocks for outputs, and three times for what segments leave for others.
    if (rule_) limits.sequences /= 4 + problem_.key_dim / problem_.value_dim;
    if (problem_.context_parallel) {
      // As many segments.
      const std::int64_t segments = limits.sequences;
      limits.sequences /= 2;
      limits.tokens = std::min(limits.tokens, segments / 2 * problem_.segment_tokens);
    }
    return limits;
  }

  std::size_t workspace_bytes(std::int64_t tokens, std::int64_t sequences) const override {
    return gdn::workspace_bytes(problem_, keys_, rule_, tokens, sequences);
  }

  Status launch(Stream stream, const PrefillArgs& args, const PrefillExtent& extent,
                const Workspace& workspace) const override {
    PrefillParams params;
    CUBINERY_RETURN_IF_ERROR(bind_prefill(problem_, args, extent, &params));
    const std::int64_t slots = slots_of(extent);
    const Places found =
        places_of(problem_, keys_, rule_, slots, extent.all_tokens(), extent.sequences);
    CUBINERY_RETURN_IF_ERROR(check_workspace(workspace, found.bytes));
    place_workspace(found, workspace, &params);
    if (problem_.context_parallel) {
      place_steps(found, extent, workspace, &params);
    } else if (rule_) {
      cut_sequences(found, extent, workspace, &params);
    }
    const CurrentContext current = with_context_of(scan_);
    CUBINERY_RETURN_IF_ERROR(current.status().clone());
    const Kernel& scan =
        scan_by_threads_ && !map_tensors(current, extent, &params.scan) ? *scan_by_threads_ : scan_;
    const bool makes_wy = keys_.scan.makes_wy && &scan == &scan_;
    if (makes_wy) {
      params.scan.gates = params.chunks.gates;
      params.scan.scale = params.chunks.scale;
    }
    if (problem_.context_parallel) return launch_steps(scan, stream, args, slots, &params);
    const std::int64_t most = makes_wy ? most_blocks(extent, params.scan.segments) : kMost;
    if (slots == 0 || (makes_wy && !decays_)) {
      return launch_scan(scan, stream, args.enable_pdl, params.scan, most);
    }
    params.chunks.segment_chunks = params.scan.segments.chunks;
    CUBINERY_RETURN_IF_ERROR(makes_wy
                                 ? launch_decays(stream, args.enable_pdl, slots, &params.chunks)
                                 : launch_chunks(stream, args.enable_pdl, slots, &params.chunks));
    // It may start early wherever that is possible: it waits itself for the chunks, which have
    // waited for what is in front of them.
    return launch_scan(scan, stream, enable_pdl_, params.scan, most);
  }

 private:
  int chunk_size() const { return keys_.chunks.chunk_size; }

  // WY factors of a launch.  Dense sequences need fewer than chunk_slots(): they know where each
  // other's chunks end.
  std::int64_t slots_of(const PrefillExtent& extent) const {
    if (problem_.varlen) return chunk_slots(extent.tokens, extent.sequences, chunk_size());
    return extent.sequences * int_ceil_div(extent.tokens, chunk_size());
  }

  void place_workspace(const Places& found, const Workspace& workspace,
                       PrefillParams* params) const {
    char* const base = static_cast<char*>(workspace.data);
    params->chunks.wy = base + found.wy;
    params->scan.wy = params->chunks.wy;
    if (!problem_.varlen) return;
    params->chunks.order = reinterpret_cast<int*>(base + found.order);
    params->scan.order = params->chunks.order;
  }

  void cut_sequences(const Places& found, const PrefillExtent& extent, const Workspace& workspace,
                     PrefillParams* params) const {
    const std::int64_t tokens = extent.all_tokens();
    SegmentParams& segments = params->scan.segments;
    segments.chunks = rule_->chunks(tokens, extent.longest);
    const int segment_tokens = segments.chunks * chunk_size();
    const auto chunks = static_cast<int>(int_ceil_div(extent.tokens, chunk_size()));
    const int most = cut(chunks, segments.chunks).segments;  // of a sequence
    segments.slots =
        static_cast<int>(problem_.varlen ? segment_slots(tokens, extent.sequences, segment_tokens)
                                         : extent.sequences * most);
    segments.chains = most > 2 ? static_cast<int>(extent.sequences) : 0;
    if (tokens == 0) return;
    const std::int64_t results = segment_results(tokens, segment_tokens) * problem_.heads.count();
    char* const base = static_cast<char*>(workspace.data);
    segments.tickets = reinterpret_cast<unsigned*>(base + found.counters);
    segments.started = segments.tickets + 1;
    segments.finished = segments.started + results;
    segments.ready = segments.finished + results;
    segments.states = base + found.states;
    segments.transitions = base + found.transitions;
    params->chunks.zeroed = segments.tickets;
    params->chunks.counters = 1 + 3 * results;
  }

  // As cut_sequences(), with context_parallel.
  void place_steps(const Places& found, const PrefillExtent& extent, const Workspace& workspace,
                   PrefillParams* params) const {
    SegmentParams& segments = params->scan.segments;
    segments.chunks = rule_->chunks(extent.tokens, extent.longest);
    const int tokens = segments.chunks * chunk_size();
    const std::int64_t most = std::max<std::int64_t>(int_ceil_div(extent.tokens, tokens), 1);
    // Packed sequences may each end with a segment that is not whole.
    segments.slots =
        static_cast<int>(problem_.varlen ? most + extent.sequences - 1 : most * extent.sequences);
    segments.step.may_forget = problem_.inputs.use_qk_l2norm;
    char* const base = static_cast<char*>(workspace.data);
    segments.finished = reinterpret_cast<unsigned*>(base + found.counters);
    segments.states = base + found.states;
    segments.transitions = base + found.transitions;
    params->chunks.zeroed = segments.finished;
    params->chunks.counters = std::int64_t{segments.slots} * problem_.heads.count();
  }

  // Those of PrefillArgs::step.
  Status launch_steps(const Kernel& scan, Stream stream, const PrefillArgs& args,
                      std::int64_t slots, PrefillParams* params) const {
    StepParams& step = params->scan.segments.step;
    step.continues = args.continues;
    bool enable_pdl = args.enable_pdl;
    const auto is_due = [&](Step which) {
      if (args.step == 0) return true;
      // Without tokens all is done where the first state is there.
      if (slots == 0) return args.step == static_cast<std::int64_t>(Step::kCarry);
      return args.step == static_cast<std::int64_t>(which);
    };
    if (slots == 0) step.continues = false;
    if (is_due(Step::kStart) && slots > 0) {
      CUBINERY_RETURN_IF_ERROR(launch_chunks(stream, enable_pdl, slots, &params->chunks));
      enable_pdl = enable_pdl_;
    }
    for (const Step which : {Step::kStart, Step::kCarry, Step::kFinish}) {
      if (!is_due(which)) continue;
      step.step = which;
      CUBINERY_RETURN_IF_ERROR(launch_scan(scan, stream, enable_pdl, params->scan));
      enable_pdl = enable_pdl_;
    }
    return {};
  }

  // False: TMA cannot read or write one of them.
  bool map_tensors(const CurrentContext& current, const PrefillExtent& extent,
                   GdnPrefillScanParams* params) const {
    const GdnPrefillScanKey& key = keys_.scan;
    const int key_row = swizzled_key_bytes(key.key_dim, key.dtype);
    return extent.tokens > 0 &&
           map_rows(current, extent, params->q, params->q.group, key.dtype, key.key_dim, key_row,
                    &params->q_map) &&
           map_rows(current, extent, params->k, params->k.group, key.dtype, key.key_dim, key_row,
                    &params->k_map) &&
           map_rows(current, extent, params->v, params->v.group, key.dtype, key.value_dim,
                    kSwizzledValueBytes, &params->v_map) &&
           (size_of(key.output_dtype) != 2 ||
            map_rows(current, extent, params->o, 1, key.output_dtype, key.value_dim,
                     kSwizzledValueBytes, &params->o_map));
  }

  // Boxes of a chunk's rows, of `row_bytes` of a row.
  template <class Rows>
  bool map_rows(const CurrentContext& current, const PrefillExtent& extent, const Rows& rows,
                int group, DType dtype, int dim, int row_bytes, TensorMap* map) const {
    const std::int64_t sequences = problem_.varlen ? 1 : extent.sequences;
    return make_tensor_map(
        current,
        {.data = rows.data,
         .dtype = dtype,
         .extents = {dim, problem_.heads.count() / group, extent.tokens, sequences},
         .strides = {1, rows.stride.head, rows.stride.token, rows.stride.batch},
         .box = {row_bytes / 2, 1, chunk_size(), 1},
         .swizzle_bytes = row_bytes},
        map);
  }

  // Of a scan that makes its WY factors: as many as multiprocessors where blocks go from unit to
  // unit, and one more for each that ends with a chain.
  std::int64_t most_blocks(const PrefillExtent& extent, const SegmentParams& segments) const {
    const std::int64_t resident = std::max(sm_count_, 1);
    if (!rule_) {
      return blocks_stay(keys_.scan, extent.all_tokens(), extent.sequences) ? resident : kMost;
    }
    if (segments.tickets == nullptr) return kMost;
    const std::int64_t slices = keys_.scan.value_dim / (16 * keys_.scan.warps);
    return resident + slices * segments.chains * problem_.heads.count();
  }

  Status launch_chunks(Stream stream, bool enable_pdl, std::int64_t slots,
                       GdnPrefillChunksParams* params) const {
    params->heads_per_block =
        heads_per_block(slots, problem_.heads.count(), shared_heads_, sm_count_);
    const std::int64_t most = problem_.inputs.decay == Decay::kChannel
                                  ? std::int64_t{sm_count_} * resident_blocks(keys_.chunks)
                                  : kMost;
    return launch_first(chunks_, stream, enable_pdl, slots, std::max<std::int64_t>(most, 1),
                        params);
  }

  // Of decays alone any heads share a block: many small ones, which wait for their loads.
  Status launch_decays(Stream stream, bool enable_pdl, std::int64_t slots,
                       GdnPrefillChunksParams* params) const {
    constexpr int kResident = 16;
    const int heads = problem_.heads.count();
    params->heads_per_block =
        heads_per_block(slots, heads, std::gcd(heads, kMaxHeadsPerBlock), sm_count_ * kResident);
    return launch_first(*decays_, stream, enable_pdl, slots, kMost, params);
  }

  // `most`: blocks.
  Status launch_first(const Kernel& kernel, Stream stream, bool enable_pdl, std::int64_t slots,
                      std::int64_t most, GdnPrefillChunksParams* params) const {
    params->slots = static_cast<int>(slots);
    const std::int64_t blocks =
        std::min(slots * (problem_.heads.count() / params->heads_per_block), most);
    return kernel.launch(
        stream, {.grid = {static_cast<unsigned>(blocks)}, .enable_pdl = enable_pdl}, *params);
  }

  // `most`: blocks.
  Status launch_scan(const Kernel& scan, Stream stream, bool enable_pdl,
                     const GdnPrefillScanParams& params, std::int64_t most = kMost) const {
    const int columns = 16 * keys_.scan.warps;
    const int outputs = keys_.scan.value_dim / columns;
    std::int64_t blocks = outputs * std::int64_t{params.sequences};
    const Step step = params.segments.step.step;
    if (problem_.context_parallel && step != Step::kCarry) {
      // The first segment of a sequence that begins here has no transition, nor a second run.
      const bool has_others =
          params.segments.step.continues || params.segments.slots > params.sequences;
      if (step == Step::kFinish && !has_others) return {};
      const int transitions = step == Step::kStart && has_others ? keys_.scan.key_dim / columns : 0;
      blocks = std::int64_t{outputs + transitions} * params.segments.slots *
               (step == Step::kFinish ? kParts : 1);
    } else if (rule_ && !problem_.context_parallel) {
      blocks =
          segment_tickets<std::int64_t>(keys_.scan, params.segments.slots, params.segments.chains);
    }
    blocks = std::min(blocks * problem_.heads.count(), most);
    return scan.launch(stream, {.grid = {static_cast<unsigned>(blocks)}, .enable_pdl = enable_pdl},
                       params);
  }

  PrefillProblem problem_;
  PrefillKernels keys_;
  std::optional<SegmentRule> rule_;
  int sm_count_;
  bool enable_pdl_;   // the device has launches with PDL
  int shared_heads_;  // the most heads that may share a block of the first kernel
  Kernel chunks_;
  Kernel scan_;
  std::optional<Kernel> scan_by_threads_;  // with wgmma
  std::optional<Kernel> decays_;           // where the scan makes WY factors of segments
};

std::vector<PrefillKernels> with_chunk_size(PrefillKernels keys, int chunk_size,
                                            const PrefillProblem& problem, const Target& target) {
  keys.chunks.chunk_size = keys.scan.chunk_size = chunk_size;
  std::vector<PrefillKernels> found;
  const bool is_fused = keys.scan.makes_wy;
  if (is_fused) keys.scan.stages = 6;
  for (const int warps : {8, 4, 3, 2, 1}) {
    keys.scan.warps = warps;
    const PrefillKernels fitted{.chunks = keys.chunks,
                                .scan = with_stages_in(target.shared_bytes_per_block, keys.scan)};
    if (fit(fitted, problem, target)) found.push_back(fitted);
    // Blocks that have a multiprocessor to themselves.
    PrefillKernels deep = fitted;
    deep.scan.stages = 6;
    if (has_channel_decays(deep.scan) && deep.scan.wgmma && fit(deep, problem, target)) {
      found.push_back(deep);
    }
    // Two heads' halves, each with its own producers, were never faster than a whole one.
    if (is_fused && !found.empty()) break;
  }
  return found;
}

}  // namespace

std::vector<PrefillKernels> default_kernels(const PrefillKernels& fixed,
                                            const PrefillProblem& problem, const Target& target) {
  // Chunks of 64 are slower, but for blocks that have a multiprocessor to themselves: more
  // registers, so fewer warps.
  std::vector<PrefillKernels> found = with_chunk_size(fixed, 32, problem, target);
  return found.empty() ? with_chunk_size(fixed, 16, problem, target) : found;
}

std::optional<std::string> why_no_kernels(const PrefillKernels& fixed,
                                          const PrefillProblem& problem, const Target& target) {
  if (fixed.scan.wgmma && !has_wgmma(target.arch)) return "it needs sm_90a";
  // Wider ones have more rules.
  GdnPrefillScanKey narrow = fixed.scan;
  if (!narrow.wgmma) narrow.warps = 1;
  if (narrow.makes_wy) {
    narrow.stages = 4;
  } else {
    narrow.chunk_size = 16;
  }
  if (const char* reason = why_invalid(narrow)) return reason;
  if (!default_kernels(fixed, problem, target).empty()) return std::nullopt;
  return "its blocks need more shared memory";
}

bool fit(const PrefillKernels& keys, const PrefillProblem& problem, const Target& target) {
  const int limit = target.shared_bytes_per_block;
  const auto divides_every = [&](int chunk_size) {
    return problem.checkpoints == Checkpoints::kNone || problem.checkpoint_every % chunk_size == 0;
  };
  // Chunks of 16 were never near the fastest on an H200 or an H100.
  const auto is_worth_it = [&] { return keys.scan.chunk_size != 16 || !divides_every(32); };
  return valid(keys.chunks) && valid(keys.scan) && keys.chunks.chunk_size == keys.scan.chunk_size &&
         shared_bytes(keys.chunks) <= limit && shared_bytes(keys.scan) <= limit &&
         divides_every(keys.scan.chunk_size) &&
         (!keys.scan.wgmma || (has_wgmma(target.arch) && is_worth_it()));
}

GdnPrefillScanKey with_most_stages(GdnPrefillScanKey scan, const Target& target) {
  GdnPrefillScanKey four = scan;
  four.stages = 4;
  return 2 * shared_bytes(four) <= target.shared_bytes_per_block ? four : scan;
}

bool has_usual_stages(const GdnPrefillScanKey& scan, const Target& target) {
  GdnPrefillScanKey usual = scan;
  usual.stages = scan.makes_wy ? 6 : 3;
  return scan.stages == with_stages_in(target.shared_bytes_per_block, usual).stages;
}

PrefillCost cost_of(const PrefillProblem& problem, const PrefillKernels& keys,
                    const Target& target) {
  return {keys.chunks, keys.scan, problem.heads.count(), shared_heads(problem), target};
}

PrefillLoad load_at(const Point& at) {
  return {.sequences = at[0], .length = at[1], .longest = at[1] * at[2]};
}

std::size_t workspace_bytes(const PrefillProblem& problem, const PrefillKernels& keys,
                            const std::optional<SegmentRule>& rule, std::int64_t tokens,
                            std::int64_t sequences) {
  std::int64_t slots = 0;
  if (__builtin_add_overflow(chunk_slots(tokens, 0, keys.scan.chunk_size), sequences, &slots)) {
    return std::numeric_limits<std::size_t>::max();
  }
  return places_of(problem, keys, rule, slots, tokens, sequences).bytes;
}

std::unique_ptr<const PrefillRunner> prefill_runner(const PrefillProblem& problem,
                                                    const PrefillKernels& keys,
                                                    std::optional<SegmentRule> rule,
                                                    const Target& target,
                                                    std::vector<Kernel> kernels) {
  return std::make_unique<KernelsRunner>(problem, keys, rule, target, std::move(kernels));
}

}  // namespace cubinery::gdn
