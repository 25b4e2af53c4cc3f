#include "runtime/registry/operators.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/gdn/shared/model_forms.h"
#include "runtime/operator/planner.h"

namespace cubinery {
namespace {

// One problem of each operator, all fields at their default.
template <std::size_t... kIndex>
std::vector<Problem> make_defaults(std::index_sequence<kIndex...>) {
  return {Problem(std::in_place_index<kIndex>)...};
}
const std::vector<Problem>& default_problems() {
  static const auto kProblems =
      make_defaults(std::make_index_sequence<std::variant_size_v<Problem>>());
  return kProblems;
}

// What `function` makes of each form, in their order.
template <class Function>
auto for_each_form(Function&& function) {
  using Made = std::decay_t<decltype(function(std::get<0>(gdn::kModelForms)))>;
  std::vector<Made> made;
  // One at a time: some are large, and a thread's stack may be small.
  const auto add = [&](const auto& form) { made.push_back(function(form)); };
  std::apply([&](const auto&... form) { (add(form), ...); }, gdn::kModelForms);
  return made;
}

}  // namespace

const std::vector<std::string>& operator_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Problem& problem : default_problems()) names.push_back(operator_of(problem));
    return names;
  }();
  return kNames;
}

std::string operator_of(const Problem& problem) {
  return std::visit([](const auto& p) { return Fields<std::decay_t<decltype(p)>>::kName; },
                    problem);
}

Problem default_problem(std::string_view op) {
  const auto is_named = [op](const Problem& problem) { return operator_of(problem) == op; };
  return *std::find_if(default_problems().begin(), default_problems().end(), is_named);
}

Result<Problem> parse_problem(std::string_view op, std::string_view json) {
  return std::visit(
      [json](const auto& p) -> Result<Problem> {
        auto parsed = std::decay_t<decltype(p)>::from_json(json);
        if (!parsed) return std::move(parsed).error();
        return Problem(*std::move(parsed));
      },
      default_problem(op));
}

const std::vector<Form>& model_forms() {
  static const std::vector<Form> kForms = for_each_form([](const auto& form) -> Form {
    return {form.name, form.help, operator_of(gdn::ModelProblems{}.*form.problem), form.instead};
  });
  return kForms;
}

const std::vector<std::string>& form_names() {
  static const std::vector<std::string> kNames =
      for_each_form([](const auto& form) { return std::string(form.name); });
  return kNames;
}

Result<std::vector<Problem>> problems_for_model(std::string_view config_json, int tp,
                                                const gdn::ModelOptions& options) {
  const Result<gdn::ModelProblems> of_model = gdn::problems_for_model(config_json, tp, options);
  if (!of_model) return of_model.error().clone();
  return for_each_form([&](const auto& form) -> Problem { return (*of_model).*form.problem; });
}

Status check(const Problem& problem) {
  return std::visit([](const auto& p) { return p.check(); }, problem);
}

Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                        const std::vector<std::string>& paths) {
  return std::visit([&](const auto& p) { return p.kernels(arch, paths); }, problem);
}

Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                        const std::vector<std::string>& paths,
                                        const KnownResults& known) {
  return std::visit([&](const auto& p) { return kernels_for(p, arch, known, paths); }, problem);
}

std::string to_json(const Problem& problem) {
  return std::visit([](const auto& p) { return p.to_json(); }, problem);
}

PathKernels path_kernels(std::string_view op) {
  const std::vector<std::string>& names = operator_names();
  if (std::find(names.begin(), names.end(), op) == names.end()) return {};
  return std::visit([](const auto& p) { return path_kernels<std::decay_t<decltype(p)>>(); },
                    default_problem(op));
}

KnownResults known_results(const Context& context, std::string_view op) {
  return known_results_of(context, op, path_kernels(op));
}

Result<TuningSpace> tuning_space(const Problem& problem, const Target& target,
                                 const std::vector<std::string>& paths) {
  return std::visit(
      [&](const auto& p) -> Result<TuningSpace> {
        const auto planner = Planner<std::decay_t<decltype(p)>>::create(p, target, paths);
        if (!planner) return planner.error().clone();
        return planner->space();
      },
      problem);
}

}  // namespace cubinery
