// A problem of any operator, and the operators by name.  Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cubinery/fields.h"
#include "cubinery/gdn.h"
#include "cubinery/status.h"
#include "runtime/registry/known_results.h"

namespace cubinery {

using Problem = std::variant<gdn::DecodeProblem, gdn::PrefillProblem>;

// "gdn_decode", "gdn_prefill": the order in which the command line goes through them.
const std::vector<std::string>& operator_names();
std::string operator_of(const Problem& problem);
// Requires: `op` is one of operator_names().
Problem default_problem(std::string_view op);
// The problem that flat JSON describes; it need not pass check().  Requires and errors: `op` as
// above, from_json() of the operator's problem.
Result<Problem> parse_problem(std::string_view op, std::string_view json);

// The methods of the same name.
Status check(const Problem& problem);
Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch);
std::string to_json(const Problem& problem);
// kernels(), with these results (of the problem's operator) in place of those inside the library.
Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                        const KnownResults& known);

}  // namespace cubinery
