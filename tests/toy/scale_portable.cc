// The portable path of the toy operator: one element for each thread.
#include "runtime/operator/keyed_path.h"
#include "tests/toy/scale_operator.h"
#include "tests/toy/templates/scale_rows/fields.h"

namespace cubinery::toy {
namespace {

class PortableScaleRunner final : public ScaleRunner {
 public:
  PortableScaleRunner(const ScaleRowsKey& key, Kernel kernel)
      : key_(key), kernel_(std::move(kernel)) {}

  Status launch(Stream stream, const ScaleArgs& args, std::int64_t elements) const override {
    const auto blocks = static_cast<unsigned>((elements + key_.threads - 1) / key_.threads);
    return kernel_.launch(stream, {.grid = {blocks}},
                          ScaleRowsParams{args.x.data, elements, args.factor});
  }

 private:
  ScaleRowsKey key_;
  Kernel kernel_;
};

class ScalePortable final : public KeyedPath<ScaleProblem, ScaleRunner, ScaleRowsKey> {
 public:
  ScalePortable() : KeyedPath("portable", {KernelNames{}}) {}

  std::vector<KeySet> default_keys(const ScaleProblem& problem, const Target&) const override {
    return {fixed_keys(problem)};
  }

 protected:
  Cost cost(const ScaleProblem&, const KeySet&, const Target& target) const override {
    return [rate = copy_rate(target)](const Point& at) {
      return 2 + 8.0 * static_cast<double>(at[0]) / rate;
    };
  }
  std::unique_ptr<const ScaleRunner> loaded(const ScaleProblem&, const KeySet& keys, const Target&,
                                            std::vector<Kernel> kernels) const override {
    return std::make_unique<PortableScaleRunner>(std::get<0>(keys), std::move(kernels.front()));
  }
};

}  // namespace

const ScalePath& scale_portable() {
  static const ScalePortable kPath;
  return kPath;
}

}  // namespace cubinery::toy
