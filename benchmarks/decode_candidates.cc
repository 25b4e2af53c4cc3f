// Times every candidate of gdn_decode's tuned fields on the workload of decode_bench.
//
//   decode_candidates [--batch 1,8,128] [--state f32|bf16] [--layout vk|kv]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_workload.h"
#include "gdn_decode/fields.h"
#include "runtime/decode_state.h"

namespace {

namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

struct Row {
  double us = 0;
  double us_p90 = 0;
  std::string text;
};

void time_candidates(const bench::Gpu& gpu, const gdn::DecodeProblem& problem, int batch) {
  const bench::DecodeWorkload workload(gpu, problem, batch);
  std::vector<Row> rows;
  for_each_candidate(decode_keys(problem).wide, [&](const cubinery::GdnDecodeKey& key) {
    const gdn::Decode decode = create_decode(gpu.context(), problem, {key, key}).value();
    const auto launch = [&](cubinery::Stream stream, int set) {
      return decode.launch(stream, workload.args(set));
    };
    const bench::Timing ms = bench::time_graph(gpu, workload.sets(), 20, launch);
    char text[160];
    std::snprintf(text, sizeof(text), "warp_v=%d k_lanes=%d vec_bytes=%d warps=%d regs=%d",
                  key.warp_v, key.k_lanes, key.vec_bytes, key.warps,
                  decode.kernel(batch).info().registers);
    rows.push_back({ms.median * 1e3, ms.p90 * 1e3, text});
  });
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.us < b.us; });
  std::printf("batch %d, %zu candidates, %.1f MB\n", batch, rows.size(),
              static_cast<double>(workload.bytes()) / 1e6);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < 12 || i + 3 > rows.size()) {
      std::printf("  %8.2f us (p90 %.2f)  %s\n", rows[i].us, rows[i].us_p90, rows[i].text.c_str());
    }
  }
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(argc, argv, {}, {"--batch", "--state", "--layout"});
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  const bool bf16 = arguments.get("--state", "f32") == "bf16";
  const bool kv = arguments.get("--layout", "vk") == "kv";
  const gdn::DecodeProblem problem =
      bench::engine_problem(bf16 ? cubinery::DType::kBF16 : cubinery::DType::kF32,
                            kv ? gdn::StateLayout::kKV : gdn::StateLayout::kVK);
  for (const int batch : arguments.get_list("--batch", {1, 8, 32, 128})) {
    time_candidates(*gpu, problem, batch);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
