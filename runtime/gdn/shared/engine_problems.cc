// The problems of a model as an engine has them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/nearest.h"
#include "codegen/read_json.h"
#include "cubinery/gdn_models.h"
#include "runtime/gdn/operators.h"
#include "runtime/gdn/shared/engine_forms.h"
#include "runtime/gdn/shared/model_config.h"
#include "runtime/gdn/shared/model_forms.h"
#include "runtime/gdn/shared/model_layers.h"
#include "runtime/gdn/shared/model_switches.h"
#include "runtime/gdn/shared/model_types.h"
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

bool is_of(const EngineForm& form, const Engine& engine, const ModelLayers& model) {
  if (form.engine != engine.name) return false;
  if (model.decay == Decay::kHead || form.of_kimi == OfKimi::kAlways) return true;
  return form.of_kimi == OfKimi::kBounded && model.gate_mode == GateMode::kLowerBound;
}

// Whether cubinery has a place in the engine for layers of the model.
bool serves(const Engine& engine, const ModelLayers& model) {
  const ModelType* type = find_model_type(model.type);
  if (type != nullptr && engine.left == type->family) return false;
  const std::span<const EngineForm> forms = engine_forms();
  return std::any_of(forms.begin(), forms.end(),
                     [&](const EngineForm& form) { return is_of(form, engine, model); });
}

Status check_is_served(const ModelLayers& model, const Engine& engine) {
  if (serves(engine, model)) return {};
  std::vector<std::string_view> accepted;
  for (const Engine& other : known_engines()) {
    if (serves(other, model)) accepted.push_back(other.name);
  }
  accepted.push_back("no engine");
  return invalid_config(
      fmt::format("engine = {}: no plugin takes the model's layers of Kimi Delta Attention there; "
                  "accepted with it: {}",
                  engine.name, fmt::join(accepted, ", ")));
}

// What the engine decides of the model, where the caller has not.
void add_rules(const ModelLayers& model, const Engine& engine, Switches* switches) {
  const auto decide = [switches](const char* name, std::string_view text) {
    const auto asked = switches->find(name);
    if (asked != switches->end() && asked->second != kAutoSwitch) return;
    switches->erase(name);
    if (!text.empty()) switches->emplace(name, text);
  };
  const bool is_apart =
      engine.apart == kEveryModel || (!model.type.empty() && model.type == engine.apart);
  decide("state_dtype", is_apart ? value_text(model.dtype) : std::string(engine.state_dtype));
  if (engine.output_norm.empty()) return;
  const bool has_norm =
      !is_apart && model.dtype == DType::kBF16 && model.output_norm != OutputNorm::kNone;
  decide("output_norm", has_norm ? engine.output_norm : std::string_view());
}

// Takes draft_tokens away where it says that there are no drafts.
bool takes_drafts(Switches* switches) {
  const auto asked = switches->find("draft_tokens");
  if (asked == switches->end() || (asked->second != "0" && asked->second != "1")) return true;
  switches->erase(asked);
  return false;
}

// What "@" or "@v_heads" stands for, of a field.
std::string value_in(const Json& model, std::string_view field, std::string_view text) {
  const Json& value = model.at(std::string(text.size() > 1 ? text.substr(1) : field));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Adds "name=value name=value" to *fields.
void add_fields(std::string_view texts, const Json& model, Switches* fields) {
  while (!texts.empty()) {
    const std::string_view field = texts.substr(0, texts.find(' '));
    texts.remove_prefix(std::min(field.size() + 1, texts.size()));
    const std::size_t sign = field.find('=');
    const std::string_view name = field.substr(0, sign);
    const std::string_view text = field.substr(sign + 1);
    (*fields)[std::string(name)] =
        text.starts_with('@') ? value_in(model, name, text) : std::string(text);
  }
}

// What the form's problem has in other words than the model's.
Switches fields_of(const EngineForm& form, Decay decay, const Json& model) {
  Switches fields;
  if (decay == Decay::kHead) add_fields(form.fields, model, &fields);
  add_fields(form.more, model, &fields);
  return fields;
}

// The model's problem in that form.
Result<EngineProblem> problem_of(const EngineForm& form, const ModelProblems& model,
                                 const Json& decode, const Switches& switches) {
  Result<EngineProblem> made = EngineProblem{.form = std::string(form.name),
                                             .problem = {},
                                             .of = std::string(form.of),
                                             .instead_of = std::string(form.instead_of)};
  const auto make = [&](const auto& of) -> Status {
    if (of.name != form.of) return {};
    auto problem = model.*of.problem;
    const Decay decay = problem.inputs.decay;
    CUBINERY_RETURN_IF_ERROR(set_fields(fields_of(form, decay, decode), &problem));
    CUBINERY_RETURN_IF_ERROR(set_fields(fields_of_form(form.of, switches, decay), &problem));
    made->problem = std::move(problem);
    return {};
  };
  Status set;
  std::apply([&](const auto&... of) { (void)((set = make(of), set.ok()) && ...); }, kModelForms);
  if (!set.ok()) return set;
  return made;
}

// Of forms that stand for each other those that such a GPU launches.
void resolve(std::string_view arch, std::vector<EngineProblem>* problems) {
  std::vector<std::string> there, absent;
  for (const EngineProblem& one : *problems) {
    const auto is_replaced = [&](const auto& other) { return other.instead_of == one.form; };
    if (std::none_of(problems->begin(), problems->end(), is_replaced)) continue;
    const auto has_kernels = [&](const auto& p) { return p.kernels(arch).has_value(); };
    (std::visit(has_kernels, one.problem) ? there : absent).push_back(one.form);
  }
  std::erase_if(*problems, [&](const EngineProblem& one) {
    return is_in(there, one.instead_of) || is_in(absent, one.form);
  });
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
  const Result<Json> root = read_config(config_json);
  if (!root) return root.error().clone();
  const Result<ModelLayers> layers = read_model_layers(*root, options);
  if (!layers) return layers.error().clone();
  CUBINERY_RETURN_IF_ERROR(check_is_served(*layers, *found));
  ModelOptions decided = options;
  add_rules(*layers, *found, &decided.switches);
  const bool has_drafts = takes_drafts(&decided.switches);
  const Result<ModelProblems> model = problems_for_model(config_json, tp, decided);
  if (!model) return model.error().clone();
  const Json decode = *read_json("", model->decode.to_json());
  Switches own = options.switches;  // the engine's rules are in the model's problems
  for (const std::string_view name : kReadWithTheModel) own.erase(std::string(name));
  std::vector<EngineProblem> problems;
  for (const EngineForm& form : engine_forms()) {
    if (!is_of(form, *found, *layers) || (form.is_of_drafts && !has_drafts)) continue;
    if (form.name.starts_with(kOfFunctions) && !options.functions) continue;
    Result<EngineProblem> problem = problem_of(form, *model, decode, own);
    if (!problem) return std::move(problem).error();
    problems.push_back(*std::move(problem));
  }
  if (!options.arch.empty()) resolve(options.arch, &problems);
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
