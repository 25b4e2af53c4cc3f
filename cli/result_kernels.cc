// cubinery result-kernels: the kernels that results of tuning name, compiled.  For
// scripts/carry_results.py, which compares them with those of another tree.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/library_options.h"
#include "cli/plan.h"
#include "cli/prewarm_run.h"
#include "cli/print.h"
#include "cli/result_lines.h"
#include "codegen/read_json.h"
#include "results/records.h"
#include "results/target.h"

namespace cubinery {
namespace {

constexpr const char* kFooter = R"(Prints a line of JSON for each result in the files:
{"file", "line", "error"}, or {"file", "line", "nvrtc", "decisions": [{"templates", "kernels":
[{"canonical", "entry" or "error"}]}]}: the fastest configuration and, where there is one, the
agreed; the compiler and the templates' digest are those here; "entry" is a file of the cache.
Exit code: 0, 1 nothing can be compiled, 2 wrong usage, 130 interrupted.)";

// A line of a file, and the jobs of each of its decisions.
struct Line {
  std::string file;
  int number = 0;
  std::string op, arch, error;
  struct Decided {
    std::string path;
    std::vector<std::size_t> jobs;
  };
  std::vector<Decided> decisions;
};

struct ResultKernels {
  LibraryOptions library;
  std::vector<std::string> files;
  int threads = 0;

  void add_to(CLI::App& app);
  int run();

 private:
  Status read(const std::string& file);
  Status add(const TuningResult& result, Line* line);
  Status add_decision(const TuningSpace& space, const std::vector<TunedValue>& values, Line* line);
  Json json_of(const Line& line, const std::map<std::string, Context>& contexts,
               const std::vector<Outcome>& outcomes) const;

  std::vector<Line> lines_;
  std::vector<Job> jobs_;
  std::map<std::string, TuningSpace> spaces_;  // neighbours are mostly of one space
};

void ResultKernels::add_to(CLI::App& app) {
  app.add_option("file", files, "Files of results")->required()->type_name("FILE");
  app.add_option("--jobs,-j", threads, "Kernels that are compiled at a time [the CPU's threads]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  library.add_to(app, LibraryOptions::Scope::kCompiler);
  app.footer(kFooter);
}

Status ResultKernels::add_decision(const TuningSpace& space, const std::vector<TunedValue>& values,
                                   Line* line) {
  const std::size_t found = index_of(space, values);
  if (found == space.configurations.size()) {
    return Status(Code::kInvalidArgument, "no configuration of the problem: " + to_text(values));
  }
  Line::Decided decided{std::string(path_of(values)), {}};
  for (const KernelSpec& spec : space.configurations[found].kernels) {
    const auto same = [&](const Job& job) {
      return job.arch == line->arch && job.kernel.key() == spec.canonical;
    };
    const auto job = std::find_if(jobs_.begin(), jobs_.end(), same);
    decided.jobs.push_back(static_cast<std::size_t>(job - jobs_.begin()));
    if (job == jobs_.end()) jobs_.push_back({spec, line->arch, 1});
  }
  line->decisions.push_back(std::move(decided));
  return {};
}

Status ResultKernels::add(const TuningResult& result, Line* line) {
  const Setting& setting = result.setting;
  line->op = setting.op;
  line->arch = setting.gpu.arch;
  const Result<Problem> problem = problem_of(setting);
  if (!problem) return problem.error().clone();
  const Result<Arch> arch = check_arch(setting.op, line->arch);
  if (!arch) return arch.error().clone();
  const GpuIdentity& gpu = setting.gpu;
  const std::string name = fmt::format("{} {} {} {} {} {}", setting.op, to_json(*problem), gpu.arch,
                                       gpu.sm_count, gpu.l2_bytes, gpu.shared_bytes_per_sm);
  auto space = spaces_.find(name);
  if (space == spaces_.end()) {
    Result<TuningSpace> made = tuning_space(*problem, target_of(*arch, gpu));
    if (!made) return std::move(made).error();
    space = spaces_.emplace(name, *std::move(made)).first;
  }
  CUBINERY_RETURN_IF_ERROR(add_decision(space->second, result.configuration, line));
  if (result.agreed.empty()) return {};
  return add_decision(space->second, result.agreed, line);
}

Status ResultKernels::read(const std::string& file) {
  const Result<std::vector<ResultLine>> lines = result_lines(file);
  if (!lines) return lines.error().clone();
  for (const ResultLine& line : *lines) {
    Line made{
        .file = file, .number = line.number, .op = {}, .arch = {}, .error = {}, .decisions = {}};
    const Status added = line.result ? add(*line.result, &made) : line.result.error().clone();
    made.error = added.message();
    lines_.push_back(std::move(made));
  }
  return {};
}

Json ResultKernels::json_of(const Line& line, const std::map<std::string, Context>& contexts,
                            const std::vector<Outcome>& outcomes) const {
  Json object{{"file", line.file}, {"line", line.number}};
  if (!line.error.empty()) {
    object["error"] = line.error;
    return object;
  }
  const Toolchain here = toolchain_of(contexts.at(line.arch), path_kernels(line.op));
  object["nvrtc"] = here.nvrtc;
  object["decisions"] = Json::array();
  for (const Line::Decided& decided : line.decisions) {
    Json kernels = Json::array();
    for (const std::size_t job : decided.jobs) {
      const Outcome& outcome = outcomes[job];
      const bool is_there = outcome.error.empty();
      kernels.push_back({{"canonical", jobs_[job].kernel.key()},
                         {is_there ? "entry" : "error", is_there ? outcome.path : outcome.error}});
    }
    object["decisions"].push_back(
        {{"templates", here.templates.at(decided.path)}, {"kernels", std::move(kernels)}});
  }
  return object;
}

int ResultKernels::run() {
  const Result<Options> options = library.resolve();
  if (!options) return usage_error(options.error());
  for (const std::string& file : files) {
    if (const Status bad = read(file); !bad.ok()) return usage_error(bad);
  }
  const Result<std::map<std::string, Context>> contexts = make_contexts(jobs_, *options);
  if (!contexts) return usage_error(contexts.error());
  const Status able = check_can_make(jobs_, *contexts, *options);
  if (!able.ok()) return exit_code_of(able);
  const std::size_t side_by_side = threads > 0 ? static_cast<std::size_t>(threads)
                                               : std::max(1u, std::thread::hardware_concurrency());
  const std::vector<Outcome> outcomes =
      run_jobs(jobs_, *contexts, *options, {.threads = side_by_side});
  if (was_interrupted()) return kExitInterrupted;
  for (const Line& line : lines_) {
    const Json document = json_of(line, *contexts, outcomes);
    print(document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return kExitOk;
}

}  // namespace

void add_result_kernels(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("result-kernels", "List the kernels that results of tuning name");
  command->group("");  // for scripts: not in the help
  const auto kernels = std::make_shared<ResultKernels>();
  kernels->add_to(*command);
  command->callback([kernels, exit_code] { *exit_code = kernels->run(); });
}

}  // namespace cubinery
