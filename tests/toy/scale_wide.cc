// A second path of the toy operator: several elements for each thread, on Hopper and newer.
#include "runtime/operator/keyed_path.h"
#include "tests/toy/scale_operator.h"
#include "tests/toy/templates/scale_rows_wide/fields.h"

namespace cubinery::toy {
namespace {

class WideScaleRunner final : public ScaleRunner {
 public:
  WideScaleRunner(const ScaleRowsWideKey& key, Kernel kernel)
      : key_(key), kernel_(std::move(kernel)) {}

  Status launch(Stream stream, const ScaleArgs& args, std::int64_t elements) const override {
    const std::int64_t of_block = std::int64_t{key_.threads} * key_.vec;
    const auto blocks = static_cast<unsigned>((elements + of_block - 1) / of_block);
    return kernel_.launch(stream, {.grid = {blocks}},
                          ScaleRowsWideParams{args.x.data, elements, args.factor});
  }

 private:
  ScaleRowsWideKey key_;
  Kernel kernel_;
};

class ScaleWide final : public KeyedPath<ScaleProblem, ScaleRunner, ScaleRowsWideKey> {
 public:
  ScaleWide() : KeyedPath("wide", {KernelNames{}}) {}

  std::vector<KeySet> default_keys(const ScaleProblem& problem, const Target&) const override {
    return {fixed_keys(problem)};
  }

 protected:
  std::optional<std::string> why_not_here(const ScaleProblem&,
                                          const Target& target) const override {
    if (target.arch.major >= 9) return std::nullopt;
    return "it needs sm_90 or newer";
  }
  Cost cost(const ScaleProblem&, const KeySet&, const Target& target) const override {
    // It starts later, and its stream is faster.
    return [rate = copy_rate(target)](const Point& at) {
      return 3 + 7.0 * static_cast<double>(at[0]) / rate;
    };
  }
  std::unique_ptr<const ScaleRunner> loaded(const ScaleProblem&, const KeySet& keys, const Target&,
                                            std::vector<Kernel> kernels) const override {
    return std::make_unique<WideScaleRunner>(std::get<0>(keys), std::move(kernels.front()));
  }
};

}  // namespace

const ScalePath& scale_wide() {
  static const ScaleWide kPath;
  return kPath;
}

}  // namespace cubinery::toy
