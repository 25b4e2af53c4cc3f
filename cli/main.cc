// The command line: cubinery prewarm | tune | merge | report | cache | explain | doctor |
// problems | operators.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/print.h"
#include "codegen/nearest.h"
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
CUBINERY_OFFLINE, CUBINERY_TRUST, CUBINERY_NVRTC, CUBINERY_NVCC, CUBINERY_DRIVER, CUBINERY_TEMPLATE_DIR,
CUDA_HOME, CUDA_PATH.
CUBINERY_RECORD=FILE makes programs add what they ask for to a file, for --manifest; commands record nothing.
Sizes are bytes, or have K, M, G or T behind them: CUBINERY_CACHE_LIMIT=1G is 1024 x 1024 x 1024 bytes.
Exit code: 0 good, 1 something is bad or cannot be written, 2 wrong usage.)";

// The subcommands' names, without those that the help leaves out, or the options' with their
// dashes.
std::vector<std::string> names_of(const CLI::App& app, bool of_options) {
  std::vector<std::string> names;
  if (!of_options) {
    const auto is_in_help = [](const CLI::App* sub) { return !sub->get_group().empty(); };
    for (const CLI::App* sub : app.get_subcommands(is_in_help)) {
      names.push_back(sub->get_name());
    }
    return names;
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The word that is wrong, and which one it may be meant to be.  Empty: no word is.
std::string wrong_word_text(const CLI::App& app, const std::string& command) {
  const std::vector<std::string> words = app.remaining();
  if (words.empty()) return "";
  const std::vector<std::string> commands = names_of(app, /*of_options=*/false);
  const bool is_option = words.front().starts_with("-");
  const std::string word =
      is_option ? words.front().substr(0, words.front().find('=')) : words.front();
  if (!is_option && commands.empty()) {
    return fmt::format("{} is not expected after {}", word, command);
  }
  return fmt::format("{} is no {} of {}{}{}", word, is_option ? "option" : "command", command,
                     is_option ? "" : "; accepted: " + join(commands),
                     did_you_mean(word, names_of(app, is_option)));
}

// What is wrong with a command line that CLI11 cannot parse, and where to read what it accepts.
std::string failure_text(const CLI::App* app, const CLI::Error& error) {
  std::string command = "cubinery";
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    command += " " + app->get_name();
  }
  std::string text = wrong_word_text(*app, command);
  if (text.empty()) {
    const std::vector<std::string> commands = names_of(*app, /*of_options=*/false);
    text = error.what();
    if (!commands.empty()) text += "; accepted: " + join(commands);
  }
  return fmt::format("cubinery: {}; see {} --help\n", text, command);
}

int main_without_exceptions(int argc, char** argv) {
  CLI::App app("cubinery makes, caches and checks CUDA kernels for Gated DeltaNet.", "cubinery");
  app.formatter(std::make_shared<Help>());  // before the commands, which take it over
  app.set_help_all_flag("--help-all", "Print all help, of every command, and exit");
  app.set_version_flag("--version", "cubinery " CUBINERY_VERSION);
  app.require_subcommand(1);
  app.failure_message(failure_text);
  app.footer(kMainExamples);
  int exit_code = kExitOk;
  add_prewarm(app, &exit_code);
  add_tune(app, &exit_code);
  add_merge(app, &exit_code);
  add_report(app, &exit_code);
  add_explain(app, &exit_code);
  add_cache(app, &exit_code);
  add_doctor(app, &exit_code);
  add_problems(app, &exit_code);
  add_operators(app, &exit_code);
  add_new_kernel(app, &exit_code);
  add_result_kernels(app, &exit_code);
  add_completion(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Success is how CLI11 reports --help and --version.
    std::ostringstream out;
    const int code = app.exit(error, out);
    print(out.str());
    if (code != static_cast<int>(CLI::ExitCodes::Success)) exit_code = kExitUsage;
  }
  // Whatever a command did, nobody has seen it.
  const int output_code = exit_code_of(output_error());
  return exit_code == kExitOk ? output_code : exit_code;
}

}  // namespace
}  // namespace cubinery

int main(int argc, char** argv) {
  // A limit of file sizes is a failed write, for which there is a message.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return cubinery::main_without_exceptions(argc, argv);
  } catch (const std::exception& error) {
    cubinery::print_error(error.what());
    return cubinery::kExitFailed;
  }
}
