// Times GDN conv in front of prefills and of decoding steps, next to the device's copy rate.
//
//   conv_bench [--quick] [--rows prefill,gates,decode] [--replays 40] [--out FILE.json]
//              [--commit abc1234]
//              [--config lane_channels=8,ahead=4]  the one configuration that has these values
//   conv_bench --sweep ...        prints the ten fastest configurations (that have these values)
//                                 of each row, and the slowest
//   conv_bench --all-configs ...  prints all of them
#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_rows.h"
#include "runtime/gdn/conv_state.h"
#include "runtime/gdn/problem_check.h"
#include "runtime/operator/planner.h"
#include "runtime/operator/tuning_context.h"
#include "tuner/gdn/conv_operands.h"

namespace {

using cubinery::Configuration;
using cubinery::DType;
using cubinery::Timing;
using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

struct Row {
  int sequences = 1;
  int tokens = 1;  // of each
  int v_heads = 32;
  bool gates = false;  // gates, and q and k normalised
  bool varlen = false;
  gdn::ConvStateLayout layout = gdn::ConvStateLayout::kColumns;

  gdn::ConvSize size() const {
    return {.sequences = sequences, .tokens = std::int64_t{sequences} * tokens};
  }
};

struct Settings {
  int replays = 40;
  double copy_tb_s = 0;
  std::vector<std::string> values;  // "ahead=4": what configurations must have
  std::size_t printed = 0;          // of a sweep; 0: no sweep
};

std::vector<Row> prefill_rows(bool gates) {
  const auto row = [&](int tokens, int v_heads) {
    return Row{.tokens = tokens, .v_heads = v_heads, .gates = gates, .varlen = true};
  };
  return {row(512, 16), row(2048, 16), row(8192, 32), row(32768, 16), row(32768, 64)};
}

std::vector<Row> decode_rows() {
  std::vector<Row> rows;
  for (const bool gates : {false, true}) {
    for (const auto layout : {gdn::ConvStateLayout::kColumns, gdn::ConvStateLayout::kChannels}) {
      for (const int sequences : {1, 32, 256}) {
        rows.push_back({.sequences = sequences, .gates = gates, .layout = layout});
      }
    }
  }
  return rows;
}

// 16 key heads, heads of 128, all in bf16 but for g and beta, states in a pool, as engines run it.
gdn::ConvProblem problem_of(const Row& row) {
  gdn::ConvProblem problem;
  problem.heads = {.q = 16, .k = 16, .v = row.v_heads};
  problem.split_qkv = true;
  problem.varlen = row.varlen;
  problem.states.layout = row.layout;
  problem.states.location = gdn::StateLocation::kPool;
  problem.states.padding = gdn::Padding::kSkip;
  if (!row.gates) return problem;
  problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.beta_mode = gdn::BetaMode::kLogit;
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

ordered_json identity_of(const Row& row) {
  return {{"op", "gdn_conv"},
          {"sequences", row.sequences},
          {"tokens", row.size().tokens},
          {"channels", split_channels(problem_of(row))},
          {"varlen", row.varlen},
          {"gates", row.gates},
          {"state_layout", gdn::value_text(row.layout)}};
}

// Those that have the values asked for.
std::vector<Configuration> configurations(const bench::Gpu& gpu, const gdn::ConvProblem& problem,
                                          const Settings& settings) {
  using Planner = cubinery::Planner<gdn::ConvProblem>;
  const auto planner = Planner::create(problem, cubinery::target_of(gpu.context())).value();
  std::vector<Configuration> found = planner.space().configurations;
  const auto lacks = [&](const Configuration& configuration, const std::string& wanted) {
    return std::none_of(
        configuration.values.begin(), configuration.values.end(),
        [&](const cubinery::TunedValue& own) { return own.name + "=" + own.value == wanted; });
  };
  std::erase_if(found, [&](const Configuration& configuration) {
    return std::any_of(settings.values.begin(), settings.values.end(),
                       [&](const std::string& wanted) { return lacks(configuration, wanted); });
  });
  if (found.empty()) throw std::runtime_error("no configuration has the values of --config");
  return found;
}

cubinery::ConvOperands operands_of(const bench::Gpu& gpu, const Row& row) {
  const std::vector<std::int64_t> lengths(cubinery::idx(row.sequences), row.tokens);
  const std::int64_t l2_bytes = cubinery::gpu_identity(gpu.context()).value().l2_bytes;
  return cubinery::ConvOperands::create(gpu.device(), problem_of(row),
                                        {.form = {.lengths = lengths}, .l2_bytes = l2_bytes})
      .value();
}

gdn::Conv loaded(const bench::Gpu& gpu, const gdn::ConvProblem& problem,
                 const Configuration& configuration) {
  const cubinery::Target target = cubinery::target_of(gpu.context());
  return create_conv(gpu.context(), problem, target, configuration.values).value();
}

gdn::Conv chosen_conv(const bench::Gpu& gpu, const gdn::ConvProblem& problem,
                      const Settings& settings) {
  if (settings.values.empty()) return gpu.context().prepare(problem).value();
  const std::vector<Configuration> found = configurations(gpu, problem, settings);
  if (found.size() == 1) return loaded(gpu, problem, found.front());
  throw std::runtime_error(std::to_string(found.size()) +
                           " configurations have the values of --config; name more, or --sweep");
}

void run_row(const bench::Gpu& gpu, const Row& row, const Settings& settings,
             bench::Results* results) {
  const gdn::ConvProblem problem = problem_of(row);
  const gdn::Conv conv = chosen_conv(gpu, problem, settings);
  const cubinery::ConvOperands operands = operands_of(gpu, row);
  const Timing ms = bench::time_graph(
      gpu, operands.sets(), settings.replays,
      [&](cubinery::Stream stream, int set) { return conv.launch(stream, operands.args(set)); });
  results->put(identity_of(row),
               bench::timed_members(conv.choice(row.size()), ms,
                                    static_cast<double>(operands.bytes()), settings.copy_tb_s));
}

// Compiled side by side.
std::vector<gdn::Conv> loaded(const bench::Gpu& gpu, const gdn::ConvProblem& problem,
                              const std::vector<Configuration>& all) {
  std::vector<cubinery::KernelSpec> specs;
  for (const Configuration& configuration : all) {
    specs.insert(specs.end(), configuration.kernels.begin(), configuration.kernels.end());
  }
  const std::vector<cubinery::Kernel> kernels = cubinery::get_kernels(gpu.context(), specs).value();
  std::vector<gdn::Conv> convs;
  for (const Configuration& configuration : all) {
    convs.push_back(loaded(gpu, problem, configuration));
  }
  return convs;
}

// One line for each of the fastest, from the fastest on; "*": what the operator chooses.
void print_sweep(const std::vector<Configuration>& all, const std::vector<Timing>& times,
                 const std::string& chosen, double floor_us, std::size_t printed) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return times[a].median < times[b].median; });
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const Timing& ms = times[order[rank]];
    const std::string text = to_text(all[order[rank]].values);
    const bool is_chosen = text == chosen;
    if (rank >= printed && rank + 1 < order.size() && !is_chosen) continue;
    std::printf("%c%4zu %9.2f us  %8.2f-%-8.2f %5.1f %%  %s\n", is_chosen ? '*' : ' ', rank + 1,
                1e3 * ms.median, 1e3 * ms.p10, 1e3 * ms.p90, 0.1 * floor_us / ms.median,
                text.c_str());
  }
  std::fflush(stdout);
}

