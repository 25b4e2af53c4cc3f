// The path of verify that takes all tokens of a request at once: the WY form, on the tensor cores
// (mma.sync, sm_80 and newer).
#include <utility>

#include "runtime/gdn/shared/problem_check.h"
#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/cost.h"
#include "runtime/gdn/verify/operator.h"

namespace cubinery::gdn {
namespace {

class VerifyWy final : public VerifyWyPath {
 public:
  VerifyWy() : KeyedPath("wy", {KernelNames{}}) {}

  std::optional<std::string> why_not(const VerifyProblem& problem, const Target&) const override {
    if (normalised(problem).round_each_token) {
      return "round_each_token asks for the states of decode steps";
    }
    if (auto gates = why_no_gates(problem.inputs)) return gates;
    const char* reason = cubinery::why_invalid(std::get<0>(fixed_keys(problem)));
    if (reason == nullptr) return std::nullopt;
    return reason;
  }
  std::vector<KeySet> default_keys(const VerifyProblem& problem, const Target&) const override {
    return default_wy_keys(std::get<0>(fixed_keys(problem)));
  }

 protected:
  bool fits(const VerifyProblem&, const KeySet& keys, const Target&) const override {
    return valid(std::get<0>(keys));
  }
  double us(const VerifyProblem&, const KeySet& keys, const Point& at,
            const Target& target) const override {
    return verify_us(std::get<0>(keys), at[0], at[1], target);
  }
  std::unique_ptr<const VerifyRunner> loaded(const VerifyProblem& problem, const KeySet& keys,
                                             const Target&,
                                             std::vector<Kernel> kernels) const override {
    const unsigned blocks = blocks_of_request(std::get<0>(keys), problem.heads.count());
    return verify_runner(problem, blocks, std::move(kernels.front()));
  }
};

}  // namespace

const VerifyWyPath& verify_wy() {
  static const VerifyWy kPath;
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::VerifyProblem, cubinery::gdn::VerifyRunner,
                                   cubinery::GdnVerifyWyKey>;
