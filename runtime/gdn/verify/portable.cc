// The portable path of verify: decode's pass over the state, which stays in registers over all
// tokens; every architecture.
#include "runtime/gdn/decode/paths.h"
#include "runtime/gdn/verify/one_kernel_path.h"

namespace cubinery::gdn {
namespace {

// Rows of the state lie along key_dim: eight lanes share one, in the longest vectors that fit eight
// of them into a row.
std::vector<std::tuple<GdnVerifyKey>> verify_vk_keys(GdnVerifyKey key) {
  const int row_bytes = key.key_dim * size_of(key.states.dtype);
  key.k_lanes = 8;
  key.vec_bytes = 16;
  while (row_bytes % (key.k_lanes * key.vec_bytes) != 0) key.vec_bytes /= 2;
  GdnVerifyKey wide = key, narrow = key;
  wide.warp_v = 16;
  while (!valid(wide) && wide.warp_v > 4) wide.warp_v /= 2;  // a long key_dim: fewer columns
  wide.warps = 1;
  narrow.warp_v = 8;
  if (!valid(narrow)) narrow.warp_v = 4;
  narrow.warps = 2;
  return {wide, narrow};
}

// Rows of the state lie along value_dim, and warps of a block side by side along them, as in
// decode.
std::vector<std::tuple<GdnVerifyKey>> verify_kv_keys(GdnVerifyKey key) {
  key.k_lanes = kv_lanes(key.key_dim, key.states.dtype, key.inputs.decay);
  const auto with_vector_of = [&](int elements, int warps) {
    GdnVerifyKey made = key;
    made.warps = warps;
    do {  // f32 operands leave fewer registers to the state
      made.vec_bytes = elements * size_of(key.states.dtype);
      made.warp_v = 32 / key.k_lanes * elements;
      elements /= 2;
    } while (!valid(made) && elements > 0);
    return made;
  };
  if (key.k_lanes == 4) return {with_vector_of(2, 4), with_vector_of(2, 1)};
  return {with_vector_of(4, 2), with_vector_of(2, 2)};
}

// With an output norm a block has a whole head: as many warps as share it evenly, each of which
// passes over its columns.
GdnVerifyKey with_whole_head(GdnVerifyKey key) {
  key.warps = 8;
  while (!valid(key) && key.warps > 1) key.warps /= 2;
  return key;
}

class VerifyPortable final : public OneKernelVerifyPath<GdnVerifyKey> {
 public:
  VerifyPortable() : OneKernelVerifyPath("portable", {KernelNames{}}) {}

  // Wide and narrow ones as decode has, which sum in the same order as those.
  std::vector<KeySet> default_keys(const VerifyProblem& problem, const Target&) const override {
    const GdnVerifyKey key = std::get<0>(fixed_keys(problem));
    std::vector<KeySet> keys =
        problem.states.layout == StateLayout::kVK ? verify_vk_keys(key) : verify_kv_keys(key);
    if (!is_normed(problem)) return keys;
    for (auto& [made] : keys) made = with_whole_head(made);
    return keys;
  }

 protected:
  std::optional<std::string> why_not_here(const VerifyProblem& problem,
                                          const Target& target) const override {
    if (problem.tree) return "the state after a token's parent is not at hand (tree = true)";
    // A thread's registers do not hold long rows of decays beside operands in f32.
    for (const KeySet& keys : default_keys(problem, target)) {
      if (std::optional<std::string> rule = rule_of(keys)) return rule;
    }
    return std::nullopt;
  }
  void correct_bits(const KeySet& keys, Values* values) const override {
    correct_step_bits(std::get<0>(keys).states.layout, values);
  }
};

}  // namespace

const VerifyPortablePath& verify_portable() {
  static const VerifyPortable kPath;
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::VerifyProblem, cubinery::gdn::VerifyRunner,
                                   cubinery::GdnVerifyKey>;
