// The path of the convolution: one pass over the tokens, on every architecture.
#pragma once

#include "gdn_conv/fields.h"
#include "gdn_conv/key.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

// The key of the kernel beside it, for tensors that do not lie in vectors.
GdnConvKey without_vectors(GdnConvKey key);

class ConvPortable final : public KeyedPath<ConvProblem, ConvRunner, GdnConvKey> {
 public:
  ConvPortable() : KeyedPath("portable", {KernelNames{}}) {}

  std::optional<std::string> why_not(const ConvProblem&, const Target&) const override {
    return std::nullopt;
  }
  // For any number of tokens; without varlen also for decoding steps of few sequences and of many.
  std::vector<KeySet> default_keys(const ConvProblem& problem, const Target& target) const override;

 protected:
  bool fits(const ConvProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const ConvProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const ConvRunner> loaded(const ConvProblem& problem, const KeySet& keys,
                                           const Target& target,
                                           std::vector<Kernel> kernels) const override;
  // without_vectors().
  void add_other_kernels(const KeySet& keys, std::vector<KernelSpec>* specs) const override;
};

const ConvPortable& conv_portable();

}  // namespace cubinery::gdn
