#include "runtime/gdn/verify_wy.h"

#include <utility>

#include "runtime/gdn/verify_cost.h"
#include "runtime/gdn/verify_runner.h"

namespace cubinery::gdn {
namespace {

// The rows of a kernel's products: the fewest that hold a request's tokens.
int rows_for(int max_tokens) { return max_tokens <= 8 ? 8 : 16; }

}  // namespace

GdnVerifyWyKey VerifyWy::first_key(const VerifyProblem& problem) const {
  GdnVerifyWyKey key = std::get<0>(fixed_keys(problem));
  key.tokens = rows_for(problem.max_tokens);
  return key;
}

std::optional<std::string> VerifyWy::why_not(const VerifyProblem& problem, const Target&) const {
  if (normalised(problem).round_each_token) {
    return "round_each_token asks for the states of decode steps";
  }
  const char* reason = cubinery::why_invalid(first_key(problem));
  if (reason == nullptr) return std::nullopt;
  return reason;
}

// Blocks of four warps, and single ones for few states.
std::vector<VerifyWy::KeySet> VerifyWy::default_keys(const VerifyProblem& problem,
                                                     const Target&) const {
  GdnVerifyWyKey large = first_key(problem), small = large;
  large.warps = 4;
  small.warps = 1;
  return {large, small};
}

bool VerifyWy::fits(const VerifyProblem& problem, const KeySet& keys, const Target&) const {
  const GdnVerifyWyKey& key = std::get<0>(keys);
  return valid(key) && key.tokens == rows_for(problem.max_tokens);
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
