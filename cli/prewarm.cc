// cubinery prewarm: fills the cache before anybody waits for it.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/library_options.h"
#include "cli/model_config.h"
#include "cli/plan.h"
#include "cli/prewarm_report.h"
#include "cli/prewarm_run.h"
#include "cli/print.h"
#include "cli/problem_options.h"
#include "cli/shard.h"

namespace cubinery {
namespace {

constexpr const char* kPrewarmExamples = R"(Examples:
  cubinery prewarm --hf-config config.json --tp 1,2,4,8 --arch sm_90a
  cubinery prewarm --hf-config config.json --arch sm_90a --state-dtype bf16 --state-location dense
  cubinery prewarm --hf-config config.json --arch sm_90a --op gdn_prefill --cu-seqlens-dtype i64
  cubinery prewarm --hf-config config.json --arch sm_90a --op gdn_verify --draft-tokens 8
  cubinery prewarm --manifest problems.json --arch all --shard 2/8 --json report.json
  cubinery prewarm --source-file scale.cu --function scale -I include --compile-option=-DBLOCK=256 --arch sm_90a
  cubinery prewarm --key-dim 128 --value-dim 128 --dtype f16 --arch sm_80 --dry-run
  CUBINERY_OFFLINE=1 cubinery prewarm --hf-config config.json --arch sm_90a

Needs NVRTC, but no GPU and no driver. What is in the cache already is not compiled again, so that an
interrupted run can be repeated. With CUBINERY_OFFLINE=1 it compiles nothing, and its exit code says whether a server
would find everything: a readiness probe. Exit code: 0 all there, 1 something failed or, offline, is missing, 2 wrong
usage, 3 all there but problems that cannot be had, 130 interrupted.)";

struct Prewarm {
  ProblemOptions problems;
  LibraryOptions library;
  PrewarmSettings settings;
  int threads = 0;
  ShardOption shard;
  std::string json;

  void add_to(CLI::App& app);
  int run() const;
  Result<std::vector<Job>> plan(const Options& options, const Shard& part,
                                std::size_t* problem_count, LeftOuts* left_out) const;
};

void Prewarm::add_to(CLI::App& app) {
  problems.add_to(app);
  app.add_option("--jobs,-j", threads, "Kernels that are compiled at a time [the CPU's threads]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  shard.add_to(app, "the kernels");
  app.add_flag("--dry-run", settings.dry_run,
               "Say how many kernels are missing and how long they take, and list them with "
               "--verbose; compiles nothing, and exits with 0 whatever is missing");
  app.add_flag("--verify", settings.verify, "Read every entry again and check it");
  app.add_option("--json", json, "Write a summary, to stdout with -")->type_name("FILE");
  library.add_to(app, LibraryOptions::Scope::kCompiler);
  app.footer(std::string(kPrewarmExamples) + "\n\n" + kModelHelp);
}

Result<std::vector<Job>> Prewarm::plan(const Options& options, const Shard& part,
                                       std::size_t* problem_count, LeftOuts* left_out) const {
  const Result<std::vector<Request>> requests = problems.requests(left_out);
  if (!requests) return requests.error().clone();
  *problem_count = requests->size();
  Result<std::vector<Job>> jobs = problems.jobs(*requests, options, left_out);
  if (!jobs) return jobs;
  CUBINERY_RETURN_IF_ERROR(library.check_template_dirs(*jobs));
  return select_shard(*std::move(jobs), part);
}

int Prewarm::run() const {
  if (const Status bad = check_output(json); !bad.ok()) return usage_error(bad);
  const auto start = std::chrono::steady_clock::now();
  const Result<Options> resolved = library.resolve();
  if (!resolved) return usage_error(resolved.error());
  const Options& options = *resolved;
  const Result<Shard> part = shard.resolve();
  if (!part) return usage_error(part.error());
  std::size_t problem_count = 0;
  LeftOuts left_out;
  const Result<std::vector<Job>> jobs = plan(options, *part, &problem_count, &left_out);
  if (!jobs) return usage_error(jobs.error());
  left_out.print();
  const Result<std::map<std::string, Context>> contexts = make_contexts(*jobs, options);
  if (!contexts) return usage_error(contexts.error());

  if (!settings.dry_run) {
    const Status able = check_can_make(*jobs, *contexts, options);
    if (!able.ok()) return exit_code_of(able);
  }

  PrewarmSettings chosen = settings;
  chosen.threads = threads > 0 ? static_cast<std::size_t>(threads)
                               : std::max(1u, std::thread::hardware_concurrency());
  const std::vector<Outcome> outcomes = run_jobs(*jobs, *contexts, options, chosen);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const PrewarmReport report{.jobs = *jobs,
                             .outcomes = outcomes,
                             .problems = problem_count,
                             .shard = *part,
                             .left_out = left_out,
                             .cache_dir = options.cache_dir,
                             .seconds = elapsed.count(),
                             .threads = chosen.threads,
                             .dry_run = settings.dry_run,
                             .verbose = library.verbose(),
                             .interrupted = was_interrupted()};
  if (json != "-") print(report_text(report));
  if (!json.empty()) {
    if (const Status written = write_json(json, report_json(report)); !written.ok()) {
      return exit_code_of(written);
    }
  }
  if (report.interrupted) return kExitInterrupted;
  if (count(report, OutcomeState::kFailed) > 0) return kExitFailed;
  return left_out.exit_code(kExitOk);
}

}  // namespace

void add_prewarm(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("prewarm", "Compile kernels into the cache; needs no GPU");
  const auto prewarm = std::make_shared<Prewarm>();
  prewarm->add_to(*command);
  command->callback([prewarm, exit_code] { *exit_code = prewarm->run(); });
}

}  // namespace cubinery
