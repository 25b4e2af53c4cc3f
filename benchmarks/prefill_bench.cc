// Times GDN prefill.
//
//   prefill_bench [--rows headline|all|gates] [--out benchmarks/results/h200.json]
//                 [--commit abc1234] [--replays 40] [--list benchmarks/prefill_rows.json]
//   prefill_bench --heads 16,64 --seqlens 8192,4096 [--protocol qwen-bf16] ...
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/launch_check.h"
#include "benchmarks/prefill_rows.h"
#include "harness/gdn_workload.h"

namespace {

using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

// The H200's copy rate, which published floors refer to.
constexpr double kCopyTbPerS = 4.25;

// Ten times what rounding costs with any of the protocols; a wrong kernel is further off.
constexpr double kLargestError = 0.05;

void require_right(const bench::RelativeRms& error, const char* what) {
  if (error.empty() || error.value() < kLargestError) return;  // NaN is not
  throw std::runtime_error(std::string("the relative error of ") + what + " is " +
                           std::to_string(error.value()));
}

void run_row(const bench::Gpu& gpu, const bench::ListedRow& listed, int replays,
             bench::Results* results) {
  const bench::PrefillRow& row = listed.row;
  const gdn::Prefill prefill = gpu.context().prepare(bench::prefill_problem(row)).value();
  const gdn::PrefillSize size = bench::prefill_size(row);
  const cubinery::Chosen chosen = prefill.choice(size);
  const cubinery::GdnOperands operands =
      bench::prefill_operands(gpu, row, prefill.workspace_bytes(size));
  const bench::Errors errors = bench::launch_errors(prefill, gpu, operands);
  require_right(errors.o, "o");
  require_right(errors.state, "the state");
  const cubinery::Timing ms = bench::time_graph(
      gpu, operands.sets(), replays,
      [&](cubinery::Stream stream, int set) { return launch(prefill, stream, operands, set); });
  const double floor_ms = static_cast<double>(operands.bytes()) / (kCopyTbPerS * 1e9);
  const ordered_json identity = {{"op", "gdn_prefill"},
                                 {"protocol", row.protocol},
                                 {"qk_heads", row.qk_heads},
                                 {"v_heads", row.v_heads},
                                 {"seqlens", row.seqlens}};
  ordered_json measured = {
      {"kernel", "gdn_prefill_scan"},         {"tuned", chosen.configuration},
      {"rung", to_string(chosen.rung)},       {"ms", bench::significant(ms.median)},
      {"ms_p10", bench::significant(ms.p10)}, {"ms_p90", bench::significant(ms.p90)}};
  for (const auto& [name, value] : listed.others.items()) measured[name] = value;
  measured["byte_floor_ms"] = bench::significant(floor_ms);
  measured["error_o"] = bench::significant(errors.o.value());
  if (!errors.state.empty()) measured["error_state"] = bench::significant(errors.state.value());
  results->put(identity, measured);
}

std::vector<bench::ListedRow> chosen_rows(const bench::Arguments& arguments) {
  if (!arguments.has("--heads") && !arguments.has("--seqlens")) {
    return bench::prefill_rows(arguments.get("--list", "benchmarks/prefill_rows.json"),
                               arguments.get("--rows", "headline"));
  }
  bench::ListedRow listed;
  const std::vector<int> heads = arguments.get_list("--heads", {16, 32});
  if (heads.size() != 2) throw std::runtime_error("--heads takes two numbers: 16,64");
  const std::vector<int> lengths = arguments.get_list("--seqlens", {8192});
  listed.row = {.protocol = arguments.get("--protocol", "qwen-bf16"),
                .qk_heads = heads[0],
                .v_heads = heads[1],
                .seqlens = {lengths.begin(), lengths.end()}};
  return {listed};
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(
      argc, argv, {},
      {"--rows", "--list", "--heads", "--seqlens", "--protocol", "--replays", "--out", "--commit"});
  const std::vector<bench::ListedRow> rows = chosen_rows(arguments);
  const int replays = std::stoi(arguments.get("--replays", "40"));
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  for (const bench::ListedRow& listed : rows) run_row(*gpu, listed, replays, &results);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
