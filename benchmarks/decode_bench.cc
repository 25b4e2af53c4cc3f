// Times GDN decode as engines run it, next to the device's copy rate.
//
//   decode_bench [--quick] [--programmatic] [--batch 1,8,32] [--state-dtype f8e4m3]
//                [--out benchmarks/results/h200.json] [--commit abc1234]
//                [--conv]      with a convolution in front, beside the two launches
//                [--config warps=4,warp_v=8]  the one configuration that has these values
//   decode_bench --sweep ...        prints the ten fastest configurations (that have these values)
//                                   of each row, and the slowest
//   decode_bench --all-configs ...  prints all of them
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_rows.h"
#include "benchmarks/launch_check.h"
#include "benchmarks/sweep.h"
#include "harness/gdn_operators.h"
#include "runtime/gdn/shared/problem_check.h"

namespace {

using cubinery::DType;
using cubinery::Timing;
using cubinery::gdn::StateLayout;
using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

struct Settings {
  int replays = 40;
  bool programmatic = false;  // launches may overlap the one in front
  double copy_tb_s = 0;
  bench::Wanted wanted;
};

ordered_json identity_of(const gdn::DecodeProblem& problem, int batch, const Settings& settings) {
  const bool kv = problem.states.layout == StateLayout::kKV;
  return {{"op", "gdn_decode"},
          {"batch", batch},
          {"qk_heads", problem.heads.k},
          {"v_heads", problem.heads.v},
          {"state_dtype", gdn::value_text(problem.states.dtype)},
          {"state_layout", kv ? "kv" : "vk"},
          {"programmatic", settings.programmatic},
          {"conv_width", problem.conv.is_there() ? ordered_json(problem.conv.width) : nullptr}};
}

gdn::DecodeArgs args_of(const cubinery::GdnOperands& operands, int set, const Settings& settings) {
  gdn::DecodeArgs args = cubinery::as_decode(operands.args(set));
  args.programmatic = settings.programmatic;
  return args;
}

// The convolution by itself and the decode step behind it.
Timing time_two_launches(const bench::Gpu& gpu, const gdn::DecodeProblem& problem,
                         const cubinery::GdnOperands& operands, const Settings& settings) {
  const gdn::DecodeArgs args = args_of(operands, 0, settings);
  const cubinery::Tensor& x = args.conv.x;
  const bench::DeviceBuffer rows(gpu, cubinery::bytes_of(x));
  const auto two = cubinery::as_two_launches(problem, args, rows.data());
  const gdn::Conv conv = gpu.context().prepare(two.conv).value();
  const gdn::Decode decode = gpu.context().prepare(two.decode).value();
  return bench::time_graph(
      gpu, operands.sets(), settings.replays, [&](cubinery::Stream stream, int set) {
        const auto own =
            cubinery::as_two_launches(problem, args_of(operands, set, settings), rows.data());
        CUBINERY_RETURN_IF_ERROR(conv.launch(stream, own.conv_args));
        return decode.launch(stream, own.decode_args);
      });
}

void sweep_row(const bench::Gpu& gpu, const gdn::DecodeProblem& problem, int batch,
               const Settings& settings) {
  const cubinery::GdnOperands operands =
      bench::request_operands(gpu, cubinery::as_prefill(problem), batch);
  const gdn::Decode chosen = gpu.context().prepare(problem).value();
  bench::sweep_row(gpu, problem, operands, settings.wanted, settings.replays, settings.copy_tb_s,
                   identity_of(problem, batch, settings).dump(), chosen.choice(batch).configuration,
                   [&](const gdn::Decode& decode, cubinery::Stream stream, int set) {
                     return decode.launch(stream, args_of(operands, set, settings));
                   });
}

void run_row(const bench::Gpu& gpu, const gdn::DecodeProblem& problem, int batch,
             const Settings& settings, bench::Results* results) {
  const gdn::Decode decode = bench::prepared(gpu, problem, settings.wanted);
  const cubinery::Chosen chosen = decode.choice(batch);
  const cubinery::GdnOperands operands =
      bench::request_operands(gpu, cubinery::as_prefill(problem), batch);
  const bench::Errors errors = bench::launch_errors(decode, gpu, operands);
  const auto launch = [&](cubinery::Stream stream, int set) {
    return decode.launch(stream, args_of(operands, set, settings));
  };
  const Timing ms = bench::time_graph(gpu, operands.sets(), settings.replays, launch);
  ordered_json measured = {{"kernel", "gdn_decode"}};
  measured.update(
      bench::timed_members(chosen, ms, static_cast<double>(operands.bytes()), settings.copy_tb_s));
  measured["error_o"] = bench::significant(errors.o.value());
  measured["error_state"] = bench::significant(errors.state.value());
  if (problem.conv.is_there()) {
    const Timing two = time_two_launches(gpu, problem, operands, settings);
    measured["two_launches_us"] = bench::significant(1e3 * two.median);
  }
  results->put(identity_of(problem, batch, settings), measured);
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(
      argc, argv, {"--quick", "--programmatic", "--conv", "--sweep", "--all-configs"},
      {"--batch", "--state-dtype", "--config", "--out", "--commit"});
  const bool quick = arguments.has("--quick");
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  const bench::Wanted wanted(arguments);
  const bool is_convolved = arguments.has("--conv");
  const Settings settings{.replays = quick             ? 5
                                     : wanted.sweeps() ? 15
                                                       : 40,
                          .programmatic = arguments.has("--programmatic"),
                          .copy_tb_s = bench::copy_rate_tb_s(*gpu, quick),
                          .wanted = wanted};
  std::printf("copy rate %.3f TB/s (read + write)\n", settings.copy_tb_s);
  if (!quick) results.set_ceiling("copy_tb_s", settings.copy_tb_s);
  const std::vector<int> batches =
      arguments.get_list("--batch", quick          ? std::vector{1, 32}
                                    : is_convolved ? std::vector{1, 8, 32}
                                                   : std::vector{1, 2, 4, 8, 16, 32, 64, 128, 256});
  std::vector<DType> state_dtypes = {DType::kF32, DType::kBF16};
  std::vector<StateLayout> layouts = {StateLayout::kVK, StateLayout::kKV};
  if (is_convolved) state_dtypes.pop_back(), layouts.pop_back();
  if (const std::string name = arguments.get("--state-dtype"); !name.empty()) {
    const std::string problem = R"({"state_dtype":")" + name + "\"}";
    state_dtypes = {gdn::DecodeProblem::from_json(problem).value().states.dtype};
  }
  for (const DType state_dtype : state_dtypes) {
    for (const StateLayout layout : layouts) {
      gdn::DecodeProblem problem = bench::engine_problem(state_dtype, layout);
      if (is_convolved) problem.conv.width = 4;
      for (const int batch : batches) {
        if (wanted.sweeps()) {
          sweep_row(*gpu, problem, batch, settings);
        } else {
          run_row(*gpu, problem, batch, settings, &results);
        }
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
