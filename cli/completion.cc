// cubinery completion: the commands and options of this program, for a shell.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/print.h"

namespace cubinery {
namespace {

// What a command line can go on with, as branches of the script's two `case`s.
struct Branches {
  std::string commands;  // after which words a subcommand begins: "cubinery cache ls"
  std::string words;     // what may follow a command: its subcommands and options
  std::string values;    // what may follow an option
};

// "FILE" and "DIR" are the two that a shell knows; of others it knows nothing.
std::string value_branch(const std::string& command, const std::string& option,
                         const std::string& type) {
  const char* const action = type == "FILE" ? "-f" : type.starts_with("DIR") ? "-d" : "";
  return fmt::format("    \"{} {}\") kind={} ;;\n", command, option, *action ? action : "any");
}

void describe(const CLI::App& app, const std::string& command, Branches* branches) {
  std::string words;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string path = command + " " + sub->get_name();
    words += sub->get_name() + " ";
    branches->commands += fmt::format("      \"{}\") command=\"{}\" ;;\n", path, path);
    describe(*sub, path, branches);
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
    if (option->get_items_expected_max() == 0) continue;
    for (const std::string& name : option->get_lnames()) {
      branches->values += value_branch(command, "--" + name, option->get_type_name());
    }
    for (const std::string& name : option->get_snames()) {
      branches->values += value_branch(command, "-" + name, option->get_type_name());
    }
  }
  branches->words += fmt::format("    \"{}\") words=\"{}\" ;;\n", command, words);
}

std::string bash_script(const CLI::App& app) {
  Branches branches;
  describe(app, app.get_name(), &branches);
  return fmt::format(
      R"(# Completion for cubinery in bash, and in zsh after bashcompinit; printed by: cubinery completion
_cubinery() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=cubinery words= kind= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
{}    esac
  done
  case "$command $previous" in
{}  esac
  case $kind in
    -*) COMPREPLY=($(compgen "$kind" -- "$current")); return ;;
    any) COMPREPLY=(); return ;;
  esac
  case $command in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o filenames -F _cubinery cubinery
)",
      branches.commands, branches.values, branches.words);
}

}  // namespace

void add_completion(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("completion", "Print the completion of commands and options for a shell");
  command->footer(
      "For bash, and for zsh after: autoload -Uz bashcompinit && bashcompinit.  An installation "
      "has "
      "it in\nshare/bash-completion; by hand:\n  source <(cubinery completion)");
  command->callback([&app, exit_code] {
    print(bash_script(app));
    *exit_code = kExitOk;
  });
}

}  // namespace cubinery
