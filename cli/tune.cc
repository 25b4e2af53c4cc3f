// cubinery tune: measures which configurations of the kernels are fastest on a GPU.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/library_options.h"
#include "cli/model_config.h"
#include "cli/print.h"
#include "cli/problem_options.h"
#include "cli/shapes.h"
#include "cli/shard.h"
#include "cli/tune_plan.h"
#include "cli/tune_report.h"
#include "cli/tune_run.h"

namespace cubinery {
namespace {

constexpr const char* kTuneExamples = R"(Examples:
  cubinery tune --hf-config config.json --tp 1,2,4,8 --budget 30m
  cubinery tune --hf-config config.json --op gdn_decode --batch 1:512
  cubinery tune --hf-config config.json --op gdn_prefill --tokens 8192 --sequences 1,16 --max-seqlen 4096
  cubinery tune --manifest problems.json --arch sm_90a --dry-run
  cubinery tune --results tuned/gdn_decode.results.jsonl --directory tuned-again
  srun cubinery tune --hf-config config.json --shard auto --budget 30m

Needs a GPU that does nothing else, and NVRTC. Shapes that share a bucket (sizes rounded to powers of two, as
operators look them up) are measured once, and problems that differ in head counts alone share measurements.
Every measurement is written down when it is made: an interrupted run goes on where it stopped. Operators take
the results when they are created; `cubinery report` shows them.
Exit code: 0 done or out of budget, 1 something failed, 2 wrong usage, 3 as 0 but for problems that cannot be had,
130 interrupted.)";

constexpr const char* kDefaultBudget = "10m";

struct Tune {
  ProblemOptions problems;
  ShapeOptions shapes;
  LibraryOptions library;
  TuneSettings settings;
  int device = 0;
  std::string arch;
  std::string budget = kDefaultBudget;
  std::string json;
  std::vector<std::string> results;
  ShardOption shard;
  bool dry_run = false;

  void add_to(CLI::App& app);
  int run() const;
  Result<std::vector<TuneSpace>> plan(const Options& options, const std::string& for_arch,
                                      LeftOuts* left_out) const;
  // Its part that `report` names.
  Result<std::vector<TuneSpace>> plan_part(const Options& options, const std::string& for_arch,
                                           TuneReport* report) const;
  Result<std::string> arch_of_gpu(const Options& options) const;
  int show_plan(const Options& options, TuneReport report) const;
  int measure(const Options& options, TuneReport report) const;
  int finish(const std::string& text, const nlohmann::ordered_json& document) const;
};

void Tune::add_to(CLI::App& app) {
  problems.add_problems_to(app);
  app.add_option("--results", results,
                 "Instead of problems: what the results in the file are of, at their shapes, again "
                 "where they are stale (repeatable)")
      ->type_name("FILE");
  app.add_option("--device", device, "Ordinal of the GPU [0]")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("--arch", arch, "Architecture to compile for [the GPU's own]")->type_name("ARCH");
  app.add_option(
         "--budget", budget,
         fmt::format("Wall clock for everything, such as 90s, 10m, 2h [{}]", kDefaultBudget))
      ->type_name("TIME");
  app.add_option("--seed", settings.seed, "Of the search in large spaces [1]")->type_name("N");
  app.add_option(
         "--exhaustive-up-to", settings.exhaustive_up_to,
         fmt::format("Spaces up to this many configurations are measured whole, larger ones "
                     "searched [{}]",
                     settings.exhaustive_up_to))
      ->type_name("N");
  app.add_option("--jobs,-j", settings.compile_threads,
                 "Kernels that are compiled at a time [the CPU's threads]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app.add_flag("--again", settings.again, "Measure again what was measured before");
  app.add_option("--directory", settings.directory,
                 "Where measurements and results are [tuning in the cache directory]")
      ->type_name("DIR");
  app.add_flag("--dry-run", dry_run,
               "Say how much would be measured and how long it takes, and list it with "
               "--verbose; needs no GPU with --arch");
  shard.add_to(app, "what is measured");
  app.add_option("--json", json, "Write a summary, to stdout with -")->type_name("FILE");
  shapes.add_to(app);
  library.add_to(app, LibraryOptions::Scope::kCompiler);
  app.footer(std::string(kTuneExamples) + "\n\n" + kModelHelp);
}

Result<std::vector<TuneSpace>> Tune::plan(const Options& options, const std::string& for_arch,
                                          LeftOuts* left_out) const {
  if (!results.empty()) {
    if (problems.is_empty() && shapes.is_empty()) {
      return plan_tuning_again(results, for_arch, options.paths);
    }
    return Status(Code::kInvalidArgument,
                  "--results names problems and shapes; accepted: no other option for them");
  }
  const Result<std::vector<Request>> requests = problems.requests(left_out);
  if (!requests) return requests.error().clone();
  std::vector<Problem> wanted;
  for (const Request& request : *requests) {
    if (request.own_kernel) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: {} is no kernel of the library; accepted: problems (kernels of "
                      "your own are tuned by cubinery::tune() in C++, see "
                      "examples/05_tune_own_kernel.cc)",
                      request.origin, request.own_kernel->name()));
    }
    wanted.push_back(request.asked.problem);
  }
  const Result<ShapeGrid> grid = shapes.grid(wanted);
  if (!grid) return grid.error().clone();
  Result<std::vector<TuneSpace>> spaces =
      plan_tuning(*requests, *grid, for_arch, options.paths, left_out);
  if (spaces && spaces->empty()) {
    return Status(Code::kInvalidArgument, fmt::format("no problem is for {}", for_arch));
  }
  return spaces;
}

