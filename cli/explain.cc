// cubinery explain: why a kernel is, or is not, in the cache.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command_text.h"
#include "cli/commands.h"
#include "cli/explain_causes.h"
#include "cli/library_options.h"
#include "cli/model_config.h"
#include "cli/plan.h"
#include "cli/prewarm_run.h"
#include "cli/print.h"
#include "cli/problem_options.h"
#include "codegen/source_name.h"

namespace cubinery {
namespace {

constexpr const char* kExplainExamples = R"(Examples:
  cubinery explain --hf-config config.json --tp 4 --arch sm_90a
  cubinery explain --hf-config config.json --arch sm_90a --kernel gdn_prefill_scan --json -
  cubinery explain --key-dim 128 --arch sm_90a --kernel gdn_decode --source > gdn_decode.cu
  cubinery explain --source-file scale.cu --function scale -I include --arch sm_90a --sass

Prints a line for each cause, with the command that fills the cache; --verbose prints everything about each kernel.
Compiles nothing but for --ptx and --sass. Exit code: 0 whether cached or not, 2 wrong usage, 3 problems that cannot be
had are left out.)";

// A kernel that was asked for, and what became of it.
struct Explained {
  Job job;
  Context context;
  Explanation found;
};

struct Explain {
  ProblemOptions problems;
  LibraryOptions library;
  std::string kernel;
  bool source = false;
  bool ptx = false;
  bool sass = false;
  std::string json;
  const CLI::App* app = nullptr;

