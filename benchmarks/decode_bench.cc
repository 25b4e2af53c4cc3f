// Times GDN decode as engines run it, next to the device's copy rate.
//
//   decode_bench [--quick] [--programmatic] [--batch 1,8,32] [--state-dtype f8e4m3]
//                [--out benchmarks/results/h200.json] [--commit abc1234]
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_rows.h"
#include "benchmarks/launch_check.h"
#include "runtime/gdn/problem_check.h"
#include "tuner/gdn/gdn_operators.h"

namespace {

using cubinery::DType;
using cubinery::gdn::StateLayout;
using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

struct Settings {
  int replays = 40;
  bool programmatic = false;  // launches may overlap the one in front
  double copy_tb_s = 0;
};

void run_row(const bench::Gpu& gpu, const gdn::DecodeProblem& problem, int batch,
             const Settings& settings, bench::Results* results) {
  const gdn::Decode decode = gpu.context().prepare(problem).value();
  const cubinery::Chosen chosen = decode.choice(batch);
  const cubinery::GdnOperands operands =
      bench::request_operands(gpu, cubinery::as_prefill(problem), batch);
  const bench::Errors errors = bench::launch_errors(decode, gpu, operands);
  const auto launch = [&](cubinery::Stream stream, int set) {
    gdn::DecodeArgs args = cubinery::as_decode(operands.args(set));
    args.programmatic = settings.programmatic;
    return decode.launch(stream, args);
  };
  const cubinery::Timing ms = bench::time_graph(gpu, operands.sets(), settings.replays, launch);
  const bool kv = problem.states.layout == StateLayout::kKV;
  const ordered_json identity = {{"op", "gdn_decode"},
                                 {"batch", batch},
                                 {"qk_heads", problem.heads.k},
                                 {"v_heads", problem.heads.v},
                                 {"state_dtype", gdn::value_text(problem.states.dtype)},
                                 {"state_layout", kv ? "kv" : "vk"},
                                 {"programmatic", settings.programmatic}};
  ordered_json measured = {{"kernel", "gdn_decode"}};
  measured.update(
      bench::timed_members(chosen, ms, static_cast<double>(operands.bytes()), settings.copy_tb_s));
  measured["error_o"] = bench::significant(errors.o.value());
  measured["error_state"] = bench::significant(errors.state.value());
  results->put(identity, measured);
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(argc, argv, {"--quick", "--programmatic"},
                                   {"--batch", "--state-dtype", "--out", "--commit"});
  const bool quick = arguments.has("--quick");
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  const Settings settings{.replays = quick ? 5 : 40,
                          .programmatic = arguments.has("--programmatic"),
                          .copy_tb_s = bench::copy_rate_tb_s(*gpu, quick)};
  std::printf("copy rate %.3f TB/s (read + write)\n", settings.copy_tb_s);
  if (!quick) results.set_ceiling("copy_tb_s", settings.copy_tb_s);
  const std::vector<int> batches = arguments.get_list(
      "--batch", quick ? std::vector{1, 32} : std::vector{1, 2, 4, 8, 16, 32, 64, 128, 256});
  std::vector<DType> state_dtypes = {DType::kF32, DType::kBF16};
  if (const std::string name = arguments.get("--state-dtype"); !name.empty()) {
    const std::string problem = R"({"state_dtype":")" + name + "\"}";
    state_dtypes = {gdn::DecodeProblem::from_json(problem).value().states.dtype};
  }
  for (const DType state_dtype : state_dtypes) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      for (const int batch : batches) {
        run_row(*gpu, bench::engine_problem(state_dtype, layout), batch, settings, &results);
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
