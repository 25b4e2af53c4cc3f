// cubinery operators: what a problem of each operator consists of, and the forms in which a model
// needs it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/print.h"
#include "codegen/read_json.h"
#include "runtime/registry/describe.h"

namespace cubinery {
namespace {

std::string fields_text(const OperatorDescription& op) {
  Table table({"field", "default", "values", "meaning"});
  for (const FieldDescription& field : op.fields) {
    table.add(
        {std::string(field.name), field.default_value, field.accepted, std::string(field.help)});
  }
  return table.text();
}

std::string forms_text(const OperatorDescription& op) {
  Table table({"form", "of a model"});
  for (const Form& form : op.forms) table.add({std::string(form.name), std::string(form.help)});
  return table.text();
}

int run(const std::string& json) {
  if (const Status bad = check_output(json); !bad.ok()) return usage_error(bad);
  if (json != "-") {
    for (const OperatorDescription& op : operator_descriptions()) {
      print(fmt::format("{}: {}\n{}\n{}\n", op.name, op.help, indented(fields_text(op), "  "),
                        indented(forms_text(op), "  ")));
    }
  }
  if (json.empty()) return kExitOk;
  return exit_code_of(write_json(json, *read_json("operators", operators_json())));
}

}  // namespace

void add_operators(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("operators", "List the operators and the fields of their problems");
  const auto json = std::make_shared<std::string>();
  command->add_option("--json", *json, "Write the list, to stdout with -")->type_name("FILE");
  command->callback([json, exit_code] { *exit_code = run(*json); });
}

}  // namespace cubinery
