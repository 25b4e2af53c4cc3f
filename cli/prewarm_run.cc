#include "cli/prewarm_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cache/paths.h"
#include "cache/store.h"
#include "cli/entry_check.h"
#include "cli/interrupt.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

void fail(Outcome* outcome, std::string error, std::string_view log = {}) {
  outcome->state = OutcomeState::kFailed;
  outcome->error = std::move(error);
  outcome->log = log;
}

Outcome look_up(const Job& job, const Context& context) {
  Outcome outcome;
  Result<Explanation> found = job.kernel.explain(context);
  if (!found) {
    fail(&outcome, std::string(found.error().message()));
    return outcome;
  }
  outcome.state = found->cached ? OutcomeState::kHit : OutcomeState::kMissing;
  outcome.info = std::move(found->info);
  outcome.path = std::move(found->path);
  return outcome;
}

Outcome make(const Job& job, const Context& context) {
  Outcome outcome;
  Result<CompiledKernel> made = job.kernel.compile(context);
  if (!made) {
    fail(&outcome, std::string(made.error().message()), made.error().log());
    return outcome;
  }
  outcome.state = made->source == Source::kCompiled ? OutcomeState::kCompiled : OutcomeState::kHit;
  outcome.info = std::move(made->info);
  outcome.path = std::move(made->path);
  // The library shrugs this off, but a kernel that is not stored is what prewarm is there to
  // prevent.
  if (outcome.path.empty()) fail(&outcome, "compiled, but not stored: the warnings say why");
  return outcome;
}

Outcome run_job(const Job& job, const Context& context, const Options& options,
                const PrewarmSettings& settings) {
  Outcome outcome = settings.dry_run ? look_up(job, context) : make(job, context);
  if (outcome.state != OutcomeState::kHit && outcome.state != OutcomeState::kCompiled)
    return outcome;
  outcome.bytes = entry_bytes(outcome.path, trust_of(options));
  if (!settings.verify) return outcome;
  if (std::optional<std::string> problem =
          check_entry_file(outcome.path, job.kernel.key(), job.arch, trust_of(options))) {
    fail(&outcome, fmt::format("{}: {}", outcome.path, *problem));
  }
  return outcome;
}

std::string describe(const Job& job, const Outcome& outcome) {
  std::string text = fmt::format("{} {} {}", to_string(outcome.state), job.kernel.name(), job.arch);
  if (outcome.state == OutcomeState::kCompiled)
    text += fmt::format(" {:.0f} ms", outcome.info.compile_ms);
  return text;
}

// A cache that cannot hold all kernels ends with the last ones.
void fail_evicted(const Options& options, std::vector<Outcome>* outcomes) {
  const std::string entries = paths::entries_dir(options.cache_dir) + "/";
  for (Outcome& outcome : *outcomes) {
    const bool is_made =
        outcome.state == OutcomeState::kHit || outcome.state == OutcomeState::kCompiled;
    std::error_code error;
    if (!is_made || !outcome.path.starts_with(entries)) continue;
    if (std::filesystem::exists(outcome.path, error) || error) continue;
    fail(&outcome, fmt::format("evicted at once: {} holds at most {}; raise CUBINERY_CACHE_LIMIT",
                               options.cache_dir, bytes_text(options.cache_limit_bytes)));
  }
}

// Why no kernel at all can be compiled and stored; OK: some may.
Status check_compiler_and_cache(const Context& context, const Options& options,
                                bool is_all_for_nvcc) {
  if (options.offline) {
    return Status(Code::kNotCached, "CUBINERY_OFFLINE=1 forbids it; --dry-run lists them");
  }
  if (!is_all_for_nvcc) {
    const Result<std::string> nvrtc = context.nvrtc_version();
    if (!nvrtc) return nvrtc.error().clone();
  }
  if (options.cache_dir.empty()) {
    return Status(Code::kIo, "no home directory for the cache; name one with --cache-dir");
  }
  return Store(store_options(options)).check_writable();
}

}  // namespace

const char* to_string(OutcomeState state) {
  switch (state) {
    case OutcomeState::kNotStarted:
      return "not started";
    case OutcomeState::kHit:
      return "hit";
    case OutcomeState::kCompiled:
      return "compiled";
    case OutcomeState::kMissing:
      return "missing";
    case OutcomeState::kFailed:
      return "failed";
  }
  return "?";
}

Result<std::map<std::string, Context>> make_contexts(const std::vector<Job>& jobs,
                                                     const Options& options) {
  std::map<std::string, Context> contexts;
  for (const Job& job : jobs) {
    if (contexts.contains(job.arch)) continue;
    Options of_arch = options;
    of_arch.device = kNoDevice;
    of_arch.arch = job.arch;
    Result<Context> context = Context::create(std::move(of_arch));
    if (!context) return std::move(context).error();
    contexts.emplace(job.arch, *std::move(context));
  }
  return contexts;
}

Status check_can_make(const std::vector<Job>& jobs, const std::map<std::string, Context>& contexts,
                      const Options& options) {
  if (jobs.empty()) return {};
  const bool is_all_for_nvcc = std::all_of(jobs.begin(), jobs.end(), [](const Job& job) {
    return job.kernel.compiler() == Compiler::kNvcc;
  });
  const Status fault = check_compiler_and_cache(contexts.begin()->second, options, is_all_for_nvcc);
  if (fault.ok()) return {};
  const auto is_missing = [&](const Job& job) {
    return look_up(job, contexts.at(job.arch)).state == OutcomeState::kMissing;
  };
  const auto missing = std::count_if(jobs.begin(), jobs.end(), is_missing);
  if (missing == 0) return {};
  return Status(
      fault.code(),
      fmt::format("{} of {} kernels are not in the cache and cannot be compiled into it: {}",
                  missing, jobs.size(), fault.message()));
}

std::vector<Outcome> run_jobs(const std::vector<Job>& jobs,
                              const std::map<std::string, Context>& contexts,
                              const Options& options, const PrewarmSettings& settings) {
  std::vector<Outcome> outcomes(jobs.size());
  if (jobs.empty()) return outcomes;
  const InterruptNote note;
  std::optional<Progress> progress;  // a dry run is done at once
  if (!settings.dry_run) progress.emplace(stderr, isatty(STDERR_FILENO) == 1, jobs.size());
  on_threads(jobs.size(), settings.threads, [&](std::size_t i) {
    if (was_interrupted()) return;
    outcomes[i] = run_job(jobs[i], contexts.at(jobs[i].arch), options, settings);
    if (progress) progress->done(describe(jobs[i], outcomes[i]));
  });
  if (!settings.dry_run) fail_evicted(options, &outcomes);
  return outcomes;
}

}  // namespace cubinery
