// cubinery report: what tuning found.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>

#include "cli/commands.h"
#include "cli/library_options.h"
#include "cli/print.h"
#include "cli/report_html.h"
#include "cli/report_stale.h"
#include "results/embedded.h"
#include "tuner/report/compare.h"
#include "tuner/report/report.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportExamples = R"(Examples:
  cubinery report
  cubinery report --op gdn_decode --copy-rate 4.2
  cubinery report --format html -o report.html
  cubinery report --library --format json
  cubinery report --format t4 --bucket states=256 -o states256.t4.json
  cubinery report --format kernel-tuner -o exchange/
  cubinery report --dir monday --against friday

Formats:
  table         for people
  json          everything, with the measurements
  html          a page with charts, in one file
  t4            one setting's measurements in the T4 format of autotuners
  kernel-tuner  one setting's measurements as a cache file of Kernel Tuner
Damaged lines are named on stderr and passed over.
--against compares results setting by setting, as a table or JSON: two agree where
times differ by no more than the sum of their uncertainties.
Exit code: 0, 1 there are no results or some do not agree, 2 wrong usage or files that
cannot be read.)";

// The formats that describe one setting.
struct OneSetting {
  const char* format;
  const char* ending;  // of files
  std::string (*print)(const ReportedSetting&);
};
constexpr OneSetting kOneSetting[] = {{"t4", ".t4.json", &report_t4},
                                      {"kernel-tuner", ".kernel_tuner.json", &report_kernel_tuner}};

struct Report {
  LibraryOptions library;
  std::string dir;
  bool inside = false;
  ReportRequest request;
  std::string format = "table";
  double copy_tb_per_s = 0;
  std::string output = "-";
  std::string against;

  void add_to(CLI::App& app);
  int run() const;
  std::string place(const Options& options) const;
  Result<TuningReport> read(const Options& options) const;
  Status write(TuningReport report) const;
  // Whether --output names a directory for a file of each setting.
  bool writes_each() const;
  Status write_each(const TuningReport& report, const OneSetting& how) const;
  int write_comparison(const TuningReport& here) const;
};

void Report::add_to(CLI::App& app) {
  app.add_option("--dir", dir, "Directory of results [\"tuning\" in the cache directory]")
      ->type_name("DIR");
  app.add_flag("--library", inside, "The results inside the library instead")->excludes("--dir");
  app.add_option("--op", request.op, "Only this operator or kernel")->type_name("NAME");
  app.add_option("--bucket", request.bucket, "Only this bucket, such as states=256")
      ->type_name("BUCKET");
  app.add_option("--setting", request.setting, "Only settings whose id begins so")->type_name("ID");
  app.add_option("--format", format, "How to print [table]")
      ->check(CLI::IsMember({"table", "json", "html", "t4", "kernel-tuner"}));
  app.add_option("--copy-rate", copy_tb_per_s,
                 "TB/s that the GPU copies at best: times are compared with it")
      ->check(CLI::PositiveNumber)
      ->type_name("TB/s");
  app.add_option("-o,--output", output,
                 "Where to write [-]; t4 and kernel-tuner: a directory for a file each")
      ->type_name("FILE");
  app.add_option("--against", against, "Compare with the results in this directory")
      ->type_name("DIR");
  library.add_to(app, LibraryOptions::Scope::kCompiler);
  app.footer(kReportExamples);
}

std::string Report::place(const Options& options) const {
  if (inside) return "the library";
  return dir.empty() ? options.cache_dir + "/tuning" : dir;
}

Result<TuningReport> Report::read(const Options& options) const {
  if (inside) return make_report({}, {TuningResults{.results = embedded_results(), .damaged = {}}});
  return read_report(place(options));
}

void name_damage(const TuningReport& report) {
  for (const DamagedLine& line : report.damaged) print_error(line.text());
}

// A name that any file system takes.
std::string file_name(const ReportedSetting& reported, const char* ending) {
  std::string name = fmt::format("{}.{}.{}", reported.setting.op, reported.setting.bucket,
                                 reported.id.substr(0, 12));
  const auto is_bad = [](char c) {
    return !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
           c != '_' && c != '=' && c != '.';
  };
  std::replace_if(name.begin(), name.end(), is_bad, '-');
  return name + ending;
}

bool Report::writes_each() const {
  const auto is_format = [this](const OneSetting& how) { return format == how.format; };
  return std::any_of(std::begin(kOneSetting), std::end(kOneSetting), is_format) &&
         (output.ends_with('/') || fs::is_directory(output));
}

Status Report::write_each(const TuningReport& report, const OneSetting& how) const {
  std::error_code error;
  fs::create_directories(output, error);
  if (error) {
    return Status(Code::kIo, fmt::format("cannot make {}: {}", output, error.message()));
  }
  for (const ReportedSetting& reported : report.settings) {
    if (reported.measurements.empty()) continue;
    const fs::path path = fs::path(output) / file_name(reported, how.ending);
    CUBINERY_RETURN_IF_ERROR(write_text(path.string(), how.print(reported)));
  }
  return {};
}

Status Report::write(TuningReport report) const {
  for (const OneSetting& how : kOneSetting) {
    if (format != how.format) continue;
    if (writes_each()) return write_each(report, how);
    const Result<const ReportedSetting*> only = only_setting(report);
    if (!only) return only.error().clone();
    return write_text(output, how.print(**only));
  }
  if (format == "html") return write_text(output, report_html(report));
  if (format == "json") return write_text(output, report_json(report));
  report.damaged.clear();  // stderr has them
  return write_text(output, report_table(report));
}

int Report::write_comparison(const TuningReport& here) const {
  if (format != "table" && format != "json") {
    return usage_error(
        Status(Code::kInvalidArgument, "--against prints a table or json, not " + format));
  }
  const Result<TuningReport> there = read_report(against);
  if (!there) return usage_error(there.error());
  name_damage(*there);
  const Comparison comparison = compare(here, *there);
  if (comparison.settings.empty()) {
    print_error(fmt::format("{} has no result for a setting of these", against));
    return kExitFailed;
  }
  const Status written = write_text(
      output, format == "json" ? comparison_json(comparison) : comparison_table(comparison));
  if (!written.ok()) return exit_code_of(written);
  return comparison.agreeing() == comparison.settings.size() ? kExitOk : kExitFailed;
}

int Report::run() const {
  if (!writes_each()) {
    if (const Status bad = check_output(output); !bad.ok()) return usage_error(bad);
  }
  const Result<Options> options = library.resolve();
  if (!options) return usage_error(options.error());
  Result<TuningReport> report = read(*options);
  if (!report) return usage_error(report.error());
  name_damage(*report);
  if (report->settings.empty()) {
    print_error(fmt::format("no tuning results in {}; cubinery tune makes them", place(*options)));
    return kExitFailed;
  }
  ReportRequest with_rate = request;
  with_rate.copy_rate = copy_tb_per_s * 1e12;
  const Status fits = narrow(*report, with_rate, /*of_command_line=*/true);
  if (!fits.ok()) return usage_error(fits);
  if (!against.empty()) return write_comparison(*report);
  mark_stale(*options, &*report);
  return exit_code_of(write(*std::move(report)));
}

}  // namespace

void add_report(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("report", "Show what tuning found");
  const auto report = std::make_shared<Report>();
  report->add_to(*command);
  command->callback([report, exit_code] { *exit_code = report->run(); });
}

}  // namespace cubinery
