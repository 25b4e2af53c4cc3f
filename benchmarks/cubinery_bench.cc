// Times the operators on a GPU next to the device's copy rate, and what the library costs the host.
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/launches.h"
#include "benchmarks/subcommands.h"
#include "benchmarks/sweep.h"
#include "runtime/registry/operators.h"

namespace cubinery::bench {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kUsage = R"(usage: cubinery_bench OPERATOR [option...]
       cubinery_bench host [--quick] [--out FILE] [--commit HASH]
       cubinery_bench first_prefill --cache FOLDER [--started NANOSECONDS]

OPERATOR: decode, prefill, verify, commit or conv.  Its rows are those of benchmarks/rows.json.

  --rows SET[,SET...]         the sets of rows; otherwise all (prefill: but headline)
  --with NAME=VALUE[,VALUE]   these values of a field or size; may be repeated: --with batch=1,8
  --list                      prints the rows; needs no GPU
  --enable_pdl              decode: launches may overlap the one in front
  --quick                     few rows and replays
  --replays N                 of each graph; otherwise 40
  --config NAME=VALUE[,...]   the one configuration that has these values
  --sweep                     prints the ten fastest configurations (that have these values) of
                              each row, and the slowest
  --all-configs               prints all of them
  --folder FOLDER             where rows.json is; otherwise benchmarks
  --out FILE                  the record: rows that it has already are replaced
  --commit HASH               what the record says was measured

host: launches next to bare ones, preparing operators, the first result of a process.
first_prefill: the time of a process up to its first prefill; first_request.py runs it.
Exits with 77 where there is no GPU.
)";

// The H200's copy rate, which published floors refer to.
constexpr double kPublishedTbPerS = 4.25;

struct Session {
  const Gpu& gpu;
  Wanted wanted;
  int replays = 40;
  double copy_tb_s = kPublishedTbPerS;
  Results& results;
};

void require_right(const RelativeRms& error, const char* what) {
  if (error.empty() || error.value() < kLargestError) return;  // NaN is not
  throw std::runtime_error(std::string("the relative error of ") + what + " is " +
                           std::to_string(error.value()));
}

// The convolution by itself and the decode step behind it.
Timing time_two_launches(const Session& session, const gdn::DecodeProblem& problem,
                         const RowLaunches<gdn::DecodeProblem>& one) {
  const Gpu& gpu = session.gpu;
  const DeviceBuffer rows(gpu, bytes_of(one.args(0).x));
  const TwoLaunches two = as_two_launches(problem, one.args(0), rows.data());
  const gdn::Conv conv = gpu.context().prepare(two.conv).value();
  const gdn::Decode decode = gpu.context().prepare(two.decode).value();
  return time_graph(gpu, one.sets(), session.replays, [&](Stream stream, int set) {
    const TwoLaunches own = as_two_launches(problem, one.args(set), rows.data());
    CUBINERY_RETURN_IF_ERROR(conv.launch(stream, own.conv_args));
    return decode.launch(stream, own.decode_args);
  });
}

template <class Problem>
void run_row(const Session& session, const Problem& problem, const Row& row, const Row& identity) {
  const Gpu& gpu = session.gpu;
  const auto prepared = bench::prepared(gpu, problem, session.wanted);
  std::size_t workspace_bytes = 0;
  if constexpr (requires { HarnessOf<Problem>::workspace_bytes(prepared, lengths_of(row)); }) {
    workspace_bytes = HarnessOf<Problem>::workspace_bytes(prepared, lengths_of(row));
  }
  const RowLaunches<Problem> launches(gpu, problem, row, workspace_bytes);
  const Errors errors = launches.errors(prepared, gpu);
  require_right(errors.o, "o");
  if (size_of(problem.states.dtype) > 1) require_right(errors.state, "the state");
  const Timing ms = time_graph(gpu, launches.sets(), session.replays, [&](Stream stream, int set) {
    return launches.launch(prepared, stream, set);
  });
  const Choice chosen = choice_of(prepared, row);
  const double floor_ms = launches.bytes() / (session.copy_tb_s * 1e9);
  ordered_json measured = {
      {"tuned", chosen.configuration}, {"rung", to_string(chosen.rung)},
      {"ms", significant(ms.median)},  {"ms_p10", significant(ms.p10)},
      {"ms_p90", significant(ms.p90)}, {"byte_floor_ms", significant(floor_ms)}};
  for (const char* name : {"peers_ms", "best_published_ms", "best_published"}) {
    if (row.contains(name)) measured[name] = row.at(name);
  }
  if (!row.contains("protocol")) measured["copy_rate_share"] = significant(floor_ms / ms.median);
  if (!errors.o.empty()) measured["error_o"] = significant(errors.o.value());
  if (!errors.state.empty()) measured["error_state"] = significant(errors.state.value());
  if constexpr (std::is_same_v<Problem, gdn::DecodeProblem>) {
    if (problem.conv.is_there()) {
      const Timing two = time_two_launches(session, problem, launches);
      measured["two_launches_us"] = significant(1e3 * two.median);
    }
  }
  session.results.put(identity, measured);
}

