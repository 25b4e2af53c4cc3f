#include "cli/result_lines.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/print.h"
#include "codegen/read_json.h"
#include "results/record_file.h"
#include "runtime/registry/describe.h"

namespace cubinery {

Result<std::vector<ResultLine>> result_lines(const std::string& file) {
  const Result<std::string> text = read_file(file);
  if (!text) return text.error().clone();
  std::vector<ResultLine> lines;
  for_each_line(*text, [&](std::string_view line, int number) {
    if (kind_of(line) == RecordKind::kResult) lines.push_back({number, parse_result(line)});
  });
  return lines;
}

Result<Problem> problem_of(const Setting& setting) {
  const auto& operators = operator_descriptions();
  const auto op = std::find_if(operators.begin(), operators.end(),
                               [&](const auto& one) { return one.name == setting.op; });
  if (op == operators.end()) {
    return Status(Code::kInvalidArgument, setting.op + " is no operator of the library");
  }
  const auto field = [&](std::string_view name) {
    return std::find_if(op->fields.begin(), op->fields.end(),
                        [&](const FieldDescription& one) { return one.name == name; });
  };
  Json object = Json::object();
  for (const ShapeSize& size : setting.shape) {
    if (field(size.name) != op->fields.end()) object[size.name] = size.value;
  }
  std::string_view rest = setting.problem;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const std::string_view name = part.substr(0, part.find('='));
    const std::string_view value = part.substr(std::min(name.size() + 1, part.size()));
    const auto known = field(name);
    if (known != op->fields.end() && known->choices.empty()) {
      Result<Json> number = read_json(name, value);
      if (!number) return std::move(number).error();
      object[std::string(name)] = *std::move(number);
    } else {
      object[std::string(name)] = value;
    }
  }
  return parse_problem(setting.op, object.dump());
}

}  // namespace cubinery
