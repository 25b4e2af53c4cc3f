#include "runtime/registry/problem.h"

#include <algorithm>
#include <type_traits>

#include "runtime/gdn/decode_problem.h"
#include "runtime/gdn/prefill_problem.h"

namespace cubinery {
namespace {

// One problem of each operator, all fields at their default.
const std::vector<Problem>& default_problems() {
  static const std::vector<Problem> kProblems = {gdn::DecodeProblem{}, gdn::PrefillProblem{}};
  static_assert(std::variant_size_v<Problem> == 2, "name a default for each operator");
  return kProblems;
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

Status check(const Problem& problem) {
  return std::visit([](const auto& p) { return p.check(); }, problem);
}

Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch) {
  return std::visit([arch](const auto& p) { return p.kernels(arch); }, problem);
}

Result<std::vector<KernelSpec>> kernels(const Problem& problem, std::string_view arch,
                                        const KnownResults& known) {
  return std::visit([&](const auto& p) { return gdn::kernels(p, arch, known); }, problem);
}

std::string to_json(const Problem& problem) {
  return std::visit([](const auto& p) { return p.to_json(); }, problem);
}

}  // namespace cubinery
