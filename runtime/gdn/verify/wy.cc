// The path of verify that takes all tokens of a request at once: the WY form, on the tensor cores
// (mma.sync, sm_80 and newer).
#include "runtime/gdn/verify/one_kernel_path.h"

namespace cubinery::gdn {
namespace {

class VerifyWy final : public OneKernelVerifyPath<GdnVerifyWyKey> {
 public:
  VerifyWy() : OneKernelVerifyPath("wy", {KernelNames{}}) {}

  std::vector<KeySet> default_keys(const VerifyProblem& problem,
                                   const Target& target) const override {
    return default_wy_keys(std::get<0>(fixed_keys(problem)), target);
  }

 protected:
  std::optional<std::string> why_not_here(const VerifyProblem& problem,
                                          const Target&) const override {
    if (normalised(problem).round_each_token) {
      return "round_each_token asks for the states of decode steps";
    }
    KeySet keys = fixed_keys(problem);
    std::get<0>(keys).warps = 1;
    return rule_of(keys);
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
