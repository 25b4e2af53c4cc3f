// The portable path of decode: one pass over the state, which stays in registers; every
// architecture, with states in fp8 from sm_89 on.
#pragma once

#include <numeric>
#include <tuple>

#include "gdn_decode/fields.h"
#include "gdn_decode/key.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery::gdn {

using DecodePortableBase = KeyedPath<DecodeProblem, DecodeRunner, GdnDecodeKey>;

class DecodePortable final : public DecodePortableBase {
 public:
  DecodePortable() : KeyedPath("portable", {KernelNames{}}) {}

  std::optional<std::string> why_not(const DecodeProblem& problem,
                                     const Target& target) const override;

  // Two that sum in the same order.  The first is wide: many value columns per warp, for large
  // batches.  The second is narrow: more warps, for small batches.
  std::vector<KeySet> default_keys(const DecodeProblem& problem,
                                   const Target& target) const override;

 protected:
  bool fits(const DecodeProblem& problem, const KeySet& keys, const Target& target) const override;
  double us(const DecodeProblem& problem, const KeySet& keys, const Point& at,
            const Target& target) const override;
  std::unique_ptr<const DecodeRunner> loaded(const DecodeProblem& problem, const KeySet& keys,
                                             const Target& target,
                                             std::vector<Kernel> kernels) const override;
  void correct_bits(const KeySet& keys, Values* values) const override;
};

// For values of a decode step: with rows along value_dim a vector holds columns, each of which is
// summed by itself.
void correct_step_bits(StateLayout layout, std::vector<TunedValue>* values);

const DecodePortable& decode_portable();

// Blocks that read the same inputs of the convolution: those of heads that share q, k or v.
inline int conv_cluster(const DecodeProblem& problem, const GdnDecodeKey& key) {
  const Heads& heads = problem.heads;
  const int of_keys = std::lcm(heads.count() / heads.q, heads.count() / heads.k);
  return std::lcm(of_keys, heads.count() / heads.v) * key.value_dim / block_columns(key);
}

// Lanes along key_dim of default keys with KV states of `dtype`, of verify's too: both sum alike.
int kv_lanes(int key_dim, DType dtype);

}  // namespace cubinery::gdn