// Times all configurations that are wanted of a row and prints them.
template <class Problem>
void sweep_row(const Session& session, const Problem& problem, const Row& row,
               const Row& identity) {
  const Gpu& gpu = session.gpu;
  const std::vector<Configuration> all = configurations(gpu, problem, session.wanted);
  const auto operators = loaded(gpu, problem, all);
  std::size_t workspace_bytes = 0;
  if constexpr (std::is_same_v<Problem, gdn::PrefillProblem>) {
    workspace_bytes = HarnessOf<Problem>::most_workspace_bytes(problem, target_of(gpu.context()),
                                                               lengths_of(row));
  }
  const RowLaunches<Problem> launches(gpu, problem, row, workspace_bytes);
  std::vector<TimedLaunch> timed;
  timed.reserve(operators.size());
  for (const auto& one : operators) {
    timed.emplace_back([&](Stream stream, int set) { return launches.launch(one, stream, set); });
  }
  const std::vector<Timing> times =
      time_launches(gpu.device(), launches.sets(), session.replays, timed).value();
  const double floor_us = launches.bytes() / (session.copy_tb_s * 1e6);
  std::printf("%s: %zu configurations; median, p10 to p90, share of the copy rate (%.2f us)\n",
              identity.dump().c_str(), all.size(), floor_us);
  const auto own = gpu.context().prepare(problem).value();
  print_sweep(all, times, choice_of(own, row).configuration, floor_us, session.wanted.printed);
}

// Calls f(problem, row, identity) for each row.
template <class Problem, class F>
void for_each_row(const std::string& op, std::vector<Row> rows, const Arguments& arguments,
                  const F& f) {
  for (Row& row : rows) {
    const auto problem = Problem::from_json(problem_json(row, Problem{}.to_json())).value();
    if constexpr (std::is_same_v<Problem, gdn::DecodeProblem>) {
      row["enable_pdl"] = arguments.has("--enable_pdl");
    }
    if constexpr (std::is_same_v<Problem, gdn::ConvProblem>) {
      row["channels"] = split_channels(problem);
    }
    f(problem, row, identity_of(op, row, arguments));
  }
}

void time_rows(const std::string& op, const std::vector<Row>& rows, const Arguments& arguments) {
  const bool quick = arguments.has("--quick");
  const Wanted wanted(arguments);
  const std::string replays = quick ? "5" : wanted.sweeps() ? "15" : "40";
  const auto gpu = open_gpu(Options::from_env().value());
  Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  describe(*gpu, &results);
  Session session{.gpu = *gpu,
                  .wanted = wanted,
                  .replays = std::stoi(arguments.get("--replays", replays)),
                  .results = results};
  if (op != "gdn_prefill") {
    session.copy_tb_s = copy_rate_tb_s(*gpu, quick);
    std::printf("copy rate %.3f TB/s (read + write)\n", session.copy_tb_s);
    if (op == "gdn_decode" && !quick) results.set_ceiling("copy_tb_s", session.copy_tb_s);
  }
  const auto time = [&](const auto& problem, const Row& row, const Row& identity) {
    if (wanted.sweeps()) {
      sweep_row(session, problem, row, identity);
    } else {
      run_row(session, problem, row, identity);
    }
  };
  std::visit(
      [&]<class Problem>(const Problem&) { for_each_row<Problem>(op, rows, arguments, time); },
      default_problem(op));
}

int run_operator(const std::string& op, int argc, char** argv) {
  const Arguments arguments(
      argc, argv, {"--list", "--enable_pdl", "--quick", "--sweep", "--all-configs"},
      {"--rows", "--with", "--replays", "--config", "--folder", "--out", "--commit"});
  const std::vector<Row> rows = chosen_rows(op, arguments);
  if (!arguments.has("--list")) {
    time_rows(op, rows, arguments);
    return 0;
  }
  const auto print = [](const auto&, const Row&, const Row& identity) {
    std::printf("%s\n", identity.dump().c_str());
  };
  std::visit(
      [&]<class Problem>(const Problem&) { for_each_row<Problem>(op, rows, arguments, print); },
      default_problem(op));
  return 0;
}

int run(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help") {
    std::fputs(kUsage.data(), stdout);
    return argc > 1 ? 0 : 2;
  }
  if (name == "host") return run_host(argc - 1, argv + 1);
  if (name == "first_prefill") return run_first_prefill(argc - 1, argv + 1);
  for (const std::string& op : operator_names()) {
    if (op == "gdn_" + name) return run_operator(op, argc - 1, argv + 1);
  }
  std::fprintf(stderr, "%s: no such operator or subcommand\n%s", name.c_str(), kUsage.data());
  return 2;
}

}  // namespace
}  // namespace cubinery::bench

int main(int argc, char** argv) {
  try {
    return cubinery::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
