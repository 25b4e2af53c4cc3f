// The command line: cubinery prewarm | tune | report | cache | explain | doctor | problems |
// operators.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <exception>
#include <string>

#include "cli/commands.h"
#include "cli/print.h"
#include "cubinery/version.h"

namespace cubinery {
namespace {

constexpr const char* kMainExamples = R"(Examples:
  cubinery doctor
  cubinery prewarm --hf-config config.json --tp 1,2,4,8 --arch sm_90a,sm_80
  cubinery tune --hf-config config.json --tp 1,2,4,8 --budget 30m
  cubinery report --format html -o report.html
  cubinery explain --hf-config config.json --arch sm_90a
  cubinery problems --hf-config config.json --tp 2
  cubinery cache ls

Environment (options go over it): CUBINERY_CACHE_DIR, CUBINERY_CACHE_LAYERS, CUBINERY_CACHE_LIMIT,
CUBINERY_OFFLINE, CUBINERY_NVRTC, CUBINERY_DRIVER, CUBINERY_TEMPLATE_DIR, CUDA_HOME, CUDA_PATH.
Exit code: 0 good, 1 something is bad, 2 wrong usage.)";

// What CLI11 says of a command line that it cannot parse, and where to read what it accepts.
std::string failure_text(const CLI::App* app, const CLI::Error& error) {
  std::string command = "cubinery";
  std::string accepted;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    command += " " + app->get_name();
  }
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
    accepted += (accepted.empty() ? "; accepted: " : ", ") + sub->get_name();
  }
  return fmt::format("cubinery: {}{}; see {} --help\n", error.what(), accepted, command);
}

int main_without_exceptions(int argc, char** argv) {
  CLI::App app("cubinery makes, caches and checks CUDA kernels for Gated DeltaNet.", "cubinery");
  app.set_version_flag("--version", "cubinery " CUBINERY_VERSION);
  app.require_subcommand(1);
  app.failure_message(failure_text);
  app.footer(kMainExamples);
  int exit_code = kExitOk;
  add_prewarm(app, &exit_code);
  add_tune(app, &exit_code);
  add_report(app, &exit_code);
  add_explain(app, &exit_code);
  add_cache(app, &exit_code);
  add_doctor(app, &exit_code);
  add_problems(app, &exit_code);
  add_operators(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Success is how CLI11 reports --help and --version.
    return app.exit(error) == static_cast<int>(CLI::ExitCodes::Success) ? kExitOk : kExitUsage;
  }
  return exit_code;
}

}  // namespace
}  // namespace cubinery

int main(int argc, char** argv) {
  try {
    return cubinery::main_without_exceptions(argc, argv);
  } catch (const std::exception& error) {
    cubinery::print_error(error.what());
    return cubinery::kExitFailed;
  }
}
