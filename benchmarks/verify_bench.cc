// Times GDN verify as engines run it, next to the device's copy rate.
//
//   verify_bench [--quick] [--batch 1,8,32,128] [--tokens 2,4,8,16] [--state-dtype f32,bf16]
//                [--stored none,last,every] [--out FILE.json] [--commit abc1234]
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_rows.h"
#include "benchmarks/launch_check.h"
#include "harness/gdn_operators.h"
#include "runtime/gdn/shared/problem_check.h"

namespace {

using cubinery::DType;
using cubinery::gdn::StoredStates;
using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

struct Settings {
  int replays = 40;
  double copy_tb_s = 0;
};

std::string_view stored_name(const gdn::VerifyProblem& problem) {
  if (!problem.states.store) return "none";
  return problem.stored_states == StoredStates::kEvery ? "every" : "last";
}

void run_row(const bench::Gpu& gpu, const gdn::VerifyProblem& problem, int batch, int tokens,
             const Settings& settings, bench::Results* results) {
  const gdn::Verify verify = gpu.context().prepare(problem).value();
  const cubinery::Chosen chosen =
      verify.choice({.requests = batch, .tokens = std::int64_t{batch} * tokens});
  const cubinery::GdnOperands operands =
      bench::request_operands(gpu, cubinery::as_prefill(problem), batch, tokens);
  const bench::Errors errors = bench::launch_errors(verify, gpu, operands);
  const auto launch = [&](cubinery::Stream stream, int set) {
    return verify.launch(stream, cubinery::as_verify(problem, operands.args(set)));
  };
  const cubinery::Timing ms = bench::time_graph(gpu, operands.sets(), settings.replays, launch);
  const ordered_json identity = {{"op", "gdn_verify"},
                                 {"batch", batch},
                                 {"tokens", tokens},
                                 {"qk_heads", problem.heads.k},
                                 {"v_heads", problem.heads.v},
                                 {"state_dtype", gdn::value_text(problem.states.dtype)},
                                 {"stored_states", stored_name(problem)}};
  ordered_json measured =
      bench::timed_members(chosen, ms, static_cast<double>(operands.bytes()), settings.copy_tb_s);
  measured["error_o"] = bench::significant(errors.o.value());
  if (!errors.state.empty()) measured["error_state"] = bench::significant(errors.state.value());
  results->put(identity, measured);
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(
      argc, argv, {"--quick"},
      {"--batch", "--tokens", "--state-dtype", "--stored", "--out", "--commit"});
  const bool quick = arguments.has("--quick");
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  const Settings settings{.replays = quick ? 5 : 40,
                          .copy_tb_s = bench::copy_rate_tb_s(*gpu, quick)};
  std::printf("copy rate %.3f TB/s (read + write)\n", settings.copy_tb_s);
  const std::vector<int> batches =
      arguments.get_list("--batch", quick ? std::vector{1, 32} : std::vector{1, 8, 32, 128});
  const std::vector<int> tokens =
      arguments.get_list("--tokens", quick ? std::vector{4} : std::vector{2, 4, 8, 16});
  const std::string dtypes = arguments.get("--state-dtype", "f32,bf16");
  const std::string kept = arguments.get("--stored", "none,last,every");
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    if (dtypes.find(gdn::value_text(state_dtype)) == std::string::npos) continue;
    for (const std::string_view stored : {"none", "last", "every"}) {
      if (kept.find(stored) == std::string::npos) continue;
      for (const int batch : batches) {
        for (const int count : tokens) {
          run_row(*gpu, bench::engine_verification(state_dtype, stored, count), batch, count,
                  settings, &results);
        }
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
