// The portable path of verify: decode's pass over the state, which stays in registers over all
// tokens; every architecture.
#include <utility>

#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/shared/problem_check.h"
#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/args.h"
#include "runtime/gdn/verify/cost.h"
#include "runtime/gdn/verify/operator.h"

namespace cubinery::gdn {
namespace {

class OneKernelVerifyRunner final : public VerifyRunner {
 public:
  // `blocks`: of a request.
  OneKernelVerifyRunner(const VerifyProblem& problem, unsigned blocks, Kernel kernel)
      : problem_(problem), blocks_(blocks), kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }

  Status launch(Stream stream, const VerifyArgs& args, const VerifyExtent& extent) const override {
    GdnVerifyParams params{};
    CUBINERY_RETURN_IF_ERROR(bind_verify(problem_, args, extent, &params));
    return kernel_.launch(stream, request_grid(blocks_, extent.requests, args.enable_pdl), params);
  }

 private:
  VerifyProblem problem_;
  unsigned blocks_;
  Kernel kernel_;
};

// Rows of the state lie along key_dim: eight lanes share one, in the longest vectors that fit eight
// of them into a row.
std::vector<std::tuple<GdnVerifyKey>> verify_vk_keys(GdnVerifyKey key) {
  const int row_bytes = key.key_dim * size_of(key.states.dtype);
  key.k_lanes = 8;
  key.vec_bytes = 16;
  while (row_bytes % (key.k_lanes * key.vec_bytes) != 0) key.vec_bytes /= 2;
  GdnVerifyKey wide = key, narrow = key;
  wide.warp_v = 16;
  if (!valid(wide)) wide.warp_v = 8;  // a long key_dim: half as many columns per thread
  wide.warps = 1;
  narrow.warp_v = 8;
  if (!valid(narrow)) narrow.warp_v = 4;
  narrow.warps = 2;
  return {wide, narrow};
}

// Rows of the state lie along value_dim, and warps of a block side by side along them, as in
// decode.
std::vector<std::tuple<GdnVerifyKey>> verify_kv_keys(GdnVerifyKey key) {
  key.k_lanes = kv_lanes(key.key_dim, key.states.dtype);
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

class VerifyPortable final : public VerifyPortablePath {
 public:
  VerifyPortable() : KeyedPath("portable", {KernelNames{}}) {}

  std::optional<std::string> why_not(const VerifyProblem& problem, const Target&) const override {
    if (problem.tree) return "the state after a token's parent is not at hand (tree = true)";
    return why_no_gates(problem.inputs);
  }

  // Wide and narrow ones as decode has, which sum in the same order as those.
  std::vector<KeySet> default_keys(const VerifyProblem& problem, const Target&) const override {
    const GdnVerifyKey key = std::get<0>(fixed_keys(problem));
    return problem.states.layout == StateLayout::kVK ? verify_vk_keys(key) : verify_kv_keys(key);
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
  void correct_bits(const KeySet& keys, Values* values) const override {
    correct_step_bits(std::get<0>(keys).states.layout, values);
  }
};

}  // namespace

std::unique_ptr<const VerifyRunner> verify_runner(const VerifyProblem& problem, unsigned blocks,
                                                  Kernel kernel) {
  return std::make_unique<OneKernelVerifyRunner>(problem, blocks, std::move(kernel));
}

const VerifyPortablePath& verify_portable() {
  static const VerifyPortable kPath;
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::VerifyProblem, cubinery::gdn::VerifyRunner,
                                   cubinery::GdnVerifyKey>;
