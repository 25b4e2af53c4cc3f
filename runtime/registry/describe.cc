#include "runtime/registry/describe.h"

#include <type_traits>
#include <variant>

#include "codegen/read_json.h"
#include "runtime/gdn/shared/problem_fields.h"

namespace cubinery {
namespace {

Json json_of(const FieldDescription& field) {
  Json object{{"name", field.name}, {"type", field.type}};
  if (field.choices.empty()) {
    object["default"] = *read_json(field.name, field.default_value);
  } else {
    object["default"] = field.default_value;
    object["choices"] = field.choices;
  }
  object["help"] = field.help;
  return object;
}

std::vector<Form> forms_of(std::string_view op) {
  std::vector<Form> forms = model_forms();
  std::erase_if(forms, [op](const Form& form) { return form.op != op; });
  return forms;
}

}  // namespace

const std::vector<OperatorDescription>& operator_descriptions() {
  static const std::vector<OperatorDescription> kDescriptions = [] {
    std::vector<OperatorDescription> operators;
    for (const std::string& op : operator_names()) {
      const auto describe = [](const auto& problem) -> OperatorDescription {
        using P = std::decay_t<decltype(problem)>;
        return {Fields<P>::kName, Fields<P>::kHelp, describe_fields<P>(),
                forms_of(Fields<P>::kName)};
      };
      operators.push_back(std::visit(describe, default_problem(op)));
    }
    return operators;
  }();
  return kDescriptions;
}

std::string operators_json() {
  Json document = Json::array();
  for (const OperatorDescription& op : operator_descriptions()) {
    Json fields = Json::array();
    for (const FieldDescription& field : op.fields) fields.push_back(json_of(field));
    Json forms = Json::array();
    for (const Form& form : op.forms) forms.push_back({{"name", form.name}, {"help", form.help}});
    document.push_back({{"op", op.name},
                        {"help", op.help},
                        {"fields", std::move(fields)},
                        {"forms", std::move(forms)}});
  }
  return document.dump();
}

}  // namespace cubinery
