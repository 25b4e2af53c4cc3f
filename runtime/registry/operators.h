// The operators of the library by name, and a problem of any of them.  Pure functions but for those
// that take a context.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "cubinery/gdn_models.h"
#include "cubinery/status.h"
#include "runtime/gdn/operators.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery {

template <class Nothing, class... Problems>
using OneOf = std::variant<Problems...>;
#define CUBINERY_PROBLEM(Name, ...) , gdn::Name##Problem
// Of any operator.
using Problem = OneOf<void CUBINERY_OPERATORS(CUBINERY_PROBLEM)>;
#undef CUBINERY_PROBLEM
static_assert(std::is_same_v<Problem, gdn::AnyProblem>, "gdn::AnyProblem has all, in their order");

// "gdn_decode" and so on, in the order of the list.
const std::vector<std::string>& operator_names();
std::string operator_of(const Problem& problem);
// Requires: `op` is one of operator_names().
Problem default_problem(std::string_view op);
// The problem that flat JSON describes; it need not pass check().  Requires and errors: `op` as
// above, from_json() of the operator's problem.
Result<Problem> parse_problem(std::string_view op, std::string_view json);

// One form in which a model needs an operator: a member of gdn::ModelProblems.
struct Form {
  std::string_view name;  // as the member is called
  std::string_view help;
  std::string op;
  std::string_view instead;  // "decode and conv_decode": forms that do the same together
};
// By operator, in the order of operator_names().
const std::vector<Form>& model_forms();
const std::vector<std::string>& form_names();
// gdn::problems_for_model(): one for each of model_forms(), in its order.
Result<std::vector<Problem>> problems_for_model(std::string_view config_json, int tp,
                                                const gdn::ModelOptions& options = {});

// The methods of the same name.
Status check(const Problem& problem);
std::string to_json(const Problem& problem);
Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                        const std::vector<std::string>& paths);
// The same with these results (of the problem's operator) in place of those inside the library.
Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                        const std::vector<std::string>& paths,
                                        const KnownResults& known);

// The paths of an operator and their kernels.  Empty: no operator of the library.
PathKernels path_kernels(std::string_view op);
// All results of an operator that this context may use.  Requires: `op` as above.
KnownResults known_results(const Context& context, std::string_view op);

// What there is to choose from on such a GPU, with these Options::paths.  Errors of
// Planner::create().
Result<TuningSpace> tuning_space(const Problem& problem, const Target& target,
                                 const std::vector<std::string>& paths = {});

}  // namespace cubinery
