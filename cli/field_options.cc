#include "cli/field_options.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "codegen/read_json.h"
#include "runtime/gdn/shared/engine_forms.h"
#include "runtime/gdn/shared/model_switches.h"

namespace cubinery {
namespace {

// What an engine's problems have already: problems_for_engine() knew it.
bool is_read_with_the_model(const Request& request, const std::string& name) {
  const auto& names = gdn::kReadWithTheModel;
  return !request.engine.empty() && std::find(names.begin(), names.end(), name) != names.end();
}

// As a switch of the request's model.
bool is_switch(const Request& request, const std::string& name, const std::string& text) {
  if (request.asked.form.empty()) return false;
  if (is_read_with_the_model(request, name)) return true;
  return has_field(request, std::string(gdn::field_of(request.asked.of, name, text)));
}

}  // namespace

bool has_field(const Request& request, const std::string& field) {
  return !request.own_kernel && read_json(field, to_json(request.asked.problem))->contains(field);
}

FieldOptions::FieldOptions(const std::map<std::string, std::string>& fields,
                           const std::vector<Request>& requests)
    : fields_(fields) {
  for (const auto& [name, text] : fields) {
    for (const Request& request : requests) {
      if (is_switch(request, name, text)) switches_.insert(name);
    }
  }
}

bool FieldOptions::changes(const Request& request, const std::string& name) const {
  const bool is_of_model = !request.asked.form.empty() && switches_.contains(name);
  return is_of_model ? is_switch(request, name, fields_.at(name)) : has_field(request, name);
}

bool FieldOptions::change_all(const Request& request) const {
  return std::all_of(fields_.begin(), fields_.end(),
                     [&](const auto& field) { return changes(request, field.first); });
}

std::map<std::string, std::string> FieldOptions::of(const Request& request) const {
  if (request.asked.form.empty()) return fields_;
  gdn::Switches switches, own;
  for (const auto& [name, text] : fields_) {
    if (is_read_with_the_model(request, name)) continue;
    (switches_.contains(name) ? switches : own)[name] = text;
  }
  const auto decay_of = [](const auto& problem) { return problem.inputs.decay; };
  gdn::Switches fields =
      gdn::fields_of_form(request.asked.of, switches, std::visit(decay_of, request.asked.problem));
  fields.insert(own.begin(), own.end());
  return fields;
}

}  // namespace cubinery
