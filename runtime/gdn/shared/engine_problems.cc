// The problems of a model as an engine has them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "codegen/nearest.h"
#include "codegen/read_json.h"
#include "cubinery/gdn_models.h"
#include "runtime/gdn/operators.h"
#include "runtime/gdn/shared/engine_forms.h"
#include "runtime/gdn/shared/model_config.h"
#include "runtime/gdn/shared/model_forms.h"
#include "runtime/gdn/shared/model_layers.h"
#include "runtime/gdn/shared/model_switches.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

Result<Engine> find_engine(std::string_view name) {
  for (const Engine& engine : known_engines()) {
    if (engine.name == name) return engine;
  }
  return invalid_config(fmt::format("engine = {}; accepted: {}{}", excerpt(name),
                                    fmt::join(engine_names(), ", "),
                                    did_you_mean(std::string(name), engine_names())));
}

// What the engine decides of the model, where the caller has not.
Status add_rules(std::string_view config_json, const Engine& engine, ModelOptions* options) {
  Switches& switches = options->switches;
  const auto asked = switches.find("state_dtype");
  if (asked != switches.end() && asked->second != kAutoSwitch) return {};
  switches.erase("state_dtype");
  if (!engine.state_dtype.empty()) switches["state_dtype"] = engine.state_dtype;
  if (engine.model_dtype_for.empty()) return {};
  const Result<Json> root = read_python_json("", config_json);
  if (!root || !root->is_object()) return {};  // problems_for_model() says what is wrong
  const Result<ModelLayers> model = read_model_layers(*root, *options);
  if (model && model->type == engine.model_dtype_for) {
    switches["state_dtype"] = value_text(model->dtype);
  }
  return {};
}

// Takes draft_tokens away where it says that there are no drafts.
bool takes_drafts(Switches* switches) {
  const auto asked = switches->find("draft_tokens");
  if (asked == switches->end() || (asked->second != "0" && asked->second != "1")) return true;
  switches->erase(asked);
  return false;
}

// What the form's problem has in other words than the model's.
Switches fields_of(const EngineForm& form, const Json& model) {
  Switches fields;
  for (const FieldSettings settings : {form.first, form.then}) {
    for (const auto& [name, text] : settings) {
      const std::string of(text.size() > 1 ? text.substr(1) : name);
      fields[std::string(name)] = !text.starts_with('=')     ? std::string(text)
                                  : model.at(of).is_string() ? model.at(of).get<std::string>()
                                                             : model.at(of).dump();
    }
  }
  // Only rows of pools are padded.
  const auto location = fields.find("state_location");
  if (location != fields.end() && location->second == "dense") fields["padding"] = "none";
  return fields;
}

// The model's problem in that form.
Result<EngineProblem> problem_of(const EngineForm& form, const ModelProblems& model,
                                 const Json& decode, const Switches& switches) {
  Result<EngineProblem> made = EngineProblem{.form = std::string(form.name), .problem = {}};
  const auto make = [&](const auto& of) -> Status {
    if (of.name != form.of) return {};
    auto problem = model.*of.problem;
    CUBINERY_RETURN_IF_ERROR(set_fields(fields_of(form, decode), &problem));
    CUBINERY_RETURN_IF_ERROR(set_fields(fields_of_form(form.of, switches), &problem));
    made->problem = std::move(problem);
    return {};
  };
  Status set;
  std::apply([&](const auto&... of) { (void)((set = make(of), set.ok()) && ...); }, kModelForms);
  if (!set.ok()) return set;
  return made;
}

}  // namespace

const std::vector<std::string>& engine_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Engine& engine : known_engines()) names.emplace_back(engine.name);
    return names;
  }();
  return kNames;
}

Result<std::vector<EngineProblem>> problems_for_engine(std::string_view config_json, int tp,
                                                       std::string_view engine,
                                                       const ModelOptions& options) {
  const Result<Engine> found = find_engine(engine);
  if (!found) return found.error().clone();
  ModelOptions decided = options;
  CUBINERY_RETURN_IF_ERROR(add_rules(config_json, *found, &decided));
  const bool has_drafts = takes_drafts(&decided.switches);
  const Result<ModelProblems> model = problems_for_model(config_json, tp, decided);
  if (!model) return model.error().clone();
  const Json decode = *read_json("", model->decode.to_json());
  Switches own = options.switches;  // the engine's rules are in the model's problems
  for (const std::string_view name : kReadWithTheModel) own.erase(std::string(name));
  std::vector<EngineProblem> problems;
  for (const EngineForm& form : engine_forms()) {
    if (form.engine != engine || (form.is_of_drafts && !has_drafts)) continue;
    if (form.name.starts_with(kOfFunctions) && !options.functions) continue;
    Result<EngineProblem> problem = problem_of(form, *model, decode, own);
    if (!problem) return std::move(problem).error();
    problems.push_back(*std::move(problem));
  }
  return problems;
}

std::vector<LeftOut> left_out(const std::vector<EngineProblem>& problems) {
  std::vector<LeftOut> forms;
  for (const EngineProblem& one : problems) {
    const Status checked = std::visit([](const auto& p) { return p.check(); }, one.problem);
    if (!checked.ok()) forms.push_back({one.form, std::string(checked.message())});
  }
  return forms;
}

}  // namespace cubinery::gdn