  void add_to(CLI::App& of);
  int run() const;
  Result<std::vector<Job>> plan(const Options& options, LeftOuts* left_out) const;
  Result<std::vector<Explained>> look(const std::vector<Job>& jobs, const Options& options) const;
  std::string remedy(const Options& options) const;
  // Whether one kernel is printed and nothing else.
  bool prints_one() const { return source || ptx || sass; }
  Status print_one(const Explained& one) const;
  int show(const std::vector<Explained>& all, const std::string& remedy) const;
};

void Explain::add_to(CLI::App& of) {
  app = &of;
  problems.add_to(of);
  of.add_option("--kernel", kernel, "Only the kernels of this template, such as gdn_decode")
      ->type_name("NAME");
  of.add_flag("--source", source, "Print the first kernel's source text and nothing else");
  of.add_flag("--ptx", ptx, "Likewise its PTX, which is made anew")->excludes("--source");
  of.add_flag("--sass", sass, "Likewise its machine code, by the toolkit's nvdisasm")
      ->excludes("--source")
      ->excludes("--ptx");
  of.add_option("--json", json, "Write everything, to stdout with -")->type_name("FILE");
  library.add_to(of, LibraryOptions::Scope::kCompiler);
  of.footer(std::string(kExplainExamples) + "\n\n" + kModelHelp);
}

std::string resources_text(const KernelInfo& info) {
  return fmt::format(
      "{} registers, {} bytes of static shared memory, {} spilled; compiled in {:.0f} ms "
      "by {} {}",
      info.registers, info.static_shared_bytes, info.spill_store_bytes + info.spill_load_bytes,
      info.compile_ms, compiler_text(compiler_in_key(info.canonical)), info.nvrtc);
}

std::string text_of(const Job& job, const Explanation& found) {
  std::string text = fmt::format("{} for {}: {}\n", job.kernel.name(), job.arch,
                                 found.cached ? "cached" : "not cached");
  text += fmt::format("  key        {}\n", job.kernel.key());
  text +=
      fmt::format("  {}   {}\n", job.kernel.is_text() ? "text    " : "template", found.source_path);
  text += fmt::format("  options    {}\n", join(found.options, " "));
  text += "  identity\n" + indented(found.identity, "    ");
  if (found.cached) {
    text += fmt::format("  entry      {}\n", found.path);
    text += fmt::format("  resources  {}\n", resources_text(found.info));
  } else if (found.nearest_path.empty()) {
    text += fmt::format("  would be   {}\n", found.path);
    text += fmt::format("  nearest    none: the cache has no entry of {}\n", job.kernel.name());
  } else {
    text += fmt::format("  would be   {}\n", found.path);
    text += fmt::format("  nearest    {}\n", found.nearest_path);
    text += found.differences.empty() ? "    cannot be used: cubinery cache verify says why\n"
                                      : indented(join(found.differences, "\n"), "    differs in ");
  }
  return text;
}

nlohmann::ordered_json json_of(const Job& job, const Explanation& found) {
  nlohmann::ordered_json object = {{"kernel", job.kernel.name()},
                                   {"canonical", job.kernel.key()},
                                   {"arch", job.arch},
                                   {"cached", found.cached},
                                   {"path", found.path},
                                   {"identity", found.identity},
                                   {"source_path", found.source_path},
                                   {"options", found.options},
                                   {"source", found.source}};
  if (found.cached) {
    object["nvrtc"] = found.info.nvrtc;
    object["registers"] = found.info.registers;
    object["static_shared_bytes"] = found.info.static_shared_bytes;
    object["spills"] = found.info.spill_store_bytes + found.info.spill_load_bytes;
    object["compile_ms"] = found.info.compile_ms;
    object["log"] = found.info.log;
  } else {
    object["nearest_path"] = found.nearest_path;
    object["differences"] = found.differences;
  }
  return object;
}

Result<std::vector<Job>> Explain::plan(const Options& options, LeftOuts* left_out) const {
  const Result<std::vector<Request>> requests = problems.requests(left_out);
  if (!requests) return requests.error().clone();
  Result<std::vector<Job>> jobs = problems.jobs(*requests, options, left_out);
  if (!jobs) return jobs;
  CUBINERY_RETURN_IF_ERROR(library.check_template_dirs(*jobs));
  std::set<std::string> names;
  for (const Job& job : *jobs) names.insert(job.kernel.name());
  if (!kernel.empty() && !names.contains(kernel)) {
    const std::vector<std::string> known(names.begin(), names.end());
    return unknown_name("--kernel", kernel, known);
  }
  std::erase_if(*jobs,
                [&](const Job& job) { return !kernel.empty() && job.kernel.name() != kernel; });
  if (prints_one() && !jobs->empty()) jobs->erase(jobs->begin() + 1, jobs->end());
  return jobs;
}

Result<std::vector<Explained>> Explain::look(const std::vector<Job>& jobs,
                                             const Options& options) const {
  const Result<std::map<std::string, Context>> contexts = make_contexts(jobs, options);
  if (!contexts) return contexts.error().clone();
  std::vector<Explained> all;
  for (const Job& job : jobs) {
    const Context& context = contexts->at(job.arch);
    Result<Explanation> found = job.kernel.explain(context);
    if (!found) return std::move(found).error();
    all.push_back({job, context, *std::move(found)});
  }
  return all;
}

// The command after which everything is cached.
std::string Explain::remedy(const Options& options) const {
  return (options.offline ? "CUBINERY_OFFLINE=0 " : "") +
         command_text(*app, "prewarm", {"kernel", "source", "ptx", "sass", "json", "verbose"});
}

// Why those are missing that are, and how many of all.
std::string summary_text(const std::vector<MissCause>& causes, std::size_t all,
                         const std::string& remedy) {
  if (causes.empty()) return fmt::format("{} of {} cached\n", all, all);
  std::string text;
  for (const MissCause& cause : causes) {
    text += fmt::format("{} of {} missing; {}; run: {}\n", cause.missing.size(), all, cause.text,
                        remedy);
  }
  return text;
}

int Explain::show(const std::vector<Explained>& all, const std::string& remedy) const {
  std::vector<MissingKernel> missing;
  std::vector<std::size_t> places;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const auto& [job, context, found] : all) {
    if (!found.cached) {
      missing.push_back({job.kernel.name(), found, job.kernel.is_text()});
      places.push_back(document.size());
    }
    document.push_back(json_of(job, found));
  }
  std::vector<std::string> fields;
  for (const ProblemField& field : problem_fields()) fields.push_back(field.name);
  const std::vector<MissCause> causes = causes_of(missing, fields);
  for (const MissCause& cause : causes) {
    for (const std::size_t place : cause.missing) {
      document[places[place]]["cause"] = cause.text;
      document[places[place]]["run"] = remedy;
    }
  }
  if (json != "-" && !prints_one()) {
    print(summary_text(causes, all.size(), remedy));
    for (const Explained& one : all) {
      if (library.verbose()) print(text_of(one.job, one.found));
    }
  }
  return json.empty() ? kExitOk : exit_code_of(write_json(json, document));
}

Status Explain::print_one(const Explained& one) const {
  if (source) {
    print(one.found.source);
    return {};
  }
  const Result<std::string> text =
      one.job.kernel.listing(one.context, ptx ? Listing::kPtx : Listing::kSass);
  if (!text) return text.error().clone();
  print(*text);
  return {};
}

int Explain::run() const {
  if (const Status bad = check_output(json); !bad.ok()) return usage_error(bad);
  const Result<Options> options = library.resolve();
  if (!options) return usage_error(options.error());
  LeftOuts left_out;
  const Result<std::vector<Job>> jobs = plan(*options, &left_out);
  if (!jobs) return usage_error(jobs.error());
  left_out.print();
  const Result<std::vector<Explained>> all = look(*jobs, *options);
  if (!all) return usage_error(all.error());
  if (prints_one()) {
    for (const Explained& one : *all) {
      const Status printed = print_one(one);
      if (!printed.ok()) return usage_error(printed);
    }
  }
  return left_out.exit_code(show(*all, remedy(*options)));
}

}  // namespace

void add_explain(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("explain", "Say why a kernel is, or is not, in the cache");
  const auto explain = std::make_shared<Explain>();
  explain->add_to(*command);
  command->callback([explain, exit_code] { *exit_code = explain->run(); });
}

}  // namespace cubinery
