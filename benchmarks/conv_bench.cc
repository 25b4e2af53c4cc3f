// Times GDN conv in front of prefills and of decoding steps, next to the device's copy rate.
//
//   conv_bench [--quick] [--rows prefill,gates,decode] [--replays 40] [--out FILE.json]
//              [--commit abc1234]
//              [--config lane_channels=8,ahead=4]  the one configuration that has these values
//   conv_bench --sweep ...        prints the ten fastest configurations (that have these values)
//                                 of each row, and the slowest
//   conv_bench --all-configs ...  prints all of them
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_rows.h"
#include "benchmarks/sweep.h"
#include "harness/conv_operands.h"
#include "runtime/gdn/conv/state.h"
#include "runtime/gdn/shared/problem_check.h"
#include "runtime/operator/tuning_context.h"

namespace {

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
  bench::Wanted wanted;
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
  problem.inputs.dt_bias_dtype = DType::kBF16;
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

cubinery::ConvOperands operands_of(const bench::Gpu& gpu, const Row& row) {
  const std::vector<std::int64_t> lengths(cubinery::idx(row.sequences), row.tokens);
  const std::int64_t l2_bytes = cubinery::gpu_identity(gpu.context()).value().l2_bytes;
  return cubinery::ConvOperands::create(gpu.device(), problem_of(row),
                                        {.form = {.lengths = lengths}, .l2_bytes = l2_bytes})
      .value();
}

void run_row(const bench::Gpu& gpu, const Row& row, const Settings& settings,
             bench::Results* results) {
  const gdn::ConvProblem problem = problem_of(row);
  const gdn::Conv conv = bench::prepared(gpu, problem, settings.wanted);
  const cubinery::ConvOperands operands = operands_of(gpu, row);
  const Timing ms = bench::time_graph(
      gpu, operands.sets(), settings.replays,
      [&](cubinery::Stream stream, int set) { return conv.launch(stream, operands.args(set)); });
  results->put(identity_of(row),
               bench::timed_members(conv.choice(row.size()), ms,
                                    static_cast<double>(operands.bytes()), settings.copy_tb_s));
}

void sweep_row(const bench::Gpu& gpu, const Row& row, const Settings& settings) {
  const gdn::ConvProblem problem = problem_of(row);
  const cubinery::ConvOperands operands = operands_of(gpu, row);
  const gdn::Conv chosen = gpu.context().prepare(problem).value();
  bench::sweep_row(gpu, problem, operands, settings.wanted, settings.replays, settings.copy_tb_s,
                   identity_of(row).dump(), chosen.choice(row.size()).configuration,
                   [&](const gdn::Conv& conv, cubinery::Stream stream, int set) {
                     return conv.launch(stream, operands.args(set));
                   });
}

std::vector<Row> rows_of(const bench::Arguments& arguments) {
  std::vector<Row> rows;
  for (const std::string& kind : bench::split(arguments.get("--rows", "prefill,gates,decode"))) {
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
  const bench::Wanted wanted(arguments);
  const int replays = quick ? 5 : wanted.sweeps() ? 15 : 40;
  Settings settings{.replays = arguments.get_list("--replays", {replays}).front(),
                    .wanted = wanted};
  const std::vector<Row> rows = rows_of(arguments);
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  settings.copy_tb_s = bench::copy_rate_tb_s(*gpu, quick);
  std::printf("copy rate %.3f TB/s (read + write)\n", settings.copy_tb_s);
  for (const Row& row : rows) {
    if (wanted.sweeps()) {
      sweep_row(*gpu, row, settings);
    } else {
      run_row(*gpu, row, settings, &results);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
