// cubinery problems: the problems of a model or a manifest as JSON, for manifests, C++ and C.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/model_config.h"
#include "cli/print.h"
#include "cli/problem_options.h"

namespace cubinery {
namespace {

constexpr const char* kProblemsExamples = R"(Examples:
  cubinery problems --hf-config config.json --tp 2
  cubinery problems --hf-config config.json --tp 1,2,4,8 --state-dtype bf16 -o problems.json
  cubinery problems --hf-config config.json --tp 2 --op gdn_decode

Prints an array of {"op": the operator, its fields}, as --manifest takes it. With one operator in --op it prints
that operator's problem alone, for from_json() in C++ and cubinery_decode_create() in C; there must be exactly one.
problems_for_model() in C++ and Python and cubinery_problem_for_model() in C give programs the same.
Exit code: 0, 1 the output cannot be written, 2 wrong usage.)";

struct Problems {
  ProblemOptions problems;
  std::string output = "-";

  int run() const;
};

// One problem on each line.
Result<std::string> text_of(const std::vector<Request>& requests, bool alone) {
  if (alone) {
    if (requests.size() == 1) return to_json(requests[0].problem) + "\n";
    return Status(
        Code::kInvalidArgument,
        fmt::format("--op prints one problem, and here are {}; accepted: one size in --tp "
                    "and one problem, or no --op for an array",
                    requests.size()));
  }
  std::string text;
  for (const Request& request : requests) {
    nlohmann::ordered_json object = {{"op", operator_of(request.problem)}};
    if (!request.arch.empty()) object["arch"] = request.arch;
    object.update(nlohmann::ordered_json::parse(to_json(request.problem)));
    text += fmt::format("{}  {}", text.empty() ? "[\n" : ",\n", object.dump());
  }
  return text.empty() ? "[]\n" : text + "\n]\n";
}

int Problems::run() const {
  const Result<std::vector<Request>> requests = problems.requests();
  if (!requests) return usage_error(requests.error());
  const Result<std::string> text = text_of(*requests, problems.names_one_operator());
  if (!text) return usage_error(text.error());
  return exit_code_of(write_text(output, *text));
}

}  // namespace

void add_problems(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("problems", "Print the problems of a model, for manifests and programs");
  const auto problems = std::make_shared<Problems>();
  problems->problems.add_problems_to(*command);
  command->add_option("-o,--output", problems->output, "Where to write [-]")->type_name("FILE");
  command->footer(std::string(kProblemsExamples) + "\n\n" + kModelAssumptions);
  command->callback([problems, exit_code] { *exit_code = problems->run(); });
}

}  // namespace cubinery
