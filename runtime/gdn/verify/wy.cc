#include "runtime/gdn/verify/wy.h"

#include <utility>

#include "runtime/gdn/verify/cost.h"
#include "runtime/gdn/verify/runner.h"
#include "runtime/gdn/verify/wy_keys.h"

namespace cubinery::gdn {

std::optional<std::string> VerifyWy::why_not(const VerifyProblem& problem, const Target&) const {
  if (normalised(problem).round_each_token) {
    return "round_each_token asks for the states of decode steps";
  }
  const char* reason = cubinery::why_invalid(std::get<0>(fixed_keys(problem)));
  if (reason == nullptr) return std::nullopt;
  return reason;
}

std::vector<VerifyWy::KeySet> VerifyWy::default_keys(const VerifyProblem& problem,
                                                     const Target&) const {
  return default_wy_keys(std::get<0>(fixed_keys(problem)));
}

bool VerifyWy::fits(const VerifyProblem&, const KeySet& keys, const Target&) const {
  return valid(std::get<0>(keys));
}

double VerifyWy::us(const VerifyProblem&, const KeySet& keys, const Point& at,
                    const Target& target) const {
  return verify_us(std::get<0>(keys), at[0], at[1], target);
}

std::unique_ptr<const VerifyRunner> VerifyWy::loaded(const VerifyProblem& problem,
                                                     const KeySet& keys, const Target&,
                                                     std::vector<Kernel> kernels) const {
  const unsigned blocks = blocks_of_request(std::get<0>(keys), problem.heads.count());
  return std::make_unique<OneKernelVerifyRunner>(problem, blocks, std::move(kernels.front()));
}

const VerifyWy& verify_wy() {
  static const VerifyWy kPath;
  return kPath;
}

}  // namespace cubinery::gdn
