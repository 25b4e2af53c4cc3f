// cubinery problems: the problems of a model or a manifest as JSON, for manifests, C++ and C.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/model_config.h"
#include "cli/print.h"
#include "cli/problem_options.h"
#include "codegen/read_json.h"

namespace cubinery {
namespace {

constexpr const char* kProblemsExamples = R"(Examples:
  cubinery problems --hf-config config.json --tp 2
  cubinery problems --hf-config config.json --tp 1,2,4,8 --state-dtype bf16 -o problems.json
  cubinery problems --hf-config config.json --tp 2 --form conv_decode

Prints an array of {"op": the operator, its fields}, as --manifest takes it. With one form in --form or one operator
in --op it prints its problem alone, for from_json() in C++ and cubinery_decode_create() in C; there must be exactly
one.
problems_for_model() in C++ and Python and cubinery_form_for_model() in C give programs the same.
Exit code: 0, 1 the output cannot be written, 2 wrong usage, 3 problems that cannot be had are left out.)";

struct Problems {
  ProblemOptions problems;
  std::string output = "-";

  int run() const;
};

std::string json_of(const Request& request) {
  Json object = Json::object();
  if (!request.own_kernel) object["op"] = operator_of(request.asked.problem);
  if (!request.arch.empty()) object["arch"] = request.arch;
  if (!request.own_kernel) {
    object.update(*read_json("problem", to_json(request.asked.problem)));
    return object.dump();
  }
  // A text may be longer than JSON that we read.
  std::string begin = object.dump();
  begin.pop_back();
  return fmt::format("{}{}\"{}\":{}}}", begin, object.empty() ? "" : ",",
                     request.own_kernel->kind(), request.own_kernel->json());
}

// One problem on each line.
Result<std::string> text_of(const std::vector<Request>& requests, bool alone) {
  if (alone) {
    if (requests.size() == 1) return to_json(requests[0].asked.problem) + "\n";
    return Status(
        Code::kInvalidArgument,
        fmt::format("one name in --op or --form prints one problem, and here are {}; accepted: one "
                    "form in --form and one size in --tp, or neither --op nor --form for an array",
                    requests.size()));
  }
  std::string text;
  for (const Request& request : requests) {
    text += fmt::format("{}  {}", text.empty() ? "[\n" : ",\n", json_of(request));
  }
  return text.empty() ? "[]\n" : text + "\n]\n";
}

int Problems::run() const {
  if (const Status bad = check_output(output); !bad.ok()) return usage_error(bad);
  LeftOuts left_out;
  const Result<std::vector<Request>> requests = problems.requests(&left_out);
  if (!requests) return usage_error(requests.error());
  const Result<std::string> text = text_of(*requests, problems.names_one());
  if (!text) return usage_error(text.error());
  left_out.print();
  return left_out.exit_code(exit_code_of(write_text(output, *text)));
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
