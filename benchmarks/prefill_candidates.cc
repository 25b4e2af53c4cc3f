#include "benchmarks/prefill_candidates.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/prefill_check.h"
#include "benchmarks/prepared_launch.h"
#include "codegen/arch.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/prefill_state.h"

namespace cubinery::bench {
namespace {

struct Candidate {
  GdnPrefillChunksKey chunks;
  GdnPrefillScanKey scan;
  std::optional<gdn::Prefill> prefill{};
  std::string refusal{};
  Timing ms{};
  double chunks_ms = 0;
  double scan_ms = 0;
  double error_o = 0;
};

// Each scan key with one chunks key, and each chunks key with one scan key.
std::vector<Candidate> candidates(const Gpu& gpu, const gdn::PrefillProblem& problem) {
  const int limit = max_shared_bytes(parse_arch(gpu.context().arch()).value());
  const gdn::PrefillKeys keys = gdn::prefill_keys(problem, limit);
  std::vector<Candidate> all;
  for_each_candidate(keys.chunks, [&](const GdnPrefillChunksKey& chunks) {
    const bool usual_chunks = chunks.warps == chunks.chunk_size / 16;
    GdnPrefillScanKey usual = keys.scans.front();
    usual.chunk_size = chunks.chunk_size;
    for_each_candidate(usual, [&](const GdnPrefillScanKey& scan) {
      const bool usual_scan = canonical(scan) == canonical(usual);
      const bool fits = shared_bytes(chunks) <= limit && shared_bytes(scan) <= limit;
      if (chunks.chunk_size == scan.chunk_size && fits && (usual_chunks || usual_scan)) {
        all.push_back({.chunks = chunks, .scan = scan});
      }
    });
  });
  return all;
}

// "chunk_size=64;warps=4;...": the part of the canonical key that was tuned.
template <class Key>
std::string tuned_part(const Key& key) {
  const std::string text = canonical(key);
  return text.substr(text.find("chunk_size="));
}

void create(const Gpu& gpu, const gdn::PrefillProblem& problem, Candidate* candidate) {
  Result<gdn::Prefill> prefill =
      gdn::create_prefill(gpu.context(), problem, {candidate->chunks, {candidate->scan}});
  if (prefill) {
    candidate->prefill = *prefill;
  } else {
    candidate->refusal = std::string(prefill.error().message());
  }
}

// Time of one kernel of the operator without the other.
template <class Key>
double kernel_ms(const PrefillWorkload& workload, const gdn::Prefill& prefill, const Key& key,
                 int replays) {
  const Gpu& gpu = workload.gpu();
  const Kernel kernel = gpu.context().get(key).value();
  const test::TestStream stream(gpu);
  std::vector<std::unique_ptr<PreparedLaunch>> sets;
  for (int set = 0; set < workload.sets(); ++set) {
    const auto body = [&] { return workload.launch(prefill, stream.get(), set); };
    sets.push_back(std::make_unique<PreparedLaunch>(gpu, stream, body, kernel, shared_bytes(key)));
  }
  const auto launch = [&](Stream to, int set) {
    gpu.must(sets[idx(set)]->launch(to), "cuLaunchKernel");
    return Status();
  };
  return time_graph(gpu, workload.sets(), replays, launch).median;
}

void time(const PrefillWorkload& workload, const PrefillCheck& check, int replays,
          Candidate* candidate) {
  const gdn::Prefill& prefill = *candidate->prefill;
  candidate->error_o = check.errors(prefill).o.value();
  // First: it leaves chunk records of this chunk size in every workspace, which the scan needs.
  candidate->ms = time_graph(workload.gpu(), workload.sets(), replays, [&](Stream stream, int set) {
    return workload.launch(prefill, stream, set);
  });
  candidate->chunks_ms = kernel_ms(workload, prefill, candidate->chunks, replays);
  candidate->scan_ms = kernel_ms(workload, prefill, candidate->scan, replays);
}

template <class Key>
void print_kernel(const Gpu& gpu, const char* name, const Key& key, double ms) {
  const KernelInfo info = gpu.context().get(key).value().info();
  std::printf("  %s %8.1f us %3d regs %d spilled %.1f KiB", name, ms * 1e3, info.registers,
              info.spill_store_bytes, shared_bytes(key) / 1024.0);
}

void print(const Gpu& gpu, const Candidate& candidate) {
  std::printf("chunks %s scan %s", tuned_part(candidate.chunks).c_str(),
              tuned_part(candidate.scan).c_str());
  if (!candidate.prefill) {
    std::printf("  refused: %s\n", candidate.refusal.c_str());
    return;
  }
  std::printf("  %8.1f us (p90 %.1f)", candidate.ms.median * 1e3, candidate.ms.p90 * 1e3);
  print_kernel(gpu, "chunks", candidate.chunks, candidate.chunks_ms);
  print_kernel(gpu, "scan", candidate.scan, candidate.scan_ms);
  std::printf("  error_o %.1e\n", candidate.error_o);
}

}  // namespace

void print_prefill_candidates(const Gpu& gpu, const PrefillRow& row, int replays) {
  const gdn::PrefillProblem problem = prefill_problem(row);
  std::vector<Candidate> all = candidates(gpu, problem);
  test::parallel_for(static_cast<std::int64_t>(all.size()),
                     [&](std::int64_t i) { create(gpu, problem, &all[idx(i)]); });
  const gdn::PrefillSize size{.tokens = row.tokens(),
                              .sequences = static_cast<std::int64_t>(row.seqlens.size())};
  std::size_t workspace_bytes = 0;
  for (const Candidate& candidate : all) {
    if (!candidate.prefill) continue;
    workspace_bytes = std::max(workspace_bytes, candidate.prefill->workspace_bytes(size));
  }
  const PrefillWorkload workload(gpu, row, workspace_bytes);
  const PrefillCheck check(workload);
  for (Candidate& candidate : all) {
    if (candidate.prefill) time(workload, check, replays, &candidate);
  }
  // Those that were refused come first.
  std::sort(all.begin(), all.end(),
            [](const Candidate& a, const Candidate& b) { return a.ms.median < b.ms.median; });
  for (const Candidate& candidate : all) print(gpu, candidate);
}

}  // namespace cubinery::bench
