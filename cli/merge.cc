// cubinery merge: what several machines tuned, as one set of results.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/library_options.h"
#include "cli/merge_results.h"
#include "cli/print.h"
#include "cli/report_stale.h"

namespace cubinery {
namespace {

constexpr const char* kMergeExamples = R"(Examples:
  cubinery merge tuned-0 tuned-1 tuned-2 -o tuned
  cubinery merge tuned-* -o tuned && cubinery report --dir tuned

Every part must have results, all of them of this library's code and of one NVRTC. Where several have the same
setting, times must agree within their uncertainties, and the faster result is taken. Parts of one problem must agree
in what changes bits: `cubinery tune --shard` divides problems, never their sizes. What is wrong is named, and then
nothing is written. Measurements stay where they are. Operators take the results from tuning/ of a cache directory or
layer.
Exit code: 0 merged, 1 the parts are not one set, or it cannot be written, 2 wrong usage.)";

struct MergeCommand {
  LibraryOptions library;
  std::vector<std::string> directories;
  std::string output;

  void add_to(CLI::App& app);
  int run() const;
  Result<std::vector<ResultsPart>> parts(const Options& options) const;
  // Whether nothing is where results go.
  Status check_free() const;
  int write(const MergedResults& merged) const;
};

void MergeCommand::add_to(CLI::App& app) {
  app.add_option("parts", directories, "Directories of results, of each machine one")
      ->required()
      ->type_name("DIR ...");
  app.add_option("-o,--output", output, "Directory that the results go to, which has none yet")
      ->required()
      ->type_name("DIR");
  library.add_to(app, LibraryOptions::Scope::kCompiler);
  app.footer(kMergeExamples);
}

Result<std::vector<ResultsPart>> MergeCommand::parts(const Options& options) const {
  std::vector<ResultsPart> parts;
  for (const std::string& directory : directories) {
    Result<TuningReport> report = read_report(directory);
    if (!report) return std::move(report).error();
    mark_stale(options, &*report);
    parts.push_back({directory, *std::move(report)});
  }
  return parts;
}

Status MergeCommand::check_free() const {
  const Result<std::vector<std::string>> there = tuned_operators(output);
  if (!there) return there.error().clone();
  if (there->empty()) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("--output {} has files of {}; accepted: a directory without results",
                            output, join(*there)));
}

int MergeCommand::write(const MergedResults& merged) const {
  std::map<std::string, std::vector<std::string>> by_operator;
  for (const TuningResult& result : merged.results) {
    by_operator[result.setting.op].push_back(to_line(result));
  }
  std::string text;
  for (const auto& [op, lines] : by_operator) {
    const Status written = append_lines(results_path(output, op), join(lines, ""));
    if (!written.ok()) return exit_code_of(written);
    text += fmt::format("{}: {} results\n", op, lines.size());
  }
  print(text + fmt::format("{} parts, {} settings in several of them\nResults: {}\n",
                           directories.size(), merged.repeated, output));
  return kExitOk;
}

int MergeCommand::run() const {
  const Result<Options> options = library.resolve();
  if (!options) return usage_error(options.error());
  if (const Status taken = check_free(); !taken.ok()) return usage_error(taken);
  const Result<std::vector<ResultsPart>> read = parts(*options);
  if (!read) return usage_error(read.error());
  const MergedResults merged = merge_results(*read);
  for (const std::string& fault : merged.faults) print_error(fault);
  return merged.faults.empty() ? write(merged) : kExitFailed;
}

}  // namespace

void add_merge(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("merge", "Join the tuning results of several machines, and check them");
  const auto merge = std::make_shared<MergeCommand>();
  merge->add_to(*command);
  command->callback([merge, exit_code] { *exit_code = merge->run(); });
}

}  // namespace cubinery