void sweep_row(const bench::Gpu& gpu, const Row& row, const Settings& settings) {
  const gdn::ConvProblem problem = problem_of(row);
  const std::vector<Configuration> all = configurations(gpu, problem, settings);
  const std::vector<gdn::Conv> convs = loaded(gpu, problem, all);
  const cubinery::ConvOperands operands = operands_of(gpu, row);
  std::vector<cubinery::TimedLaunch> launches;
  for (const gdn::Conv& conv : convs) {
    launches.emplace_back(
        [&](cubinery::Stream stream, int set) { return conv.launch(stream, operands.args(set)); });
  }
  const std::vector<Timing> times =
      cubinery::time_launches(gpu.device(), operands.sets(), settings.replays, launches).value();
  const double floor_us = static_cast<double>(operands.bytes()) / (settings.copy_tb_s * 1e6);
  std::printf("%s: %zu configurations; median, p10 to p90, share of the copy rate (%.2f us)\n",
              identity_of(row).dump().c_str(), all.size(), floor_us);
  const gdn::Conv conv = gpu.context().prepare(problem).value();
  print_sweep(all, times, conv.choice(row.size()).configuration, floor_us, settings.printed);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream text(list);
  for (std::string item; std::getline(text, item, ',');) items.push_back(item);
  return items;
}

std::vector<Row> rows_of(const bench::Arguments& arguments) {
  std::vector<Row> rows;
  for (const std::string& kind : split(arguments.get("--rows", "prefill,gates,decode"))) {
    if (kind != "prefill" && kind != "gates" && kind != "decode") {
      throw std::runtime_error("--rows: " + kind + "; accepted: prefill, gates, decode");
    }
    for (const Row& row : kind == "decode" ? decode_rows() : prefill_rows(kind == "gates")) {
      rows.push_back(row);
    }
  }
  return rows;
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(argc, argv, {"--quick", "--sweep", "--all-configs"},
                                   {"--rows", "--replays", "--config", "--out", "--commit"});
  const bool quick = arguments.has("--quick");
  const bool all = arguments.has("--all-configs"), sweep = all || arguments.has("--sweep");
  const int replays = quick ? 5 : sweep ? 15 : 40;
  Settings settings{.replays = arguments.get_list("--replays", {replays}).front(),
                    .values = split(arguments.get("--config"))};
  if (sweep) settings.printed = all ? std::numeric_limits<std::size_t>::max() : 10;
  const std::vector<Row> rows = rows_of(arguments);
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  settings.copy_tb_s = bench::copy_rate_tb_s(*gpu, quick);
  std::printf("copy rate %.3f TB/s (read + write)\n", settings.copy_tb_s);
  for (const Row& row : rows) {
    if (sweep) {
      sweep_row(*gpu, row, settings);
    } else {
      run_row(*gpu, row, settings, &results);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
