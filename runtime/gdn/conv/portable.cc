// The path of the convolution: one pass over the tokens, on every architecture.
#include <utility>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/cost.h"
#include "runtime/gdn/conv/paths.h"
#include "runtime/gdn/shared/requests.h"

namespace cubinery::gdn {
namespace {

class ConvPortableRunner final : public ConvRunner {
 public:
  ConvPortableRunner(const GdnConvKey& key, int sm_count, std::vector<Kernel> kernels)
      : key_(key),
        sm_count_(sm_count),
        vectors_(std::move(kernels[0])),
        elements_(std::move(kernels[1])) {}

  const Kernel& kernel() const override { return vectors_; }

  Status launch(Stream stream, GdnConvParams params, std::int64_t max_seqlen,
                bool enable_pdl) const override {
    const bool vectors = lies_in_vectors(key_, params);
    const GdnConvKey key = vectors ? key_ : without_vectors(key_);
    const ConvGrid grid = conv_grid(key,
                                    {.sequences = params.sequences,
                                     .tokens = params.tokens,
                                     .longest = max_seqlen,
                                     .channels = params.channels,
                                     .norm_heads = params.norm_heads,
                                     .heads = params.heads},
                                    sm_count_);
    params.channel_warps = grid.channel_warps;
    params.run = grid.run;
    params.runs = static_cast<int>(grid.runs);
    params.by_sequence = grid.by_sequence;
    params.runs_of_sequence = grid.runs_of_sequence;
    const auto blocks = static_cast<unsigned>((grid.warps + key.warps - 1) / key.warps);
    return (vectors ? vectors_ : elements_)
        .launch(stream, request_grid(blocks, grid.runs, enable_pdl), params);
  }

 private:
  GdnConvKey key_;
  int sm_count_;
  Kernel vectors_;
  Kernel elements_;
};

class ConvPortable final : public ConvKeyPath {
 public:
  ConvPortable() : KeyedPath("portable", {KernelNames{}}) {}

  // For any number of tokens; without varlen also for decoding steps of few sequences and of many.
  std::vector<KeySet> default_keys(const ConvProblem& problem, const Target&) const override {
    GdnConvKey key = std::get<0>(fixed_keys(problem));
    std::vector<KeySet> found;
    const auto add = [&](int lane_channels, int ahead, int resident, int together) {
      key.lane_channels = lane_channels;
      key.ahead = ahead;
      key.resident = resident;
      key.together = together;
      if (valid(key)) found.emplace_back(key);
      return valid(key);
    };
    key.warps = 4;
    (void)(add(4, 8, 512, 1) || add(4, 8, 384, 1) || add(8, 8, 256, 1));  // the first that there is
    if (problem.varlen) return found;
    (void)(add(4, 1, 512, 1) || add(8, 1, 256, 1));
    (void)(add(4, 1, 512, 2) || add(4, 1, 384, 2));
    return found;
  }

 protected:
  bool fits(const ConvProblem&, const KeySet& keys, const Target& target) const override {
    const GdnConvKey& key = std::get<0>(keys);
    return valid(key) && shared_bytes(key) <= target.shared_bytes_per_block;
  }
  Cost cost(const ConvProblem& problem, const KeySet& keys, const Target& target) const override {
    return [problem, key = std::get<0>(keys), target](const Point& at) {
      const ConvLoad load{.sequences = at[0],
                          .tokens = problem.varlen ? at[0] * at[1] : at[1],
                          .channels = at[2],
                          .norm_heads = norm_heads(problem),
                          .heads = problem.heads.count()};
      return conv_us(key, load, target);
    };
  }
  std::unique_ptr<const ConvRunner> loaded(const ConvProblem&, const KeySet& keys,
                                           const Target& target,
                                           std::vector<Kernel> kernels) const override {
    return std::make_unique<ConvPortableRunner>(std::get<0>(keys), target.sm_count,
                                                std::move(kernels));
  }
  // without_vectors().
  void add_other_kernels(const KeySet& keys, std::vector<KernelSpec>* specs) const override {
    specs->push_back(*spec_of(without_vectors(std::get<0>(keys))));
  }
};

}  // namespace

GdnConvKey without_vectors(GdnConvKey key) {
  key.vectors = false;
  key.ahead = 1;
  key.together = 1;
  key.resident = 256;
  key.warps = 4;
  return key;
}

const ConvKeyPath& conv_portable() {
  static const ConvPortable kPath;
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::ConvProblem, cubinery::gdn::ConvRunner,
                                   cubinery::GdnConvKey>;