Result<std::vector<TuneSpace>> Tune::plan_part(const Options& options, const std::string& for_arch,
                                               TuneReport* report) const {
  Result<std::vector<TuneSpace>> spaces = plan(options, for_arch, &report->left_out);
  if (!spaces) return spaces;
  return select_shard(*std::move(spaces), report->shard);
}

Result<std::string> Tune::arch_of_gpu(const Options& options) const {
  if (!arch.empty()) return arch;
  const Result<Context> context = Context::create(options);
  if (context) return context->arch();
  return Status(Code::kInvalidArgument,
                fmt::format("--arch is missing and no GPU says which ({}); accepted: {}",
                            context.error().message(), join(known_architectures())));
}

int Tune::finish(const std::string& text, const nlohmann::ordered_json& document) const {
  if (json != "-") print(text);
  if (json.empty()) return kExitOk;
  return exit_code_of(write_json(json, document));
}

int Tune::show_plan(const Options& options, TuneReport report) const {
  const Result<std::string> named = arch_of_gpu(options);
  if (!named) return usage_error(named.error());
  const Result<std::vector<TuneSpace>> spaces = plan_part(options, *named, &report);
  if (!spaces) return usage_error(spaces.error());
  report.left_out.print();
  report.arch = *named;
  return report.left_out.exit_code(finish(plan_text(*spaces, report), plan_json(*spaces, report)));
}

int Tune::measure(const Options& options, TuneReport report) const {
  const auto start = std::chrono::steady_clock::now();
  const Result<Context> context = Context::create(options);
  if (!context) return usage_error(context.error());
  Result<std::vector<TuneSpace>> spaces = plan_part(options, context->arch(), &report);
  if (!spaces) return usage_error(spaces.error());
  report.left_out.print();
  const Result<GpuIdentity> gpu = gpu_identity(*context);
  if (!gpu) return usage_error(gpu.error());
  if (const Result<std::string> nvrtc = context->nvrtc_version(); !nvrtc) {
    print_error(nvrtc.error().message());
    return kExitFailed;
  }
  TuneSettings chosen = settings;
  chosen.budget = report.budget;
  const TuneOutcome run = run_tuning(*context, *std::move(spaces), chosen);
  report.arch = context->arch();
  report.gpu = gpu->name;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.interrupted = was_interrupted();
  const int written = finish(run_text(run, report), run_json(run, report));
  if (!run.error.ok()) {
    print_error(run.error.message(), run.error.log());
    return kExitFailed;
  }
  if (written != kExitOk) return written;
  return report.interrupted ? kExitInterrupted : report.left_out.exit_code(kExitOk);
}

int Tune::run() const {
  if (const Status bad = check_output(json); !bad.ok()) return usage_error(bad);
  const std::optional<std::chrono::milliseconds> time = parse_duration(budget);
  if (!time) {
    return usage_error(
        Status(Code::kInvalidArgument,
               fmt::format("--budget {}; accepted: a number of s, m or h, such as 90s", budget)));
  }
  Result<Options> options = library.resolve();
  if (!options) return usage_error(options.error());
  options->device = device;
  options->arch = arch;
  const Result<Shard> part = shard.resolve();
  if (!part) return usage_error(part.error());
  TuneReport report;
  report.shard = *part;
  report.budget = *time;
  report.verbose = library.verbose();
  return dry_run ? show_plan(*options, report) : measure(*options, report);
}

}  // namespace

void add_tune(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("tune", "Find the fastest kernels on a GPU");
  const auto tune = std::make_shared<Tune>();
  tune->add_to(*command);
  command->callback([tune, exit_code] { *exit_code = tune->run(); });
}

}  // namespace cubinery
